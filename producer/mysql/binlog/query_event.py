"""QUERY event: a statement logged as text, and whether it changes captured rows that are not logged as images.

Post-header: thread u32, seconds u32, length of database u8, error u16, length of status variables u16. Then the status
variables (type u8 and a value of a size that depends on the type), the database, NUL, and the statement.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable, Iterator
from itertools import dropwhile, islice
from typing import Final, NamedTuple

from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.text.collation import decode_statement
from tailrace.producer.mysql.text.sql_tokens import DEFAULT_DIALECT, REPLACED, SqlDialect, Token, tokens

POST_HEADER: Final = struct.Struct("<IIBHH")

_SQL_MODE: Final = 1
_CLIENT_CHARSET: Final = 4
_FIXED: Final = {0: 4, _SQL_MODE: 8, 3: 4, _CLIENT_CHARSET: 6}
"""Sizes of the status variables that the server writes up to the character set; the catalog (6, 2) has its own."""
_UTF8MB3: Final = 33
"""A collation of the character set of names in the binlog."""
_UTF8MB4: Final = 45


class Query(NamedTuple):
    """A statement as logged."""

    thread: int
    database: str
    sql: str
    sql_mode: int = 0
    has_replaced: bool = False
    """Bytes that are no text were replaced by U+FFFD (``REPLACED``): a name that has it is not known."""


def read_query(data: bytes, start: int, stop: int) -> Query:
    """Read the body ``data[start:stop]`` of a QUERY event, whatever bytes its statement has."""
    thread, _, name_length, _, status_length = POST_HEADER.unpack_from(data, start)
    at = start + POST_HEADER.size
    collation, sql_mode = _status(data[at : at + status_length])
    at += status_length
    database, replaced = decode_statement(data[at : at + name_length], _UTF8MB3)
    sql, replaced_too = decode_statement(data[at + name_length + 1 : stop], collation)
    return Query(thread, database, sql, sql_mode, replaced or replaced_too)


def _status(status: bytes) -> tuple[int, int]:
    """Return the collation of the client, and sql_mode."""
    at = sql_mode = 0
    while at < len(status):
        variable = status[at]
        if variable == _CLIENT_CHARSET:
            return int.from_bytes(status[at + 1 : at + 3], "little"), sql_mode
        if variable == _SQL_MODE:
            sql_mode = int.from_bytes(status[at + 1 : at + 9], "little")
        if variable == 6:
            at += 2 + status[at + 1]
        elif variable == 2:
            at += 3 + status[at + 1]
        elif variable in _FIXED:
            at += 1 + _FIXED[variable]
        else:
            break
    return _UTF8MB4, sql_mode


def leading_words(sql: str, dialect: SqlDialect = DEFAULT_DIALECT) -> tuple[str, str]:
    """Return the first two words of a statement in upper case, without comments and parentheses; '' if missing."""
    found = (token for token in tokens(sql, dialect) if token.word not in {"(", ";"})
    words = [token.word if token.word[:1].isalpha() else "" for token in islice(found, 2)]
    first, second = [*words, "", ""][:2]
    return (first, second) if first else ("", "")


_CALLS: Final = frozenset({"SELECT", "DO", "CALL"})
"""Logged as text only if a stored function in them changes rows; the binlog does not say which rows."""

CHANGES_ROWS: Final = frozenset({"INSERT", "UPDATE", "DELETE", "REPLACE", "LOAD", "WITH"}) | _CALLS
"""First words of statements whose rows a binlog in ROW format has as images."""

_BEFORE_TARGET: Final = frozenset(
    {"(", ";", "INSERT", "REPLACE", "LOW_PRIORITY", "DELAYED", "HIGH_PRIORITY", "IGNORE", "INTO"}
)


def captured_targets(
    query: Query, captures: Callable[[TableId], bool], dialect: SqlDialect = DEFAULT_DIALECT
) -> tuple[TableId, ...] | None:
    """Return the captured tables that a row-changing statement may write to; None: unknown, perhaps any.

    An INSERT or REPLACE names its target first. In other statements every name is a possible target: a false alarm is
    better than a lost change. A name with bytes that are no text may be any. Changes by triggers and foreign keys are
    not in the statement and remain unknown.
    """
    first, _ = leading_words(query.sql, dialect)
    if first in _CALLS:
        return None
    found = tokens(query.sql, dialect)
    names = _names(found, query.database)
    if first in {"INSERT", "REPLACE"}:
        names = islice(_names(dropwhile(lambda token: token.word in _BEFORE_TARGET, found), query.database), 1)
    found_tables = dict.fromkeys(names)
    if query.has_replaced and any(REPLACED in str(table) for table in found_tables):
        return None
    return tuple(table for table in found_tables if captures(table))


_BEFORE_PARENTHESIS: Final = re.compile(
    r"""
    ALL|AND|ANY|AS|BY|CASE|DISTINCT|ELSE|EXISTS|FROM|IN|INTERVAL|IS|LIKE|LIMIT|NOT|ON|OR|SELECT|SET|SOME
    |THEN|UNION|VALUE|VALUES|WHEN|WHERE|XOR
    """,
    re.VERBOSE,
)
"""Words that are no function."""
_FUNCTION: Final = re.compile(
    r"""
    ABS|AVG|CAST|CEIL|CEILING|CHAR_LENGTH|COALESCE|CONCAT|CONCAT_WS|CONVERT|COUNT|CURDATE|CURRENT_DATE
    |CURRENT_TIMESTAMP|DATE|DATEDIFF|DATE_ADD|DATE_FORMAT|DATE_SUB|FLOOR|FROM_UNIXTIME|GREATEST|HEX|IF
    |IFNULL|JSON_ARRAY|JSON_OBJECT|JSON_SET|LAST_INSERT_ID|LCASE|LEAST|LENGTH|LOWER|MAX|MD5|MIN|MOD|NOW
    |NULLIF|RAND|REPEAT|REPLACE|ROUND|SHA1|SHA2|SUBSTR|SUBSTRING|SUM|TRIM|UCASE|UNHEX|UNIX_TIMESTAMP|UPPER
    |UTC_TIMESTAMP|UUID
    """,
    re.VERBOSE,
)
"""Functions of the server: a stored one of that name is called with its database, or with a space behind the name."""
_UNTIL_TARGET: Final = _BEFORE_TARGET | {"UPDATE", "DELETE", "FROM", "QUICK"}
_AFTER_TARGET: Final = {
    "INSERT": frozenset({"(", "VALUES", "VALUE", "SELECT", "SET"}),
    "REPLACE": frozenset({"(", "VALUES", "VALUE", "SELECT", "SET"}),
    "UPDATE": frozenset({"SET"}),
    "DELETE": frozenset({"WHERE", "ORDER", "LIMIT", ""}),
}


def only_target(query: Query, dialect: SqlDialect = DEFAULT_DIALECT) -> TableId | None:
    """Return the one table that a statement changes, but for triggers of it; None: it may change others.

    It names one target, and calls no function that may be a stored one. The target may be a view. It reads no other
    table, which may be a view that calls a function.
    """
    found = [token for token in tokens(query.sql, dialect) if token.word != ";"]
    first = found[0].word if found else ""
    if first not in _AFTER_TARGET or query.has_replaced:
        return None
    rest = list(dropwhile(lambda token: token.word in _UNTIL_TARGET, found))
    parts = 3 if len(rest) > 2 and rest[1].word == "." else 1
    names, rest = [token.name for token in rest[:parts:2]], rest[parts:]
    following = rest[0].word if rest else ""
    if not all(names) or not names or following not in _AFTER_TARGET[first] or (first != "DELETE" and not rest):
        return None
    for at, token in enumerate(rest):
        if token.word in {"FROM", "JOIN", "TABLE"}:
            return None
        if token.word == "(" and at and (_may_be_stored(rest[at - 1], token) or (at > 1 and rest[at - 2].word == ".")):
            return None
    return TableId(names[0], names[1]) if parts == 3 else TableId(query.database, names[0])


def _may_be_stored(before: Token, parenthesis: Token) -> bool:
    """Return whether a token before a parenthesis may be the name of a stored function."""
    if _FUNCTION.fullmatch(before.word):
        return before.stop != parenthesis.start
    return bool(before.name or before.word == ")") and _BEFORE_PARENTHESIS.fullmatch(before.word) is None


def _names(found: Iterator[Token], database: str) -> Iterator[TableId]:
    """Yield everything that may be the name of a table, qualified or not."""
    token = next(found, None)
    while token is not None:
        following = next(found, None)
        if not token.name:
            token = following
            continue
        name = token.name
        if following is not None and following.word == ".":
            second = next(found, None)
            if second is not None and second.name:
                yield TableId(name, second.name)
                token = next(found, None)
                continue
            following = second
        yield TableId(database, name)
        token = following
