"""The effects of a logged DDL statement, from its leading words and names.

Everything that a capture needs is at the start of a statement, or after RENAME in an ALTER. So no grammar is needed,
and new syntax does no harm. Table definitions are not read from statements, but from the catalog.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId, quote

_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|/\*(?![!M]).*?\*/|--(?=\s|$)[^\n]*|\#[^\n]*|/\*M?!\d*|\*/)
    |`(?P<quoted>(?:[^`]|``)+)`
    |"(?P<double>(?:[^"\\]|""|\\.)*)"
    |(?P<literal>'(?:[^'\\]|''|\\.)*')
    |(?P<word>[0-9A-Za-z_$\u0080-\U0010ffff]+)
    |(?P<mark>.)""",
    re.DOTALL | re.VERBOSE,
)


class _Token(NamedTuple):
    word: str
    """A bare word in upper case, a mark, or '' for quoted text."""
    name: str
    """The token as an identifier; '' if it cannot be one."""
    start: int
    stop: int


def ddl_effects(sql: str, database: str) -> tuple[DdlEffect, ...]:
    """Return the effects of a statement in the order of its names; () if it concerns neither tables nor databases.

    ``database`` is the default database of the session. Temporary tables are ignored: they are never captured.
    """
    return _Statement(sql, database).read()


class _Statement:
    """The tokens of a statement, and how many are read."""

    def __init__(self, sql: str, database: str) -> None:
        self._sql = sql
        self._database = database
        self._tokens = [_token(found) for found in _TOKEN.finditer(sql) if found["skip"] is None]
        self._at = 0

    def read(self) -> tuple[DdlEffect, ...]:
        """Dispatch by the leading words."""
        if self._take("TRUNCATE"):
            self._take("TABLE")
            return self._one(Change.TRUNCATE, removes_rows=True)
        if self._take("RENAME"):
            return self._rename_table() if self._take("TABLE", "TABLES") else ()
        if self._take("CREATE"):
            return self._create()
        if self._take("ALTER"):
            return self._alter()
        if self._take("DROP"):
            return self._drop()
        return ()

    def _create(self) -> tuple[DdlEffect, ...]:
        if self._take("OR"):
            self._take("REPLACE")
        if self._take("DATABASE", "SCHEMA"):
            return self._of_database(Change.DATABASE)
        while self._take("UNIQUE", "FULLTEXT", "SPATIAL", "ONLINE", "OFFLINE"):
            pass
        if self._take("INDEX"):
            return self._index()
        if not self._take("TABLE"):
            return ()  # TEMPORARY TABLE too
        self._skip_if_exists()
        return self._one(Change.CREATE)

    def _alter(self) -> tuple[DdlEffect, ...]:
        while self._take("ONLINE", "OFFLINE", "IGNORE"):
            pass
        if self._take("DATABASE", "SCHEMA"):
            return self._of_database(Change.DATABASE)
        if not self._take("TABLE"):
            return ()
        self._skip_if_exists()
        table = self._table()
        if table is None:
            return ()
        renamed, removes_rows = self._actions()
        if renamed is None:
            return (DdlEffect(Change.ALTER, table, None, self._sql, removes_rows),)
        return (DdlEffect(Change.RENAME, renamed, table, self._sql, removes_rows),)

    def _actions(self) -> tuple[TableId | None, bool]:
        """Return the new name of the table, if any, and whether partitions with rows are removed."""
        renamed: TableId | None = None
        removes_rows = False
        depth = 0
        first = True  # at the start of an action
        while self._at < len(self._tokens):
            word = self._tokens[self._at].word
            self._at += 1
            if word in {"DROP", "TRUNCATE", "EXCHANGE"} and first and self._peek("PARTITION"):
                removes_rows = True
            if word == "RENAME" and first and not self._peek("COLUMN", "INDEX", "KEY"):
                self._take("TO", "AS", "=")
                renamed = self._table() or renamed
                continue
            depth += (word == "(") - (word == ")")
            first = word == "," and depth == 0
        return renamed, removes_rows

    def _drop(self) -> tuple[DdlEffect, ...]:
        if self._take("DATABASE", "SCHEMA"):
            return self._of_database(Change.DROP_DATABASE)
        if self._take("INDEX"):
            return self._index()
        if not self._take("TABLE", "TABLES"):
            return ()  # TEMPORARY TABLE too
        self._skip_if_exists()
        head = self._sql[: self._start()]
        found: list[DdlEffect] = []
        while (table := self._table()) is not None:
            found.append(DdlEffect(Change.DROP, table, None, f"{head}{_quoted(table)}"))
            if not self._take(","):
                break
        return tuple(found)

    def _rename_table(self) -> tuple[DdlEffect, ...]:
        self._skip_if_exists()
        head = self._sql[: self._start()]
        found: list[DdlEffect] = []
        while True:
            start = self._start()
            renamed_from = self._table()
            if renamed_from is None or not self._take("TO"):
                return tuple(found)
            table = self._table()
            if table is None:
                return tuple(found)
            clause = self._sql[start : self._tokens[self._at - 1].stop]
            found.append(DdlEffect(Change.RENAME, table, renamed_from, head + clause))
            if not self._take(","):
                return tuple(found)

    def _index(self) -> tuple[DdlEffect, ...]:
        while self._at < len(self._tokens) and not self._take("ON"):
            self._at += 1
        return self._one(Change.INDEX)

    def _of_database(self, change: Change) -> tuple[DdlEffect, ...]:
        self._skip_if_exists()
        name = self._tokens[self._at].name if self._at < len(self._tokens) else ""
        # ALTER DATABASE may omit the name.
        given = name if name and not self._peek("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "READ") else ""
        return (DdlEffect(change, TableId(given or self._database, ""), None, self._sql),)

    def _one(self, change: Change, *, removes_rows: bool = False) -> tuple[DdlEffect, ...]:
        table = self._table()
        return () if table is None else (DdlEffect(change, table, None, self._sql, removes_rows),)

    def _table(self) -> TableId | None:
        """Read ``name`` or ``db.name``; None if there is no name."""
        if self._at >= len(self._tokens) or not self._tokens[self._at].name:
            return None
        first = self._tokens[self._at].name
        self._at += 1
        if self._peek(".") and self._at + 1 < len(self._tokens):
            second = self._tokens[self._at + 1].name
            self._at += 2
            return TableId(first, second)
        return TableId(self._database, first)

    def _skip_if_exists(self) -> None:
        while self._take("IF", "NOT", "EXISTS"):
            pass

    def _start(self) -> int:
        return self._tokens[self._at].start if self._at < len(self._tokens) else len(self._sql)

    def _peek(self, *words: str) -> bool:
        return self._at < len(self._tokens) and self._tokens[self._at].word in words

    def _take(self, *words: str) -> bool:
        if not self._peek(*words):
            return False
        self._at += 1
        return True


def _token(found: re.Match[str]) -> _Token:
    span = found.span()
    if found["word"] is not None:
        return _Token(found["word"].upper(), found["word"], *span)
    if found["quoted"] is not None:
        return _Token("", found["quoted"].replace("``", "`"), *span)
    if found["double"] is not None:  # a name under ANSI_QUOTES, which the statement does not show
        return _Token("", found["double"].replace('""', '"'), *span)
    return _Token(found["mark"] or "", "", *span)


def _quoted(table: TableId) -> str:
    """Return a table as Debezium writes it when it splits a DROP of several tables."""
    return f"{quote(table.database)}.{quote(table.table)}"
