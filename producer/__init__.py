"""MySQL to Kafka: splits tables, reads them and the binlog, and publishes Debezium change events exactly once."""
