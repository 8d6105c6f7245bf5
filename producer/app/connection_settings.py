"""Connections to the source and to Kafka, from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.mariadb.source import MariaDbSource
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.connection import SourceSettings
from tailrace.producer.mysql.password import Password
from tailrace.producer.mysql.source import MySqlSource


def source_settings(config: ProducerConfig) -> SourceSettings:
    database = config.database
    return SourceSettings(
        host=database.hostname,
        port=database.port,
        user=database.user,
        password=Password(database.password.get_secret_value(), database.password_command.get_secret_value()),
        tls=Tls(
            database.ssl_mode,
            ca=database.ssl_ca,
            cert=database.ssl_cert,
            key=database.ssl_key,
            insecure_authentication=database.insecure_authentication,
        ),
        connect_timeout_s=database.connect_timeout_ms / 1000,
        read_timeout_s=database.query_timeout_ms / 1000 or None,
    )


def mysql_source(config: ProducerConfig) -> MySqlSource:
    """Return the source database; nothing is connected yet."""
    return _SOURCES[config.database.connector](
        source_settings(config),
        server_id=config.database.server_id,
        initial_statements=config.database.initial_statements,
        max_xa_search_bytes=config.database.xa_search_max_bytes,
    )


_SOURCES: Final[Mapping[str, type[MySqlSource]]] = {"mysql": MySqlSource, "mariadb": MariaDbSource}


def kafka_settings(config: ProducerConfig) -> KafkaSettings:
    return KafkaSettings(
        config.kafka.bootstrap_servers,
        config.kafka.client_settings(),
        transaction_timeout_ms=config.kafka.transaction_timeout_ms,
    )
