"""``./run demo --sinks``: many tables of one database, one consumer with several sinks, every row compared.

Where a sink has shapes, its tables have them in turn. The rows that are valid now are compared with the source.
"""

from __future__ import annotations

import argparse
import json
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from rich.console import Console

from tailrace.producer.ops.status import Phase
from tailrace.runtime.errors import TailraceError
from tests.demo import sample_database
from tests.demo.many_tables import Changes, kind_of, load, names
from tests.demo.progress import Observer
from tests.demo.screen import comparison_table
from tests.demo.stack import Stack
from tests.demo.targets import TARGETS, Target, session_settings
from tests.demo.verification import Comparison, compare_frame
from tests.embedded.spark import start_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.spark_consumer.sink.shape import Shape

_INTERVAL_S: Final = 2
_SHOWN_EVERY_S: Final = 10


class FanOut(Stack):
    """The stack of the demo with a consumer that has several sinks; each table goes to one, in turn."""

    def __init__(self, sinks: Sequence[str], tables: int) -> None:
        super().__init__()
        self.targets: Mapping[str, Target] = {name: TARGETS[name](self, name) for name in sinks}
        self.tables = names(tables)

    def target_of(self, table: str) -> Target:
        """Return the sink of a table. Copies of one sample table go to different sinks."""
        sinks = list(self.targets)
        number = self.tables.index(table)
        return self.targets[sinks[(number + number // len(sinks)) % len(sinks)]]

    def shape_of(self, table: str) -> Shape:
        """Return the shape of a table: the tables of a sink have its shapes in turn."""
        target = self.target_of(table)
        own = [each for each in self.tables if self.target_of(each) is target]
        return target.shapes[own.index(table) % len(target.shapes)]

    def read(self, session: SparkSession, table: str) -> DataFrame:
        """Return the rows of a table that the source has now."""
        return self.target_of(table).read_shape(session, table, self.shape_of(table))

    def consumer_settings(self) -> dict[str, Any]:
        """Return the consumer's configuration."""
        given = super().consumer_settings()
        del given["sink"], given["sink.path"]
        aliases = {name: name.replace("-", "_") for name in self.targets}
        given["sinks"] = ",".join(aliases.values())
        for name, target in self.targets.items():
            tables = [table for table in self.tables if self.target_of(table) is target]
            shapes = [(table, shape) for table in tables if (shape := self.shape_of(table)) != "scd1"]
            own = {
                "type": target.kind,
                "table.include.list": ",".join(rf"{sample_database.DATABASE}\.{table}" for table in tables) or "none",
                **target.settings(),
            }
            if shapes:
                named = (rf"{sample_database.DATABASE}\.{table}:{shape}" for table, shape in shapes)
                own["sink.shape.overrides"] = ";".join(named)
            given |= {f"sinks.{aliases[name]}.{key}": value for key, value in own.items()}
        return given | session_settings(self)


def check_options(options: argparse.Namespace) -> list[str]:
    """Return the names of ``--sinks``; raises TailraceError for an unknown one."""
    found = [name.strip() for name in options.sinks.split(",") if name.strip()]
    unknown = [name for name in found if name not in TARGETS]
    if unknown or not found:
        raise TailraceError(
            f"--sinks: {', '.join(unknown) or 'no sink is given'}", hint=f"choose from {', '.join(TARGETS)}"
        )
    return list(dict.fromkeys(found))


def run(stack: FanOut, options: argparse.Namespace, console: Console) -> bool:
    """Start everything, wait until the sinks have caught up, and compare. Return whether all tables are equal."""
    console.print(f"starting MySQL, Kafka and the servers of {', '.join(stack.targets)} ...")
    stack.mysql.start()
    stack.kafka.start()
    for target in stack.targets.values():
        target.start()
    rows = max(10, options.rows // len(stack.tables))
    with stack.source.connect() as session:
        load(session, stack.tables, rows)
    console.print(f"loaded {rows:,} rows into each of {len(stack.tables)} tables")
    changes = Changes(stack.source, stack.tables, rows, rate=options.rate)
    changes.start()
    stack.start_producer()
    stack.start_consumer()
    if not _watch(stack, changes, options, console):
        console.print(stack.log("produce"), stack.log("consume"), markup=False, highlight=False)
    stack.stop_processes()
    return _verify(stack, console)


def _watch(stack: FanOut, changes: Changes, options: argparse.Namespace, console: Console) -> bool:
    """Show progress until the sinks have every change. Return False at the deadline."""
    observer = Observer(stack)
    started = shown = time.monotonic()
    finished_at: float | None = None
    try:
        while True:
            stack.check()
            changes.check()
            found = observer.look()
            now = time.monotonic()
            overdue = now - (finished_at or started + options.seconds) > options.deadline
            # Without a micro-batch before its end, the workload would change no table of a sink that has rows.
            if finished_at is None and (overdue or (now - started >= options.seconds and found.batches > 0)):
                changes.stop()
                finished_at = now
            if now - shown >= _SHOWN_EVERY_S:
                shown = now
                states = _states(stack.consumer_port)
                console.print(
                    f"{now - started:4.0f} s  producer {found.phase}, {changes.changes:,} rows changed, "
                    f"{found.batches} batches, lag {found.lag_records}; {states}",
                    markup=False,
                    highlight=False,
                )
            if finished_at is not None:
                if found.lag_records == 0 and found.phase == Phase.STREAMING and observer.has_streamed_all(found):
                    return True
                if overdue:
                    console.print(f"the sinks did not catch up within {options.deadline:g} s", style="red")
                    return False
            time.sleep(_INTERVAL_S)
    finally:
        observer.close()


def _states(port: int) -> str:
    """Return the number of tables in each state by sink, and why tables are parked."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=10) as answer:
            tables = json.load(answer)["tables"].values()
    except OSError:
        return "consumer starting"
    counts = Counter(f"{each['sink']} {each['state']}" for each in tables)
    reasons = sorted({each["parked"]["reason"] for each in tables if "parked" in each})
    return ", ".join([*(f"{name} {count}" for name, count in sorted(counts.items())), *reasons])


def _verify(stack: FanOut, console: Console) -> bool:
    console.print("comparing every row ...")
    # In the session of this process the files of other processes are read; it needs no catalog of theirs.
    session = start_session(Path(stack.work / "compare"))
    try:
        found: list[Comparison] = [
            compare_frame(
                stack.source,
                partial(stack.read, session, table),
                table,
                sample_database.TABLES[kind_of(table)],
            )
            for table in stack.tables
        ]
    finally:
        session.stop()
    for each in found:
        target = stack.target_of(each.table)
        shape = f", {stack.shape_of(each.table)}" if len(target.shapes) > 1 else ""
        each.table = f"{each.table} ({target.name}{shape})"
    console.print(comparison_table(found))
    for each in found:
        for example in each.examples:
            console.print(f"  {each.table}: {example}", markup=False, highlight=False)
    return all(each.equal for each in found)
