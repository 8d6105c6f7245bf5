"""What happens to values that have no exact form in the event format, by ``event.converting.failure.handling.mode``.

``fail`` stops at the first such value. ``warn`` writes what Debezium writes, counts it and logs the first of each
column; where Debezium stops as well, because the column is NOT NULL, it stops.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

import structlog

from tailrace.producer.model.table import TableId
from tailrace.producer.model.value_options import ConversionFailureHandling
from tailrace.runtime.errors import SchemaError

log = structlog.get_logger(__name__)

WrittenValue = int | str | float


class Inexact(NamedTuple):
    """A value, what is wrong with it, and what to do."""

    value: str
    problem: str
    """Completes "the value …"."""
    hint: str


class ConversionFailures:
    """Counts the values that were replaced, by table; used by one thread."""

    def __init__(self) -> None:
        self._counts: Counter[TableId] = Counter()
        self._warned: set[tuple[TableId, str]] = set()

    def add(self, table: TableId, column: str, inexact: Inexact, written: WrittenValue) -> None:
        """Count a replaced value; the first one of each column is logged."""
        self._counts[table] += 1
        if (table, column) in self._warned:
            return
        self._warned.add((table, column))
        log.warning(
            "a value has no exact form in the event format; it and others like it are replaced",
            table=str(table),
            column=column,
            value=inexact.value,
            reason=f"the value {inexact.problem}",
            written=written,
        )

    def take(self) -> dict[TableId, int]:
        """Return the counts since the last call."""
        if not self._counts:
            return {}
        counts, self._counts = dict(self._counts), Counter()
        return counts


class Conversion:
    """The use of one column: its table, whether the key contains it, and what happens to its inexact values."""

    def __init__(
        self,
        table: TableId,
        column: str,
        handling: ConversionFailureHandling,
        failures: ConversionFailures | None,
        *,
        in_key: bool,
    ) -> None:
        """``failures`` counts the values; None: another use of the column does."""
        self.in_key = in_key
        self._table = table
        self._column = column
        self._handling = handling
        self._failures = failures

    def replace(self, inexact: Inexact, written: WrittenValue | None) -> WrittenValue:
        """Return what is written for an inexact value; ``written`` is what Debezium writes, None if it stops.

        Raises SchemaError if the producer must stop at the value.
        """
        if self._handling == "warn" and written is not None:
            if self._failures is not None:
                self._failures.add(self._table, self._column, inexact, written)
            return written
        hint = (
            inexact.hint
            if written is None
            else f"{inexact.hint}, or set event.converting.failure.handling.mode=warn to write what Debezium writes"
        )
        raise SchemaError(
            f"a value {inexact.problem}", hint=hint, table=self._table, column=self._column, value=inexact.value
        )
