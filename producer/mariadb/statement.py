"""Statements as MariaDB logs them: with SET STATEMENT or ANALYZE before the statement that changes something."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice
from typing import Final

from tailrace.producer.mysql.binlog.query_event import CHANGES_ROWS
from tailrace.producer.mysql.text.sql_tokens import SqlDialect, Token, tokens

_FORMAT: Final = 2
"""Tokens behind FORMAT: = and its value."""


def own_statement(sql: str, dialect: SqlDialect) -> str:
    """Return a statement without ``SET STATEMENT … FOR`` and ``ANALYZE``, which runs the statement that follows.

    Otherwise nothing would be seen of what it does to tables and rows.
    """
    found = tokens(sql, dialect)
    start, token = 0, next(found, None)
    while token is not None and token.word == "SET":
        second = next(found, None)
        if second is None or second.word != "STATEMENT" or not _skip_variables(found):
            return sql[start:]
        token = next(found, None)
        start = len(sql) if token is None else token.start
    if token is not None and token.word == "ANALYZE":
        token = next(found, None)
        if token is not None and token.word == "FORMAT":
            token = next(islice(found, _FORMAT, None), None)
        if token is not None and token.word in CHANGES_ROWS:
            start = token.start
    return sql[start:]


def _skip_variables(found: Iterator[Token]) -> bool:
    """Read up to FOR; False if there is none. A function or a query in parentheses may have one of its own."""
    depth = 0
    for token in found:
        depth += (token.word == "(") - (token.word == ")")
        if token.word == "FOR" and depth == 0:
            return True
    return False
