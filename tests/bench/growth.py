"""``./run bench --growth``: the cost of a row while the table grows, and while its rows are spread over more tables.

The result is printed as tables and charts in Markdown, for docs/benchmarks.md.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.bench import customer, phases
from tests.bench.report import machine
from tests.bench.stack import Stack
from tests.bench.usage import Usage

ROWS: Final = (100_000, 1_000_000, 10_000_000)
"""Sizes of one table."""
TABLES: Final = (1, 10, 100, 1_000)
"""Numbers of tables."""
ROWS_OF_ALL_TABLES: Final = 1_000_000
_CHANGES: Final = 100_000
_PER_TRANSACTION: Final = 20
_MICROSECONDS: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class Cost:
    """What the producer used in a phase."""

    phase: str
    size: int
    """Rows of the table, or the number of tables."""
    rate: float
    """Rows or changes per second."""
    cpu_us: float
    """CPU time of the producer per row or change, in microseconds."""
    peak_mb: float
    """Peak memory of its largest process."""

    @classmethod
    def of(cls, size: int, result: phases.Result) -> Cost:
        """Return the cost that a result shows."""
        peak = max((used.peak_mb for used in result.own), default=0.0)
        return cls(result.name.partition(",")[0], size, result.rate, _MICROSECONDS / result.cpu_rate, peak)


def run(settings: dict[str, str], say: Callable[[str], None]) -> None:
    """Measure all sizes, each on new servers, and print the report."""
    by_rows: list[Cost] = []
    by_tables: list[Cost] = []
    for rows in ROWS:
        say(f"one table of {rows:,} rows")
        by_rows += _measure(settings, rows)
    for tables in TABLES:
        say(f"{tables:,} tables of {ROWS_OF_ALL_TABLES:,} rows in all")
        by_tables.append(_snapshot(settings, ROWS_OF_ALL_TABLES, tables))
    sys.stdout.write(report(by_rows, "rows of the table") + "\n" + report(by_tables, "tables"))
    facts = [{"of": of, **_plain(cost)} for of, costs in (("rows", by_rows), ("tables", by_tables)) for cost in costs]
    sys.stdout.write(json.dumps({"machine": machine(), "growth": facts}) + "\n")


def _measure(settings: dict[str, str], rows: int) -> list[Cost]:
    with Stack(settings) as stack, Usage() as usage:
        customer.fill(stack.mysql, rows)
        snapshot = phases.snapshot(stack, usage, rows)
        stream = phases.stream(stack, usage, "mixed", _CHANGES, per_transaction=_PER_TRANSACTION)
    return [Cost.of(rows, snapshot), Cost.of(rows, stream)]


def _snapshot(settings: dict[str, str], rows: int, tables: int) -> Cost:
    with Stack(settings) as stack, Usage() as usage:
        customer.fill(stack.mysql, rows // tables)
        customer.copy(stack.mysql, tables)
        return Cost.of(tables, phases.snapshot(stack, usage, rows))


def report(costs: Sequence[Cost], unit: str) -> str:
    """Return a Markdown table of the costs and one chart of the CPU time for each phase."""
    lines = [f"| phase | {unit} | rows/s | CPU µs a row | peak MB |", "|---|---|---|---|---|"]
    lines += [
        f"| {cost.phase} | {cost.size:,} | {cost.rate:,.0f} | {cost.cpu_us:.1f} | {cost.peak_mb:.0f} |"
        for cost in costs
    ]
    for phase in dict.fromkeys(cost.phase for cost in costs):
        lines += ["", *_chart(f"{phase}: CPU µs a row", unit, [cost for cost in costs if cost.phase == phase])]
    return "\n".join([*lines, ""])


def _chart(title: str, unit: str, costs: Sequence[Cost]) -> list[str]:
    """Return a chart that GitHub and the documentation draw (mermaid, "XY Chart")."""
    sizes = ", ".join(f'"{cost.size:,}"' for cost in costs)
    values = ", ".join(f"{cost.cpu_us:.1f}" for cost in costs)
    top = max(cost.cpu_us for cost in costs)
    return [
        "```mermaid",
        "xychart-beta",
        f'    title "{title}"',
        f'    x-axis "{unit}" [{sizes}]',
        f'    y-axis "CPU µs a row" 0 --> {top * 1.25:.0f}',
        f"    bar [{values}]",
        "```",
    ]


def _plain(cost: Cost) -> dict[str, object]:
    return {"phase": cost.phase, "size": cost.size, "rate": round(cost.rate), "cpu_us": round(cost.cpu_us, 2)} | {
        "peak_mb": round(cost.peak_mb)
    }
