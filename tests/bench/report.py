"""Prints the results: tables, and one line of JSON for programs."""

from __future__ import annotations

import json
import os
import platform
import sys
from dataclasses import asdict
from importlib.metadata import version

from rich.console import Console
from rich.table import Table

from tests.bench.phases import Result
from tests.embedded.kafka import VERSION as KAFKA
from tests.embedded.mysql import DEFAULT_VERSION as MYSQL


def show(results: list[Result], latency: dict[str, float] | None, *, rows: int, changes: int) -> None:
    """Print everything."""
    console = Console(width=None if sys.stdout.isatty() else 130)
    console.print(_rates(results, rows, changes))
    console.print(_processes(results))
    if latency:
        console.print(
            "latency from COMMIT until a read_committed consumer can read the record: "
            + ", ".join(f"{name} {ms:.0f} ms" for name, ms in latency.items())
        )
    facts = {
        "machine": machine(),
        "rows": rows,
        "changes": changes,
        "latency_ms": {name: round(ms, 1) for name, ms in (latency or {}).items()},
        "phases": [
            {
                **asdict(each),
                "rate": round(each.rate),
                "cpu_rate": round(each.cpu_rate),
                "cpu_rate_with_servers": round(each.whole_cpu_rate),
            }
            for each in results
        ],
    }
    sys.stdout.write(json.dumps(facts) + "\n")


def machine() -> dict[str, str]:
    """Return the facts about this machine that the results depend on."""
    names = ("confluent-kafka", "PyMySQL", "pyspark")
    model = next((line for line in _lines("/proc/cpuinfo") if line.startswith("model name")), ": unknown")
    return {
        "cpu": model.partition(": ")[2],
        "cores": str(os.cpu_count()),
        "load": f"{os.getloadavg()[0]:.1f}",
        "python": platform.python_version(),
        "mysql": MYSQL,
        "kafka": KAFKA,
        **{name: version(name) for name in names},
    }


def _rates(results: list[Result], rows: int, changes: int) -> Table:
    table = Table(title=f"{rows:,} rows of 18 columns, {changes:,} changes")
    for name in ("phase", "rows", "seconds", "rows/s", "rows/CPU s", "with servers", "s with start", "details"):
        table.add_column(name, justify="left" if name in {"phase", "details"} else "right")
    for each in results:
        details = ", ".join(f"{name} {value}" for name, value in each.facts.items())
        speeds = (f"{rate:,.0f}" for rate in (each.rate, each.cpu_rate, each.whole_cpu_rate))
        table.add_row(each.name, f"{each.rows:,}", f"{each.seconds:.2f}", *speeds, f"{each.whole_s:.1f}", details)
    return table


def _processes(results: list[Result]) -> Table:
    table = Table(title="processes during the phases")
    for name in ("phase", "process", "CPU s", "peak MB", "MB, first third", "MB, last third"):
        table.add_column(name, justify="left" if name in {"phase", "process"} else "right")
    for each in results:
        for used in each.used:
            memory = (f"{mb:.0f}" for mb in (used.peak_mb, used.early_mb, used.late_mb))
            table.add_row(each.name, used.name, f"{used.cpu_s:.2f}", *memory)
    return table


def _lines(path: str) -> list[str]:
    with open(path, encoding="utf-8") as file:
        return file.read().splitlines()
