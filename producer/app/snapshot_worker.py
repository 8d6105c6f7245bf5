"""Builds a snapshot reader, in the process or thread that runs it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

import structlog

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import TransactionTimeoutError
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.generation import GenerationFence
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer, reader_transactional_id
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.headers import context_headers
from tailrace.producer.snapshot.hooks import NO_HOOKS, SnapshotHooks
from tailrace.producer.snapshot.reader import ReaderSettings, SnapshotReader
from tailrace.producer.snapshot.workers import OpenReader, serve_pipe
from tailrace.runtime.logging import configure_logging
from tailrace.schemas.rowkind import Op

log = structlog.get_logger(__name__)


def open_producer(config: ProducerConfig, kafka: KafkaSettings, transactional_id: str) -> TransactionalProducer:
    """Return the registered producer of a reader, with the longest configured timeout that the broker allows.

    A split is one transaction, and a table that cannot be split is one split. The transaction of a dead reader does not
    last that long: the next holder of the id aborts it.
    """
    lowest = kafka.transaction_timeout_ms
    timeout_ms = max(lowest, config.snapshot.transaction_timeout_ms)
    while True:
        producer = TransactionalProducer(replace(kafka, transaction_timeout_ms=timeout_ms), transactional_id)
        try:
            producer.init_transactions()
        except TransactionTimeoutError as error:
            producer.close()
            if timeout_ms == lowest:
                raise
            shorter_ms = max(lowest, timeout_ms // 2)
            log.info("the broker allows only shorter transactions", refused_ms=timeout_ms, next_ms=shorter_ms)
            log.debug("transaction timeout refused", error=str(error))
            timeout_ms = shorter_ms
        else:
            return producer


def open_reader(
    config: ProducerConfig,
    kafka: KafkaSettings,
    fence: GenerationFence,
    keys: Mapping[str, Mapping[str, Any]],
    *,
    worker: int,
    hooks: SnapshotHooks = NO_HOOKS,
) -> SnapshotReader:
    """Return a reader with its own session and its own fenced producer; ``keys`` is what the stream knows of keys.

    Raises ProducerFencedError if another session has taken over since ``fence`` was taken.
    """
    session = mysql_source(config).open_snapshot_session()
    session.bound_lock_waits()
    prefix = config.topics.prefix
    producer = open_producer(config, kafka, reader_transactional_id(prefix, worker))
    # After the registration, which may just have fenced a reader of the instance that took over.
    fence.require_latest(kafka)
    run_id = fence.generation.run_id
    connector, enabled = config.database.connector, config.values.context_headers
    headers: Headers = list(context_headers(prefix, run_id=run_id, connector=connector, enabled=enabled))
    tables = CapturedTables(config, session.describe)
    tables.keys.load(keys)
    return SnapshotReader(
        session,
        producer,
        tables,
        ReaderSettings(prefix, headers, config.values.options, Op.DELETE in config.values.skipped_operations),
        hooks=hooks,
    )


def process_main(config: ProducerConfig, worker: int, pipe: Pipe) -> None:
    """Run a snapshot reader in its own process; it begins with what a session knows (``open_reader``)."""
    configure_logging(config.ops.log_format, config.ops.log_level)

    def new_opener(kafka: KafkaSettings, fence: GenerationFence, keys: Mapping[str, Mapping[str, Any]]) -> OpenReader:
        return partial(open_reader, config, kafka, fence, keys, worker=worker)

    serve_pipe(worker, new_opener, pipe)
