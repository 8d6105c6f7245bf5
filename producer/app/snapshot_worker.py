"""A snapshot reader's own objects, built in whichever process or thread it runs in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Final

from tailrace.producer.app.connection_settings import kafka_settings, source_settings
from tailrace.producer.app.startup import reader_transactional_id
from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.connection import connect
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.headers import context_headers
from tailrace.producer.snapshot.hooks import NO_HOOKS, SnapshotHooks
from tailrace.producer.snapshot.reader import SnapshotReader
from tailrace.producer.snapshot.workers import serve_pipe
from tailrace.runtime.logging import configure_logging

_LONGEST_TRANSACTION_MS: Final = 900_000
"""The broker's default of transaction.max.timeout.ms."""


def open_reader(
    config: ProducerConfig,
    run_id: str,
    worker: int,
    on_rows: Callable[[str, int], None],
    hooks: SnapshotHooks = NO_HOOKS,
) -> SnapshotReader:
    """Return a reader with a session and a fenced producer of its own."""
    session = connect(source_settings(config))
    kafka = kafka_settings(config)
    # A split is one transaction, and a table that cannot be cut is one split: give it all the time brokers allow by
    # default. A dead reader's transaction does not wait for it, the next holder of the id aborts it.
    kafka = replace(kafka, transaction_timeout_ms=max(kafka.transaction_timeout_ms, _LONGEST_TRANSACTION_MS))
    publisher = TransactionalProducer(kafka, reader_transactional_id(config.topics.prefix, worker))
    publisher.fence()
    return SnapshotReader(
        session,
        publisher,
        CapturedTables(config, partial(read_table, session)),
        prefix=config.topics.prefix,
        context_headers=list(
            context_headers(config.topics.prefix, run_id=run_id, enabled=config.values.context_headers)
        ),
        hooks=hooks,
        on_rows=lambda split, rows: on_rows(split.id, rows),
    )


def process_main(config: ProducerConfig, run_id: str, worker: int, pipe: Pipe) -> None:
    """Run a snapshot reader in a process of its own."""
    configure_logging(config.ops.log_format, config.ops.log_level)
    serve_pipe(worker, lambda on_rows: open_reader(config, run_id, worker, on_rows), pipe)
