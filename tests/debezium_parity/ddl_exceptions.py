"""Where a rule of columns shows the words of a statement: Debezium takes types and lengths from the text of DDL.

While streaming, ``INTEGER`` is called so and has no length, and ``TIMESTAMP(0)`` has the length 0. In a snapshot, and
always here, they are ``INT(11)`` and ``TIMESTAMP``, as SHOW CREATE TABLE has them.
"""

from __future__ import annotations

import json
from typing import Final

from tests.debezium_parity.compare import Difference
from tests.debezium_parity.tokens import Tree, member

_WORDS: Final = tuple(f'"__debezium.source.column.{part}"' for part in ("type", "length", "scale", "comment", "name"))
_MADE_WHILE_STREAMING: Final = frozenset(
    {"inline_key", "k_text", "many", "late_key", "again", "again_old", "ghost", "alters", "alters2", "altered", "alike"}
)
_WITHOUT_LENGTH: Final = frozenset({"ts0", "dt0", "t0"})
"""Columns declared with the length 0, which the server does not keep."""


def of_statement(difference: Difference) -> bool:
    """Whether a column's schema differs in nothing but such words, and in a default that the log does not tell."""
    table = difference.row.table
    if difference.path[0] != "schema" or not (table.endswith("_new") or table in _MADE_WHILE_STREAMING):
        return False
    expected, actual = difference.expected, difference.actual
    if not isinstance(expected, tuple) or not isinstance(actual, tuple):
        return False
    told = [_parameter_names(side) for side in (expected, actual)]
    if not any(name in told[0] | told[1] for name in (*_WORDS, '"truncateLength"')):
        return False
    return _rest(expected) == _rest(actual)


def of_length_zero(difference: Difference) -> bool:
    """Whether a value is whole where it has been cut here: its declared length is 0, which is none to the server."""
    sides = difference.expected, difference.actual
    if difference.row.table != "temporals_new" or difference.path[-1] not in _WITHOUT_LENGTH:
        return False
    if difference.path[:2] not in {("value", "after"), ("value", "before")} or not all(
        isinstance(side, str) and side.startswith('"') for side in sides
    ):
        return False
    expected, actual = (json.loads(str(side)) for side in sides)
    return len(actual) < len(expected) and expected.startswith(actual)


def _parameter_names(schema: Tree) -> set[str]:
    parameters = member(schema, "parameters")
    return {name for name, _ in parameters} if isinstance(parameters, tuple) else set()


def _rest(schema: tuple[tuple[str, Tree], ...]) -> list[tuple[str, Tree]]:
    """Return a schema without those words, and without what only the catalog tells."""
    found: list[tuple[str, Tree]] = []
    for name, part in schema:
        if name == '"parameters"' and isinstance(part, tuple):
            kept = tuple(each for each in part if each[0] not in {*_WORDS, '"truncateLength"'})
            if kept:
                found.append((name, kept))
        elif name not in {'"default"', '"doc"'}:
            found.append((name, part))
    return found
