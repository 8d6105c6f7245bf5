"""Which differences the named exceptions cover because Debezium reads types and lengths from the text of statements.

While streaming, Debezium has ``INTEGER`` without a length and ``TIMESTAMP(0)`` with the length 0. In its snapshot, and
always in Tailrace, they are ``INT(11)`` and ``TIMESTAMP`` as in SHOW CREATE TABLE.
"""

from __future__ import annotations

import json
import struct
from typing import Final

from tests.debezium_parity.difference import Difference, column_of, in_row, numbers, type_differs
from tests.debezium_parity.tokens import Tree, member

_PARAMETERS: Final = frozenset(
    {
        *(f'"__debezium.source.column.{part}"' for part in ("type", "length", "scale", "comment", "name")),
        '"truncateLength"',
    }
)
_CREATED_WHILE_STREAMING: Final = frozenset(
    {"inline_key", "k_text", "many", "late_key", "again", "again_old", "ghost", "alters", "alters2", "altered", "alike"}
)
_LENGTH_ZERO: Final = frozenset({"ts0", "dt0", "t0"})
"""Columns that are declared with the length 0, which the server does not store."""


def column_parameters(difference: Difference) -> bool:
    """Whether a column's schema differs only in parameters from the statement, and in a default or a comment."""
    table = difference.record.table
    if difference.path[0] != "schema" or not (table.endswith("_new") or table in _CREATED_WHILE_STREAMING):
        return False
    expected, actual = difference.expected, difference.actual
    if not isinstance(expected, tuple) or not isinstance(actual, tuple):
        return False
    if not _PARAMETERS & (_parameter_names(expected) | _parameter_names(actual)):
        return False
    return _rest(expected) == _rest(actual)


def length_zero(difference: Difference) -> bool:
    """Whether a value of a column of the length 0 is cut by Tailrace and not by Debezium."""
    sides = difference.expected, difference.actual
    if difference.record.table != "temporals_new" or difference.path[-1] not in _LENGTH_ZERO:
        return False
    if difference.path[:2] not in {("value", "after"), ("value", "before")} or not all(
        isinstance(side, str) and side.startswith('"') for side in sides
    ):
        return False
    expected, actual = (json.loads(str(side)) for side in sides)
    return len(actual) < len(expected) and expected.startswith(actual)


def boolean(difference: Difference) -> bool:
    """BOOLEAN as TINYINT(1)."""
    if type_differs(difference, ("boolean", "int16")):
        return _from_statement(difference)
    return in_row(difference) and (difference.expected, difference.actual) in {("true", "1"), ("false", "0")}


def real(difference: Difference) -> bool:
    """REAL as DOUBLE."""
    if type_differs(difference, ("float", "double")):
        return _from_statement(difference) and difference.path[1] == "r"
    sides = numbers(difference)
    if sides is None or not difference.record.table.endswith("_new") or not column_of(difference).endswith(".r"):
        return False
    expected, actual = (struct.pack("f", float(side)) for side in sides)
    return expected == actual


def float4(difference: Difference) -> bool:
    """FLOAT4 as FLOAT."""
    if difference.record.table != "synonyms_new" or difference.path[-1] != "f4":
        return False
    return type_differs(difference, ("double", "float")) or (in_row(difference) and difference.expected == "null")


def binary(difference: Difference) -> bool:
    """CHAR BYTE and CHARACTER SET binary as BINARY."""
    if type_differs(difference, ("string", "bytes")):
        return _from_statement(difference)
    columns = {"inline_key.cb", "binaries.cb", "binaries.b1", "binaries.vcb", "binaries.txb"}
    return column_of(difference) in columns and _from_statement(difference)


def _from_statement(difference: Difference) -> bool:
    """Whether Debezium reads the definition of the table from a statement."""
    return difference.record.table.endswith(("_new", "inline_key"))


def _parameter_names(schema: Tree) -> set[str]:
    parameters = member(schema, "parameters")
    return {name for name, _ in parameters} if isinstance(parameters, tuple) else set()


def _rest(schema: tuple[tuple[str, Tree], ...]) -> list[tuple[str, Tree]]:
    """Return a schema without the parameters from the statement, and without default and comment."""
    found: list[tuple[str, Tree]] = []
    for name, part in schema:
        if name == '"parameters"' and isinstance(part, tuple):
            kept = tuple(each for each in part if each[0] not in _PARAMETERS)
            if kept:
                found.append((name, kept))
        elif name not in {'"default"', '"doc"'}:
            found.append((name, part))
    return found
