"""A difference between two records or schemas, and the exceptions that may cover it."""

from __future__ import annotations

import json
from collections.abc import Callable
from decimal import Decimal
from typing import Final, NamedTuple

from tests.debezium_parity.records import ParsedRecord, render
from tests.debezium_parity.tokens import Tree, member

_ABSENT: Final = "(absent)"
_MAX_LENGTH: Final = 160


class Difference(NamedTuple):
    """Two values that should be equal, at ``path`` in a record; both are None if a record is missing."""

    record: ParsedRecord
    """The expected record, or the actual one if there is no expected one."""
    path: tuple[str, ...]
    expected: Tree | None
    actual: Tree | None

    def __str__(self) -> str:
        expected, actual = (_ABSENT if tree is None else render(tree) for tree in (self.expected, self.actual))
        sides = (text if len(text) <= _MAX_LENGTH else f"{text[: _MAX_LENGTH - 3]}..." for text in (expected, actual))
        return f"{self.record.topic} {' '.join(self.record.identity)}: {'.'.join(self.path)}: {' <> '.join(sides)}"


class NamedException(NamedTuple):
    """An intended difference and its reason."""

    name: str
    reason: str
    covers: Callable[[Difference], bool]


def strings(difference: Difference) -> tuple[str, str] | None:
    """Return both sides, unescaped, if both are strings."""
    sides = [side for side in (difference.expected, difference.actual) if isinstance(side, str) and side[:1] == '"']
    if len(sides) < 2:
        return None
    expected, actual = map(json.loads, sides)
    return expected, actual


def numbers(difference: Difference) -> tuple[Decimal, Decimal] | None:
    """Return both sides if both are numbers."""
    try:
        return Decimal(str(difference.expected)), Decimal(str(difference.actual))
    except ArithmeticError:
        return None


def in_row(difference: Difference) -> bool:
    """Whether the difference is in a value of a row or of its key."""
    return difference.path[0] == "key" or difference.path[:2] in {("value", "before"), ("value", "after")}


def in_snapshot(difference: Difference) -> bool:
    """Whether the record comes from the snapshot."""
    return difference.record.op == "r"


def column_of(difference: Difference) -> str:
    """Return ``table.column`` of a value of a row; ``X_new`` counts as ``X``."""
    name = difference.path[2] if difference.path[0] == "value" and len(difference.path) > 2 else difference.path[-1]
    return f"{difference.record.table.removesuffix('_new')}.{name}" if in_row(difference) else ""


def type_differs(difference: Difference, *pairs: tuple[str, str]) -> bool:
    """Whether a column's schema has the types of one of ``pairs`` (expected, actual)."""
    types = tuple(member(side, "type") if isinstance(side, tuple) else None for side in difference[2:])
    return difference.path[0] == "schema" and types in {(f'"{one}"', f'"{other}"') for one, other in pairs}
