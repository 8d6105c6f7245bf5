"""One run of the script: MySQL, Kafka, Connect with Debezium, and Tailrace beside it; returns what both wrote."""

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
from tests.debezium_parity.topics import Written, read_topics, topics_of
from tests.debezium_parity.variants import Variant
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.registry import API, SchemaRegistry

_PHASE_S: Final = 300

MYSQL_SETTINGS: Final = {"binlog_rows_query_log_events": "ON"}
"""Beyond the usual: so that include.query has something to show."""


class Outcome(NamedTuple):
    """What both wrote for one variant; empty for one that did not run it."""

    variant: Variant
    debezium: list[Written]
    tailrace: list[Written]


def run(
    variants: Sequence[Variant],
    *,
    with_debezium: bool = True,
    with_tailrace: bool = True,
    report: Callable[[str], None] = lambda _: None,
) -> list[Outcome]:
    """Run the script once under all ``variants``; ``say`` is told of progress."""
    recorded = list(variants) if with_debezium else []
    offered = list(variants) if with_tailrace else []
    with contextlib.ExitStack() as stack:
        server = stack.enter_context(MySqlServer(settings=MYSQL_SETTINGS))
        broker = stack.enter_context(KafkaBroker())
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tailrace-oracle-")))
        session = stack.enter_context(contextlib.closing(server.connect()))

        def execute(statements: Iterable[str]) -> None:
            with session.cursor() as cursor, warnings.catch_warnings():
                warnings.simplefilter("ignore")  # the script goes to limits that the server warns of
                for statement in statements:
                    cursor.execute(statement)

        execute((f"CREATE DATABASE {DATABASE}", f"USE {DATABASE}", *SESSION, *BEFORE_SNAPSHOT))
        report("rows for the snapshot are in")
        worker = stack.enter_context(ConnectWorker(broker.bootstrap)) if recorded else None
        registry = stack.enter_context(SchemaRegistry()) if any(each.avro for each in variants) else None
        root = registry.url.removesuffix(API) if registry is not None else ""
        if worker is not None:
            start_connectors(server, recorded, worker, registry=root)
        producers = []
        for index, variant in enumerate(offered):
            config = producer_config(server, broker, variant, server_id=8000 + index, registry=root)
            producers.append(Producer(config, folder))
            stack.callback(producers[-1].stop)

        def wait(ready: Callable[[], bool], what: str) -> None:
            def ask() -> bool:
                if worker is not None:
                    for variant in recorded:
                        worker.check(debezium_prefix(variant))
                for producer in producers:
                    producer.check()
                return ready()

            supervised.wait_until(ask, what=what, deadline_s=_PHASE_S, pause_s=0.5)

        for prefix in map(debezium_prefix, recorded):
            wait(lambda prefix=prefix: _snapshot_ended(broker, prefix, registry), f"the snapshot of {prefix}")  # type: ignore[misc]
        for producer in producers:
            wait(producer.has_read_all, "the snapshot of Tailrace")
        report("snapshots are done")
        execute(AFTER_SNAPSHOT)
        report("the streamed part is in")
        prefixes = [*map(debezium_prefix, recorded), *map(tailrace_prefix, offered)]
        for prefix in prefixes:
            wait(lambda prefix=prefix: _sentinel_came(broker, prefix), f"the end of {prefix}")  # type: ignore[misc]
        report("both have written all")
        return [
            Outcome(
                variant,
                _all_of(broker, debezium_prefix(variant), registry) if variant in recorded else [],
                _all_of(broker, tailrace_prefix(variant), registry) if variant in offered else [],
            )
            for variant in variants
        ]


def _all_of(broker: KafkaBroker, prefix: str, registry: SchemaRegistry | None) -> list[Written]:
    records = read_topics(broker.bootstrap, topics_of(broker.bootstrap, prefix))
    return list(records if registry is None else in_json(records, registry.schema))


def _snapshot_ended(broker: KafkaBroker, prefix: str, registry: SchemaRegistry | None) -> bool:
    """Whether the row that Debezium marks as the last of its snapshot is there."""
    return any(b'"snapshot":"last"' in (record.value or b"") for record in _all_of(broker, prefix, registry))


def _sentinel_came(broker: KafkaBroker, prefix: str) -> bool:
    """Whether the script's last row is there; it is the second of its table."""
    return len(list(read_topics(broker.bootstrap, [f"{prefix}.{DATABASE}.{SENTINEL}"]))) > 1
