"""Takes over the topics of a stopped Debezium connector, without a new snapshot."""
