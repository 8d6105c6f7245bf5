"""Signals: what people ask of a running capture, from a topic, from a table at the source, or from a file."""
