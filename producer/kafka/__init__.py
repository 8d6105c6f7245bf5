"""Kafka: clients, topics, transactions, and the state that is committed together with the data."""
