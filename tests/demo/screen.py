"""The live screen; without a terminal, one line every few seconds."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.progress import Progress
from tests.demo.verification import Comparison

_LINE_INTERVAL_S: Final = 5.0


class Screen:
    """Shows the progress while it is open."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._live = Live(console=console, auto_refresh=False) if console.is_terminal else None
        self._started = time.monotonic()
        self._line_due = 0.0

    def __enter__(self) -> Self:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, progress: Progress, *, doing: str, changes: int) -> None:
        """Draw ``progress``. ``doing`` is the current step, ``changes`` the rows that the workload has changed."""
        elapsed = time.monotonic() - self._started
        if self._live is not None:
            self._live.update(_render(progress, doing, changes, elapsed), refresh=True)
        elif elapsed >= self._line_due:
            self._line_due = elapsed + _LINE_INTERVAL_S
            tables = progress.tables.values()
            self._console.print(
                f"{elapsed:5.0f} s  {doing}: producer {progress.phase},"
                f" snapshot rows {sum(table.snapshot_rows for table in tables):,}, changed rows {changes:,},"
                f" offset {progress.position or '-'}, consumer lag {_number(progress.lag_records)},"
                f" sink rows {sum(table.sink_rows for table in tables):,}"
            )


def _render(progress: Progress, doing: str, changes: int, elapsed: float) -> Group:
    table = Table(title="MySQL -> Kafka -> Spark -> Delta", title_justify="left")
    table.add_column("table")
    for title in ("estimated rows", "snapshot rows", "splits done", "change records", "sink rows"):
        table.add_column(title, justify="right")
    for name, row in progress.tables.items():
        table.add_row(
            name,
            f"{row.estimated_rows:,}",
            f"{row.snapshot_rows:,}",
            f"{row.splits_done} / {row.splits_planned}",
            f"{row.change_records:,}",
            f"{row.sink_rows:,}",
        )
    lag = "-" if progress.lag_ms is None else f"{progress.lag_ms / 1000:.1f} s"
    facts = (
        f"producer   {progress.phase}, offset {progress.position or '-'}, lag {lag}\n"
        f"consumer   {progress.batches} batches, lag {_number(progress.lag_records)} records\n"
        f"workload   {changes:,} rows changed\n"
        f"{elapsed:4.0f} s     {doing}"
    )
    return Group(table, Text(facts))


def comparison_table(found: list[Comparison]) -> Table:
    """Return a table with one line per compared table."""
    table = Table(title="every sink row compared with its source row", title_justify="left")
    table.add_column("table")
    for title in ("source rows", "sink rows", "missing", "extra", "different", "duplicate"):
        table.add_column(title, justify="right")
    table.add_column("result")
    for each in found:
        counts = (each.source_rows, each.sink_rows, each.missing, each.extra, each.different, each.duplicate)
        result = Text("equal", style="green") if each.equal else Text("DIFFERENT", style="bold red")
        table.add_row(each.table, *(f"{count:,}" for count in counts), result)
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
