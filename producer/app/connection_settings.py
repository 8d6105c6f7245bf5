"""Settings of the edges, made from the configuration."""

from __future__ import annotations

from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.mysql.connection import SourceSettings


def source_settings(config: ProducerConfig) -> SourceSettings:
    """Return how to reach the source."""
    database = config.database
    return SourceSettings(
        host=database.hostname,
        port=database.port,
        user=database.user,
        password=database.password.get_secret_value(),
        ssl_mode=database.ssl_mode,
        ssl_ca=database.ssl_ca,
        ssl_cert=database.ssl_cert,
        ssl_key=database.ssl_key,
        connect_timeout_s=database.connect_timeout_ms / 1000,
        read_timeout_s=database.query_timeout_ms / 1000,
    )


def kafka_settings(config: ProducerConfig) -> KafkaSettings:
    """Return how to reach Kafka."""
    return KafkaSettings(
        config.kafka.bootstrap_servers,
        config.kafka.client_settings(),
        transaction_timeout_ms=config.kafka.transaction_timeout_ms,
    )
