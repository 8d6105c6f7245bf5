"""Assembles the decoded columns of a generated function into its row and key: text of one character per byte."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from tailrace.producer.mysql.types.base import Expression
from tailrace.producer.serialization.codegen import CodeBuilder


class RowWriter(Protocol):
    """Collects the expressions of columns in table order, then returns those of the row and of the key."""

    def null(self, i: int) -> None:
        """Column ``i`` is NULL in every row of this function."""

    def value(self, i: int, value: Expression) -> list[str]:
        """Column ``i`` has a value in every row; return the lines that compute it."""

    def value_or_null(self, i: int, value: Expression) -> tuple[list[str], list[str]]:
        """Column ``i`` may be NULL; return the lines for a value, and those for NULL."""

    def escapes(self) -> list[str]:
        """Return the lines that follow those of all columns."""

    def row(self) -> str:
        """Return the expression of the row."""

    def key(self) -> str:
        """Return the expression of the whole key, with what surrounds it."""


WriterFactory = Callable[[CodeBuilder], RowWriter]
"""Returns the writer of one function."""


class RowAndKey:
    """Writes rows and keys by different writers."""

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
            key_present, key_absent = self._key.value_or_null(i, value)
            return present + key_present, absent + key_absent
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
