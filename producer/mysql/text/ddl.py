"""The effects of a logged DDL statement, from its leading words and names.

Everything that a capture needs is at the start of a statement, or after RENAME in an ALTER. So no grammar is needed,
and new syntax does no harm. Table definitions are not read from statements, but from the catalog.
"""

from __future__ import annotations

import re
from collections import deque
from typing import Final, NamedTuple

from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId, quote
from tailrace.producer.mysql.text.column_actions import column_actions, keeps_rows
from tailrace.producer.mysql.text.sql_tokens import DEFAULT_DIALECT, SqlDialect, Token, tokens

_SPECIAL_ACTION: Final = re.compile("rename|partition|tablespace", re.IGNORECASE)
"""Words without which an ALTER TABLE has no action that counts here."""


class _Actions(NamedTuple):
    """The actions of an ALTER TABLE that matter."""

    renamed: TableId | None = None
    """The new name of the table."""
    exchanged: TableId | None = None
    """The table whose rows become a partition, and the reverse."""
    removes_rows: bool = False
    adds_rows: bool = False
    separated: TableId | None = None
    """MariaDB: the table that a partition becomes."""
    absorbed: TableId | None = None
    """MariaDB: the table that becomes a partition."""


def ddl_effects(sql: str, database: str, dialect: SqlDialect = DEFAULT_DIALECT) -> tuple[DdlEffect, ...]:
    """Return the effects of a statement in the order of its names; () if it concerns neither tables nor databases.

    ``database`` is the default database of the session. Temporary tables are ignored: they are never captured.
    """
    return _Statement(sql, database, dialect).read()


class _Statement:
    """The tokens of a statement, read as far as needed."""

    def __init__(self, sql: str, database: str, dialect: SqlDialect) -> None:
        self._sql = sql
        self._database = database
        self._dialect = dialect
        self._lower_case = dialect.lower_case_names
        self._tokens = tokens(sql, dialect)
        self._ahead: deque[Token] = deque()
        self._stop = 0
        """End of the last token that was taken."""

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
        may_exist = self._skip_if_exists()
        return tuple(effect._replace(may_exist=may_exist) for effect in self._one(Change.CREATE))

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
        self._skip_wait()
        actions = self._actions()
        effect = DdlEffect(
            Change.ALTER,
            table,
            None,
            self._sql,
            actions.removes_rows,
            actions.adds_rows,
            column_actions(self._sql, self._dialect),
            keeps_rows=keeps_rows(self._sql, self._dialect),
        )
        if actions.exchanged is not None:
            return effect, effect._replace(change=Change.EXCHANGE, table=actions.exchanged)
        if actions.separated is not None:
            return effect, DdlEffect(Change.CREATE, actions.separated, None, self._sql, adds_rows_silently=True)
        if actions.absorbed is not None:
            absorbed = actions.absorbed
            return effect, DdlEffect(Change.DROP, absorbed, None, f"DROP TABLE {_quoted(absorbed)}")
        if actions.renamed is not None and actions.renamed != table:  # a table may get the name that it has
            return (effect._replace(change=Change.RENAME, table=actions.renamed, renamed_from=table),)
        return (effect,)

    def _actions(self) -> _Actions:
        renamed: TableId | None = None
        exchanged: TableId | None = None
        separated: TableId | None = None
        absorbed: TableId | None = None
        removes_rows = adds_rows = False
        if _SPECIAL_ACTION.search(self._sql) is None:
            return _Actions()
        depth = 0
        first = True  # at the start of an action
        while (token := self._next()) is not None:
            word = token.word
            if word in {"DROP", "TRUNCATE", "EXCHANGE", "DISCARD"} and first and self._peek("PARTITION", "TABLESPACE"):
                removes_rows = True
            if word in {"EXCHANGE", "IMPORT"} and first and self._peek("PARTITION", "TABLESPACE"):
                adds_rows = True
            if word == "WITH" and adds_rows and removes_rows and self._take("TABLE"):
                exchanged = self._table() or exchanged
                continue
            if word == "RENAME" and first and not self._peek("COLUMN", "INDEX", "KEY"):
                self._take("TO", "AS", "=")
                renamed = self._table() or renamed
                continue
            if word == "CONVERT" and first:
                if self._take("PARTITION"):
                    self._next()
                    separated = self._table() if self._take("TO") and self._take("TABLE") else None
                    removes_rows = True
                elif self._take("TABLE"):
                    absorbed = self._table()
                    adds_rows = True
            depth += (word == "(") - (word == ")")
            first = word == "," and depth == 0
        return _Actions(renamed, exchanged, removes_rows, adds_rows, separated, absorbed)

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
            self._skip_wait()
            if renamed_from is None or not self._take("TO"):
                return tuple(found)
            table = self._table()
            if table is None:
                return tuple(found)
            clause = self._sql[start : self._stop]
            found.append(DdlEffect(Change.RENAME, table, renamed_from, head + clause))
            if not self._take(","):
                return tuple(found)

    def _index(self) -> tuple[DdlEffect, ...]:
        while not self._take("ON") and self._next() is not None:
            pass
        return self._one(Change.INDEX)

    def _of_database(self, change: Change) -> tuple[DdlEffect, ...]:
        self._skip_if_exists()
        token = self._token()
        name = token.name if token is not None else ""
        # ALTER DATABASE may omit the name.
        given = name if name and not self._peek("CHARACTER", "CHARSET", "COLLATE", "DEFAULT", "READ") else ""
        return (DdlEffect(change, self._stored(given or self._database, ""), None, self._sql),)

    def _one(self, change: Change, *, removes_rows: bool = False) -> tuple[DdlEffect, ...]:
        table = self._table()
        return () if table is None else (DdlEffect(change, table, None, self._sql, removes_rows),)

    def _table(self) -> TableId | None:
        """Read ``name`` or ``db.name``; None if there is no name."""
        token = self._token()
        if token is None or not token.name:
            return None
        self._next()
        second = self._token(1)
        if self._peek(".") and second is not None:
            self._next()
            self._next()
            return self._stored(token.name, second.name)
        return self._stored(self._database, token.name)

    def _stored(self, database: str, table: str) -> TableId:
        return TableId(database.lower(), table.lower()) if self._lower_case else TableId(database, table)

    def _skip_if_exists(self) -> bool:
        found = False
        while self._take("IF", "NOT", "EXISTS"):
            found = True
        return found

    def _skip_wait(self) -> None:
        """Skip what MariaDB has behind a name: WAIT seconds, or NOWAIT."""
        if self._take("WAIT"):
            self._next()
        self._take("NOWAIT")

    def _start(self) -> int:
        token = self._token()
        return token.start if token is not None else len(self._sql)

    def _peek(self, *words: str) -> bool:
        token = self._token()
        return token is not None and token.word in words

    def _take(self, *words: str) -> bool:
        return self._peek(*words) and self._next() is not None

    def _token(self, ahead: int = 0) -> Token | None:
        """Return a token without taking it; None after the last one."""
        while len(self._ahead) <= ahead:
            token = next(self._tokens, None)
            if token is None:
                return None
            self._ahead.append(token)
        return self._ahead[ahead]

    def _next(self) -> Token | None:
        """Take a token."""
        token = self._token()
        if token is not None:
            self._ahead.popleft()
            self._stop = token.stop
        return token


def _quoted(table: TableId) -> str:
    """Return a table as Debezium writes it when it splits a DROP of several tables."""
    return f"{quote(table.database)}.{quote(table.table)}"
