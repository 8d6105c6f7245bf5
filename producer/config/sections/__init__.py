"""The sections of the producer's configuration, one module for each chapter of the reference page."""
