"""What puts the decoded columns of one generated function together: text of one character per byte, row and key."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tailrace.producer.mysql.types.base import Expression
from tailrace.producer.serialization.codegen import CodeBuilder


class RowWriter(Protocol):
    """Collects source of columns in table order, then gives the expressions of the row and of the key."""

    def null(self, i: int) -> None:
        """Column ``i`` is NULL in every row of this function."""

    def value(self, i: int, value: Expression) -> list[str]:
        """Column ``i`` has a value in every row; return the lines that compute it."""

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """Column ``i`` may be NULL; return the lines for a value, and those for NULL."""

    def escapes(self) -> list[str]:
        """Return lines that run once all columns are computed."""

    def row(self) -> str:
        """Return the expression of the row."""

    def key(self) -> str:
        """Return the expression of the whole key, with what stands around it."""


WriterFactory = Callable[[CodeBuilder], RowWriter]
"""Makes the writer of one function."""


class RowAndKey:
    """A writer of rows and another of keys."""

    def __init__(self, row: RowWriter, key: RowWriter, key_columns: Sequence[int]) -> None:
        self._row = row
        self._key = key
        self._in_key = frozenset(key_columns)

    def null(self, i: int) -> None:
        """See ``RowWriter``."""
        self._row.null(i)
        if i in self._in_key:
            self._key.null(i)

    def value(self, i: int, value: Expression) -> list[str]:
        """See ``RowWriter``."""
        return self._row.value(i, value) + (self._key.value(i, value) if i in self._in_key else [])

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """See ``RowWriter``."""
        present, absent = self._row.value_or_null(i, value)
        if i in self._in_key:
            more, less = self._key.value_or_null(i, value)
            return present + more, absent + less
        return present, absent

    def escapes(self) -> list[str]:
        """See ``RowWriter``."""
        return self._row.escapes() + self._key.escapes()

    def row(self) -> str:
        """See ``RowWriter``."""
        return self._row.row()

    def key(self) -> str:
        """See ``RowWriter``."""
        return self._key.key()
