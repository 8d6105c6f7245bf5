"""Runs the statements on MySQL and captures them with Debezium and with Tailrace at the same time."""

from __future__ import annotations

import contextlib
import tempfile
import warnings
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Final, NamedTuple

from tests.debezium_parity.avro import in_json
from tests.debezium_parity.connect import ConnectWorker
from tests.debezium_parity.debezium import debezium_prefix, start_connectors
from tests.debezium_parity.statements import AFTER_SNAPSHOT, BEFORE_SNAPSHOT, DATABASE, SENTINEL, SESSION
from tests.debezium_parity.tailrace import Producer, producer_config, tailrace_prefix
from tests.debezium_parity.topics import KafkaRecord, read_topics, topics_of
from tests.debezium_parity.variants import Variant
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.registry import API, SchemaRegistry
from tests.support.producer_log import complaints

_PHASE_S: Final = 900

MYSQL_SETTINGS: Final = {"binlog_rows_query_log_events": "ON"}
"""Makes the statements available for include.query."""


class Outcome(NamedTuple):
    """The records of both connectors for one variant; empty for a connector that did not run."""

    variant: Variant
    debezium: list[KafkaRecord]
    tailrace: list[KafkaRecord]
    complaints: str = ""
    """What Tailrace logged above the level info."""


def run(
    variants: Sequence[Variant],
    *,
    with_debezium: bool = True,
    with_tailrace: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Run the statements once for all ``variants``; ``report`` receives the progress."""
    debezium_variants = list(variants) if with_debezium else []
    tailrace_variants = list(variants) if with_tailrace else []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(MySqlServer(settings=MYSQL_SETTINGS))
        broker = stack.enter_context(KafkaBroker())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-parity-")))
        session = stack.enter_context(contextlib.closing(server.connect()))

        def execute(statements: Iterable[str]) -> None:
            with session.cursor() as cursor, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # extreme values cause warnings
                for statement in statements:
                    cursor.execute(statement)

        tag = () if server.version.startswith("8.0.") else ("SET SESSION gtid_next = 'AUTOMATIC:parity'",)
        execute((f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", *SESSION, *tag, *BEFORE_SNAPSHOT))
        report("the rows for the snapshot are inserted")
        worker = stack.enter_context(ConnectWorker(broker.bootstrap)) if debezium_variants else None
        registry = stack.enter_context(SchemaRegistry()) if any(each.avro for each in variants) else None
        root = registry.url.removesuffix(API) if registry is not None else ""
        if worker is not None:
            start_connectors(server, debezium_variants, worker, registry=root)
        producers = []
        for index, variant in enumerate(tailrace_variants):
            config = producer_config(server, broker, variant, server_id=8000 + index, registry=root)
            producers.append(Producer(config, folder))
            stack.callback(producers[-1].stop)

        def wait(ready: Callable[[], bool], what: str) -> None:
            def check() -> bool:
                if worker is not None:
                    for variant in debezium_variants:
                        worker.check(debezium_prefix(variant))
                for producer in producers:
                    producer.check()
                return ready()

            supervised.wait_until(check, what=what, deadline_s=_PHASE_S, pause_s=0.5)

        for prefix in map(debezium_prefix, debezium_variants):
            wait(lambda prefix=prefix: _snapshot_completed(broker, prefix, registry), f"the snapshot of {prefix}")  # type: ignore[misc]
        for producer in producers:
            wait(producer.snapshot_completed, "Tailrace's snapshot")
        report("the snapshots are complete")
        execute(AFTER_SNAPSHOT)
        report("the statements of the streaming phase have run")
        prefixes = [*map(debezium_prefix, debezium_variants), *map(tailrace_prefix, tailrace_variants)]
        for prefix in prefixes:
            wait(lambda prefix=prefix: _sentinel_arrived(broker, prefix), f"the end of {prefix}")  # type: ignore[misc]
        report("all records are written")
        logs = {variant.name: each.log_file for variant, each in zip(tailrace_variants, producers, strict=True)}
        return [
            Outcome(
                variant,
                _all_of(broker, debezium_prefix(variant), registry) if variant in debezium_variants else [],
                _all_of(broker, tailrace_prefix(variant), registry) if variant in tailrace_variants else [],
                complaints(logs[variant.name]) if variant.name in logs else "",
            )
            for variant in variants
        ]


def _all_of(broker: KafkaBroker, prefix: str, registry: SchemaRegistry | None) -> list[KafkaRecord]:
    records = read_topics(broker.bootstrap, topics_of(broker.bootstrap, prefix))
    return list(records if registry is None else in_json(records, registry.schema))


def _snapshot_completed(broker: KafkaBroker, prefix: str, registry: SchemaRegistry | None) -> bool:
    """Whether the row that Debezium marks as the last of its snapshot has arrived."""
    return any(b'"snapshot":"last"' in (record.value or b"") for record in _all_of(broker, prefix, registry))


def _sentinel_arrived(broker: KafkaBroker, prefix: str) -> bool:
    """Whether the last inserted row has arrived; it is the second of its table."""
    return len(list(read_topics(broker.bootstrap, [f"{prefix}.{DATABASE}.{SENTINEL}"]))) > 1
