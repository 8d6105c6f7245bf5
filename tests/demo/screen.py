"""The one live screen, or a line every few seconds where there is no terminal."""

from __future__ import annotations

import time
from types import TracebackType
from typing import Final, Self

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from tests.demo.progress import Progress
from tests.demo.verdict import Comparison

_LINE_EVERY_S: Final = 5.0


class Screen:
    """Shows where everything stands while it is open."""

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
        """Draw ``progress``; ``doing`` says what is waited for, ``changes`` how many rows the writer has changed."""
        elapsed = time.monotonic() - self._started
        if self._live is not None:
            self._live.update(_picture(progress, doing, changes, elapsed), refresh=True)
        elif elapsed >= self._line_due:
            self._line_due = elapsed + _LINE_EVERY_S
            read = sum(table.rows_read for table in progress.tables.values())
            stored = sum(table.sink_rows for table in progress.tables.values())
            self._console.print(
                f"{elapsed:5.0f} s  {doing}: read {read:,}, written by the shop {changes:,},"
                f" log {progress.position or '-'}, behind {_number(progress.behind)}, in the sink {stored:,}"
            )


def _picture(progress: Progress, doing: str, changes: int, elapsed: float) -> Group:
    table = Table(title="MySQL -> Kafka -> Spark -> Delta", title_justify="left")
    table.add_column("table")
    for title in ("rows planned", "rows read", "splits done", "changes", "rows in sink"):
        table.add_column(title, justify="right")
    for name, row in progress.tables.items():
        table.add_row(
            name,
            f"{row.rows_planned:,}",
            f"{row.rows_read:,}",
            f"{row.splits_done} / {row.splits_planned}",
            f"{row.changes:,}",
            f"{row.sink_rows:,}",
        )
    lag = "-" if progress.lag_ms is None else f"{progress.lag_ms / 1000:.1f} s"
    facts = (
        f"producer   {progress.phase}, binlog {progress.position or '-'}, lag {lag}\n"
        f"consumer   {progress.batches} batches, {_number(progress.behind)} records behind\n"
        f"shop       {changes:,} rows changed\n"
        f"{elapsed:4.0f} s     {doing}"
    )
    return Group(table, Text(facts))


def verdict_table(found: list[Comparison]) -> Table:
    """Return the verdict as a table, one line for each compared table."""
    table = Table(title="every row of the sink against its source", title_justify="left")
    table.add_column("table")
    for title in ("source rows", "sink rows", "missing", "extra", "different", "repeated"):
        table.add_column(title, justify="right")
    table.add_column("verdict")
    for each in found:
        counts = (each.source_rows, each.sink_rows, each.missing, each.extra, each.different, each.repeated)
        verdict = Text("equal", style="green") if each.equal else Text("DIFFERENT", style="bold red")
        table.add_row(each.table, *(f"{count:,}" for count in counts), verdict)
    return table


def _number(value: int | None) -> str:
    return "-" if value is None else f"{value:,}"
