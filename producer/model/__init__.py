"""Values and protocols that all packages of the producer share."""
