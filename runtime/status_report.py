"""What ``tailrace status`` shows of a program, as values and as lines of text."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple

from tailrace.runtime.config.property import Property
from tailrace.runtime.printable import printable

_UNITS: Final = (("d", 86_400.0, 172_800.0), ("h", 3_600.0, 7_200.0), ("min", 60.0, 120.0))
"""Name, seconds, and from how many seconds on the unit is used."""


@dataclass(frozen=True, slots=True)
class TableReport:
    """One table."""

    cells: tuple[str, ...]
    """Its name, its state, and what the other headings of the program say."""
    faulty: bool = False
    """It is in error or parked."""
    reason: str = ""
    remedy: str = ""


@dataclass(frozen=True, slots=True)
class ProgramReport:
    """What a program says of itself."""

    state: str
    is_ready: bool
    facts: Mapping[str, str]
    headings: tuple[str, ...]
    tables: Sequence[TableReport]

    @property
    def is_well(self) -> bool:
        return self.is_ready and not any(table.faulty for table in self.tables)


class StatusAddress(NamedTuple):
    """Where a program answers by its configuration."""

    host: str
    port: int
    name: str
    """The topic prefix of a producer, the name of a query."""

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Program(NamedTuple):
    """A program that ``tailrace status`` can show and ``tailrace run`` can start."""

    title: str
    command: str
    port_property: str
    name_field: str
    """The field of /status with the name of ``StatusAddress``."""
    address: Callable[[Path], StatusAddress]
    """Reads the address from a configuration; raises ConfigError."""
    report: Callable[[Mapping[str, Any]], ProgramReport]
    """Reads a /status; raises KeyError or TypeError if it is none of this version."""
    show: Callable[[Path], None]
    """Prints the effective configuration."""
    properties: Callable[[], Iterable[Property]]
    """All that a configuration can have."""


def in_seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def duration(seconds: float | None) -> str:
    """Return a time span for people; ``?`` if it is not known."""
    if seconds is None:
        return "?"
    unit, size = next(((name, size) for name, size, since in _UNITS if seconds >= since), ("s", 1.0))
    number = seconds / size
    return f"{number:,.1f} {unit}" if number < 10 else f"{number:,.0f} {unit}"


def last_error(found: Mapping[str, Any] | None) -> str:
    """Return the ``last_error`` of a /status for people."""
    if found is None:
        return ""
    texts = (found["message"], *found.get("problems", ()), found["hint"])
    return f"{duration(max(0.0, time.time() - found['ts_ms'] / 1000))} ago: {'; '.join(filter(None, texts))}"


def lines_of(report: ProgramReport, room: int | None) -> Iterator[str]:
    """Yield the lines of a program: faulty tables first, and of the others as many as ``room`` lines have."""
    width = max(map(len, report.facts), default=0)
    facts = [f"  {name:{width}}  {printable(text)}" for name, text in report.facts.items()]
    ordered = sorted(report.tables, key=lambda table: (not table.faulty, not table.reason))  # stable: then by name
    blocks = [(table.cells, list(_remarks(table))) for table in ordered]
    first = sum(1 for table in ordered if table.reason or table.faulty)
    shown = len(blocks)
    if room is not None:
        used = len(facts) + 2 + sum(1 + len(remarks) for _, remarks in blocks[:first])
        shown = min(shown, max(first, first + room - used))
    cells = [report.headings, *(tuple(map(printable, each)) for each, _ in blocks[:shown])]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    rows = ["  " + "  ".join(map(str.ljust, each, widths)).rstrip() for each in cells]
    yield from facts
    if blocks:
        yield rows[0]
        yield from chain.from_iterable((row, *remarks) for row, (_, remarks) in zip(rows[1:], blocks, strict=False))
    if shown < len(blocks):
        yield f"  … and {len(blocks) - shown:,} more, none of them in error"


def _remarks(table: TableReport) -> Iterator[str]:
    if table.reason:
        yield f"    reason: {printable(table.reason)}"
    if table.remedy:
        yield f"    remedy: {printable(table.remedy)}"
