"""Signals: requests to a running capture, from a table at the source, a Kafka topic or a file."""
