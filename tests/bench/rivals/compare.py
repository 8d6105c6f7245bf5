"""``./run bench --rivals``: Tailrace next to Debezium and Flink CDC, in turns, each on servers of its own.

A record of a tool without transactions can be read when it is in the topic; one of Tailrace when its transaction is
committed. The last record is there when the topic has the expected number of records, and not more.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final

from rich.console import Console
from rich.table import Table

from tests.bench import customer, phases, topics
from tests.bench.report import machine
from tests.bench.rivals import flinkcdc
from tests.bench.rivals.debezium import Debezium
from tests.bench.rivals.flinkcdc import FlinkCdc
from tests.bench.rivals.system import System, Tailrace
from tests.bench.stack import Program, Stack
from tests.bench.usage import Usage
from tests.embedded.prepare import prepare

RIVALS: Final[Mapping[str, type[System]]] = {"debezium": Debezium, "flinkcdc": FlinkCdc}
"""By the names that ``--rivals`` takes."""
_PER_TRANSACTION: Final = 20
_WITH_DIGITS: Final = 100
"""Smaller figures are printed with a decimal."""
_RETAIN_S: Final = 3.0
"""Time for a tool to store its offsets before it is stopped: several intervals of Connect's and Flink's."""
_LATENCY_CHANGES: Final = 200


@dataclass(frozen=True, slots=True)
class Measured:
    """One tool in one turn. Rates are from its first record to its last one."""

    system: str
    snapshot_rows_s: float
    snapshot_rows_cpu_s: float
    stream_changes_s: float
    stream_changes_cpu_s: float
    broker_cpu_s_per_million: float
    """CPU seconds of the broker per million rows of the snapshot."""
    first_record_s: float
    """From the command to the first record of the snapshot."""
    latency_median_ms: float
    latency_p95_ms: float
    peak_mb: float
    """The peaks of its processes, added."""


def run(names: Sequence[str], *, rows: int, changes: int, turns: int, say: Callable[[str], None]) -> None:
    """Measure Tailrace and some rivals in turns and print the result."""
    chosen: list[type[System]] = [Tailrace, *(RIVALS[name] for name in names)]
    prepare(("mysql", "kafka", *(["debezium"] if Debezium in chosen else [])))
    if FlinkCdc in chosen:
        flinkcdc.prepare()
    found: list[Measured] = []
    for turn in range(1, turns + 1):
        for kind in chosen:
            say(f"turn {turn} of {turns}: {kind.title}")
            found.append(_measure(kind, rows, changes))
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(_table(found, rows, changes))
    facts = {"machine": machine(), "rows": rows, "changes": changes, "turns": [asdict(each) for each in found]}
    sys.stdout.write(json.dumps(facts) + "\n")


def _measure(kind: type[System], rows: int, changes: int) -> Measured:
    with Stack({}) as servers, Usage() as usage:
        customer.fill(servers.mysql, rows)
        with servers.mysql.connect() as session, session.cursor() as cursor:
            cursor.execute("FLUSH TABLES")  # Debezium's client fails where the server has executed no GTID yet
        system = kind(servers)
        bootstrap = servers.kafka.bootstrap
        started = time.time()
        snapshot = _run(system, usage, 0, rows, lambda program: system.wait_snapshot(program, rows))
        first_s = topics.sent_at(bootstrap, 0, system.topic) - started
        latency = phases.latency(servers, min(_LATENCY_CHANGES, rows // 2), start=system.start, topic=system.topic)
        customer.change(servers.mysql, "mixed", changes, per_transaction=_PER_TRANSACTION)
        mark, before = system.mark(), topics.end_offset(bootstrap, system.topic)
        stream = _run(system, usage, before, changes, lambda program: system.wait_stream(program, mark, changes))
    return Measured(
        system=kind.title,
        snapshot_rows_s=snapshot.rate,
        snapshot_rows_cpu_s=snapshot.cpu_rate,
        stream_changes_s=stream.rate,
        stream_changes_cpu_s=stream.cpu_rate,
        broker_cpu_s_per_million=sum(used.cpu_s for used in snapshot.used if used.name == "Kafka") * 1_000_000 / rows,
        first_record_s=first_s,
        latency_median_ms=latency["median"],
        latency_p95_ms=latency["p95"],
        peak_mb=max(_peak_mb(result) for result in (snapshot, stream)),
    )


def _run(system: System, usage: Usage, before: int, rows: int, wait: Callable[[Program], float]) -> phases.Result:
    """Start the tool, wait for its last record, and stop it. ``before`` is the end of its topic at the start."""
    started = time.time()
    program = system.start()
    end = wait(program)
    begin = topics.sent_at(system.servers.kafka.bootstrap, before, system.topic)
    result = phases.Result(system.title, rows, end - begin, end - started, phases.used(usage, begin, end))
    time.sleep(_RETAIN_S)
    program.stop()
    return result


def _peak_mb(result: phases.Result) -> float:
    return sum(used.peak_mb for used in result.own)


def _table(found: Sequence[Measured], rows: int, changes: int) -> Table:
    table = Table(title=f"{rows:,} rows of 18 columns, {changes:,} changes; a figure for each turn")
    names = list(dict.fromkeys(each.system for each in found))
    for name in ("", *names):
        table.add_column(name, justify="left" if not name else "right")
    for field in fields(Measured):
        if field.name != "system":
            values = [_values(found, name, field.name) for name in names]
            table.add_row(field.name.replace("_", " "), *values)
    return table


def _values(found: Sequence[Measured], system: str, name: str) -> str:
    values = [getattr(each, name) for each in found if each.system == system]
    return ", ".join(f"{value:,.1f}" if value < _WITH_DIGITS else f"{value:,.0f}" for value in values)
