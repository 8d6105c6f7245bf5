"""QUERY event: a statement logged as text, and whether it changes captured rows that are not logged as images.

Post-header: thread u32, seconds u32, length of database u8, error u16, length of status variables u16. Then the status
variables (type u8 and a value of a size that depends on the type), the database, NUL, and the statement.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from typing import Final, NamedTuple

from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.collation import charset_of_collation, decode

POST_HEADER: Final = struct.Struct("<IIBHH")

_CLIENT_CHARSET: Final = 4
_FIXED: Final = {0: 4, 1: 8, 3: 4, _CLIENT_CHARSET: 6}
"""Sizes of the status variables that the server writes up to the character set; the catalog (6, 2) has its own."""


class Query(NamedTuple):
    """A statement as logged."""

    thread: int
    database: str
    sql: str


def read_query(data: bytes, start: int, stop: int) -> Query:
    """Read the body ``data[start:stop]`` of a QUERY event. Raises SchemaError for text invalid in its character set."""
    thread, _, name_length, _, status_length = POST_HEADER.unpack_from(data, start)
    at = start + POST_HEADER.size
    charset = _client_charset(data[at : at + status_length])
    at += status_length
    database = data[at : at + name_length].decode()
    return Query(thread, database, decode(data[at + name_length + 1 : stop], charset, what="a statement in the binlog"))


def _client_charset(status: bytes) -> str:
    at = 0
    while at < len(status):
        variable = status[at]
        if variable == _CLIENT_CHARSET:
            return charset_of_collation(int.from_bytes(status[at + 1 : at + 3], "little"))
        if variable == 6:
            at += 2 + status[at + 1]
        elif variable == 2:
            at += 3 + status[at + 1]
        elif variable in _FIXED:
            at += 1 + _FIXED[variable]
        else:
            break
    return "utf8mb4"


_SKIPPED: Final = re.compile(r"(?:\s+|/\*(?![!M]).*?\*/|--[ \t\r\n][^\n]*|#[^\n]*|/\*M?!\d*|[(;])+", re.DOTALL)
_WORD: Final = re.compile(r"[A-Za-z_]+")


def leading_words(sql: str) -> tuple[str, str]:
    """Return the first two words of a statement in upper case, without comments and parentheses; '' if missing."""
    first, at = _word(sql, 0)
    second, _ = _word(sql, at)
    return first, second


def _word(sql: str, at: int) -> tuple[str, int]:
    skipped = _SKIPPED.match(sql, at)
    at = skipped.end() if skipped else at
    word = _WORD.match(sql, at)
    return (word[0].upper(), word.end()) if word else ("", len(sql))


_CALLS: Final = frozenset({"SELECT", "DO", "CALL"})
"""Logged as text only if a stored function in them changes rows; the binlog does not say which rows."""

CHANGES_ROWS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"}) | _CALLS
"""First words of statements whose rows a binlog in ROW format has as images."""

_NAME: Final = r"(?:`((?:[^`]|``)+)`|([0-9A-Za-z$_\u0080-\uffff]+))"
_QUALIFIED: Final = re.compile(_NAME + r"(?:\s*\.\s*" + _NAME + ")?")
_LITERAL: Final = re.compile(r"'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\"", re.DOTALL)
_TARGET: Final = re.compile(
    r"(?:INSERT|REPLACE)\s+(?:(?:LOW_PRIORITY|DELAYED|HIGH_PRIORITY|IGNORE)\s+)*(?:INTO\s+)?" + _QUALIFIED.pattern,
    re.IGNORECASE,
)


def captured_targets(query: Query, captures: Callable[[TableId], bool]) -> tuple[TableId, ...] | None:
    """Return the captured tables that a row-changing statement may write to; None: unknown, perhaps any.

    An INSERT or REPLACE names its target first. In other statements every name is a possible target: a false alarm is
    better than a lost change. Changes by triggers and foreign keys are not in the statement and remain unknown.
    """
    sql = query.sql
    if leading_words(sql)[0] in _CALLS:
        return None
    skipped = _SKIPPED.match(sql)
    target = _TARGET.match(sql, skipped.end() if skipped else 0)
    names = [target] if target else _QUALIFIED.finditer(_LITERAL.sub("''", sql))
    found: dict[TableId, None] = {}
    for match in names:
        first = _plain(match[1], match[2])
        second = _plain(match[3], match[4])
        table = TableId(first, second) if second else TableId(query.database, first)
        if captures(table):
            found[table] = None
    return tuple(found)


def _plain(quoted: str | None, bare: str | None) -> str:
    return quoted.replace("``", "`") if quoted else bare or ""
