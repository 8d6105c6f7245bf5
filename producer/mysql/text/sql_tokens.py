"""Tokens of SQL statements, read lazily and in linear time, as the server that logged the statement reads them.

Comments, string literals and quoted names have no grammar of their own here, and every text has tokens: what is not
closed extends to the end.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import islice
from typing import Final, NamedTuple

_ANSI_QUOTES: Final = 1 << 2
_NO_BACKSLASH_ESCAPES: Final = 1 << 20
"""Bits of sql_mode in the binlog."""


REPLACED: Final = "\ufffd"
"""Stands for bytes of a statement that are no text of its character set."""


class SqlDialect(NamedTuple):
    """What the meaning of a statement depends on."""

    sql_mode: int = 0
    """As logged with the statement."""
    server_version: int = 0
    """As in version comments (80033, or 101106 of MariaDB); 0: unknown, such comments are part of the statement."""
    lower_case_names: bool = False
    """The server stores names in lower case, however a statement writes them."""
    has_replaced: bool = False
    """The statement has U+FFFD for bytes that are no text: names and literals with it are not known."""
    mariadb: bool = False
    """MariaDB logged the statement: it also runs the comments that MySQL leaves to it."""

    @property
    def ansi_quotes(self) -> bool:
        """Whether double quotes enclose names."""
        return bool(self.sql_mode & _ANSI_QUOTES)

    @property
    def backslash_escapes(self) -> bool:
        """Whether a backslash in a string literal escapes the next character."""
        return not self.sql_mode & _NO_BACKSLASH_ESCAPES


_SHOWN: Final = 200
_SHOWN_TOKENS: Final = 50


class Token(NamedTuple):
    """A token that is neither blank nor comment."""

    word: str
    """A bare word in upper case, a mark, or '' for quoted text."""
    name: str
    """The token as an identifier; '' if it cannot be one."""
    start: int
    stop: int


DEFAULT_DIALECT: Final = SqlDialect()


def tokens(sql: str, dialect: SqlDialect = DEFAULT_DIALECT) -> Iterator[Token]:
    """Yield the tokens of a statement."""
    match = _PATTERNS[dialect.backslash_escapes, dialect.mariadb].match
    ansi_quotes = dialect.ansi_quotes
    at, size = 0, len(sql)
    while at < size:
        found = match(sql, at)
        assert found is not None, "every character is a mark at least"
        kind, start, at = found.lastgroup, at, found.end()
        if kind == "word":
            text = found[0]
            yield Token(text.upper(), text, start, at)
        elif kind == "mark":
            yield Token(found[0], "", start, at)
        elif kind == "name":
            yield Token("", _unquoted(found[0], "`"), start, at)
        elif kind == "double":
            yield Token("", _unquoted(found[0], '"') if ansi_quotes else "", start, at)
        elif kind == "literal":
            yield Token("", "", start, at)
        elif kind == "version" and _is_skipped(found[0], dialect):
            at = _comment_end(sql, at)


def without_literals(sql: str, dialect: SqlDialect = DEFAULT_DIALECT) -> str:
    """Return the beginning of a statement for messages: without literals and comments, which may be rows or secrets."""
    shown, stop = "", 0
    for token in islice(tokens(sql, dialect), _SHOWN_TOKENS):
        is_value = token.word[:1].isdigit() or not (token.word or token.name)
        shown += " " * (token.start > stop > 0) + ("?" if is_value else sql[token.start : token.stop])
        stop = token.stop
    return shown[:_SHOWN]


def _is_skipped(opening: str, dialect: SqlDialect) -> bool:
    """Return whether the server takes a version comment that begins so as a comment.

    MariaDB takes the versions from 5.7 to 9 for those of a MySQL that it is not, unless the comment is for MariaDB. Two
    marks are for older servers.
    """
    digits = opening.lstrip("/*M!")
    if not digits or not dialect.server_version:
        return False
    version = int(digits)
    is_newer = version > dialect.server_version
    if "!!" in opening:
        return not is_newer
    return is_newer or (dialect.mariadb and "M" not in opening and version in _OF_MYSQL)


def _pattern(literal: str, mark: str) -> re.Pattern[str]:
    """Return the pattern of a token; ``literal``: the characters that a string literal may have, but quotes.

    ``mark`` makes a comment one with a version.
    """
    return re.compile(
        rf"""(?P<skip>\s++|/\*(?!{mark})(?:[^*]++|\*(?!/))*+(?:\*/)?|--(?=\s|\Z)[^\n]*+|\#[^\n]*+|\*/)
        |(?P<version>/\*{mark}(?:\d{{5,6}})?)
        |(?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]++)
        |(?P<name>`(?:[^`]++|``)*+`?)
        |(?P<double>"(?:{literal.replace("Q", '"')}|"")*+"?)
        |(?P<literal>'(?:{literal.replace("Q", "'")}|'')*+'?)
        |(?P<mark>.)""",
        re.DOTALL | re.VERBOSE,
    )


_OF_MYSQL: Final = range(50_700, 100_000)
_PATTERNS: Final = {
    (escapes, mariadb): _pattern(r"[^Q\\]++|\\.?" if escapes else r"[^Q]++", "M?!!?" if mariadb else "!")
    for escapes in (True, False)
    for mariadb in (True, False)
}
"""By whether a backslash escapes, and whether the server is MariaDB."""


def _unquoted(text: str, quote: str) -> str:
    return text[1:].removesuffix(quote).replace(quote * 2, quote)


def _comment_end(sql: str, at: int) -> int:
    """Return the end of a version comment for newer servers, which may contain comments."""
    while True:
        end = sql.find("*/", at)
        if end < 0:
            return len(sql)
        inner = sql.find("/*", at, end)
        if inner < 0:
            return end + 2
        at = sql.find("*/", inner + 2) + 2
        if at < 2:
            return len(sql)
