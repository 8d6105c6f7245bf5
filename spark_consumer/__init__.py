"""Kafka to tables and changelogs: Spark reads the topics, normalizes the snapshot and applies changes to sinks."""
