"""Which tables a statement of the log may change, by the words in it.

Invariant: every statement counts that contains the words of a table's name, wherever they are, in comments and strings
too, unless its first words say that it defines something else. So no grammar decides that a definition stays in force.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import Final

from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.query_event import leading_words
from tailrace.producer.mysql.text.sql_tokens import SqlDialect

_HARMLESS: Final = frozenset({"ANALYZE", "FLUSH", "GRANT", "REVOKE", "TRUNCATE"})
_DEFINES: Final = frozenset({"ALTER", "CREATE", "DROP"})
_OTHER: Final = frozenset(
    {"ALGORITHM", "DEFINER", "EVENT", "FUNCTION", "PROCEDURE", "ROLE", "TEMPORARY", "TRIGGER", "USER", "VIEW"}
)
"""Second words of statements on what is no table of the log."""
_ANY: Final = "*"
"""Stands for a name that is not known."""
_EVERY: Final = ""
"""Of every statement: it may have a name without words."""
_DATABASE: Final = "."
"""Marks the words of a statement that drops a database."""
_find_words: Final = re.compile(r"[\w$]+").findall
_hides_words: Final = re.compile(r"/\*M?!!?\d+(?:[^\W\d]|\$)|#mysql50#", re.IGNORECASE).search
"""The version of a comment that is joined to a name, and a name that is encoded as that of a file."""


def _words(text: str) -> list[str]:
    """Return the words of a text as the server may compare them: without case and accents.

    Folded, not in lower case: that of Σ depends on the letters next to it in Python, and not in the server.
    """
    return _find_words((text if text.isascii() else "".join(map(_without_accents, text))).casefold())


@lru_cache(maxsize=10_000)
def _without_accents(char: str) -> str:
    """Return the base of a character.

    Of a whole text, Unicode also orders the accents, in a time that grows with the square of their number in a row.
    """
    return "".join(c for c in unicodedata.normalize("NFKD", char) if not unicodedata.combining(c))


@lru_cache(maxsize=50_000)
def _own_words(table: TableId) -> tuple[tuple[str, ...], tuple[str, ...]]:
    dropped = (_DATABASE, *(f"{_DATABASE}{word}" for word in _words(table.database)))
    return tuple(_words(table.table)) or (_EVERY,), dropped


def named_by(event: QueryEvent) -> set[str]:
    """Return the words of a statement, as far as it may change tables."""
    dialect = SqlDialect(event.sql_mode, event.server_version, has_replaced=event.has_replaced)
    first, second = leading_words(event.sql, dialect)
    is_plain = not event.has_replaced and "/*" not in event.sql  # what is in a comment may be run
    if is_plain and (first in _HARMLESS or (first in _DEFINES and second in _OTHER)):
        return set()
    words = {_EVERY, *_words(event.sql)}
    if "drop" in words and not words.isdisjoint({"database", "schema"}):
        words |= {_DATABASE, *(f"{_DATABASE}{word}" for word in words)}
    is_known = first and not event.has_replaced and _hides_words(event.sql) is None
    return words if is_known else words | {_ANY}


class NamedTables:
    """Tables by the words of their names, so that a statement is compared with few of them."""

    def __init__(self, tables: Iterable[TableId]) -> None:
        self._by_word: dict[str, set[TableId]] = {}
        self._tables: set[TableId] = set()
        for table in tables:
            self.add(table)

    def add(self, table: TableId) -> None:
        """Compare statements with this table too."""
        if table not in self._tables:
            self._tables.add(table)
            for words in _own_words(table):
                self._by_word.setdefault(words[-1], set()).add(table)

    def discard(self, table: TableId) -> None:
        """Compare no more statements with this table: nothing is known of it."""
        if table in self._tables:
            self._tables.remove(table)
            for words in _own_words(table):
                same = self._by_word.get(words[-1], set())
                same.discard(table)
                if not same:
                    self._by_word.pop(words[-1], None)

    def __len__(self) -> int:
        """Return how many words lead to tables."""
        return len(self._by_word)

    def changed_by(self, named: Collection[str]) -> set[TableId]:
        """Return the tables that a statement may change."""
        if _ANY in named:
            return set(self._tables)
        found = {table for word in named for table in self._by_word.get(word, ())}
        return {table for table in found if changes(table, named)}


def changes(table: TableId, named: Collection[str]) -> bool:
    return _ANY in named or any(all(word in named for word in words) for words in _own_words(table))
