"""Reads the binlog of a round with another decoder (mysql-replication), and keeps the changes of each table by key."""

from __future__ import annotations

import re
from typing import Any, Final

import pymysql
from pymysqlreplication import BinLogStreamReader
from pymysqlreplication.event import GtidEvent, QueryEvent, XAPrepareEvent, XidEvent
from pymysqlreplication.row_event import DeleteRowsEvent, UpdateRowsEvent, WriteRowsEvent

from tests.embedded.mysql import MySqlServer
from tests.soak.gtids import Gtids
from tests.soak.history import TableHistory
from tests.soak.tables import Row, from_source

_EVENTS: Final = (
    GtidEvent,
    QueryEvent,
    XAPrepareEvent,
    XidEvent,
    WriteRowsEvent,
    UpdateRowsEvent,
    DeleteRowsEvent,
)
_XA: Final = re.compile(r"XA (START|END|COMMIT|ROLLBACK) X'([0-9A-Fa-f]*)'")
_NAME: Final = r"`?(?:(\w+)`?\.`?)?(\w+)`?"
_RENAME: Final = re.compile(rf"{_NAME}\s+TO\s+{_NAME}", re.IGNORECASE)
_STATEMENT: Final = re.compile(r"\s*(?:/\*.*?\*/\s*)?(RENAME|DROP|TRUNCATE)\s+TABLE\s+(?:IF EXISTS\s+)?", re.IGNORECASE)
_COMMENT: Final = re.compile(r"/\*.*?\*/")

TableName = tuple[str, str]
_Rows = list[tuple[TableName, Row | None, Row | None]]


def _connect(**settings: Any) -> Any:
    """Connect without the name of an argument that the decoder uses and the driver gives up."""
    settings["database"] = settings.pop("db", None)
    return pymysql.connect(**settings)


class BinlogAudit:
    """What the binlog of a round says. ``read`` is called before binlog files are purged, and at the end."""

    def __init__(self, start: str, server_id: int) -> None:
        self._gtids = Gtids(start)
        self._server_id = server_id
        self._gtid = ""
        self._rows: _Rows = []
        self._xid: str | None = None
        self._prepared: dict[str, _Rows] = {}
        self.tables: dict[TableName, TableHistory] = {}

    def read(self, server: MySqlServer) -> None:
        """Read everything that is in the binlog of a server and was not read yet."""
        reader = BinLogStreamReader(
            connection_settings={
                "host": server.host,
                "port": server.port,
                "user": server.user,
                "password": server.password,
            },
            pymysql_wrapper=_connect,
            server_id=self._server_id,
            auto_position=str(self._gtids),
            only_events=_EVENTS,
            enable_logging=False,
        )
        try:
            for event in reader:
                self._take(event)
        finally:
            reader.close()

    def history(self, database: str, table: str) -> TableHistory:
        """Return the changes of a table."""
        found = self.tables.get((database, table))
        if found is None:
            found = self.tables[database, table] = TableHistory(table)
        return found

    def _take(self, event: Any) -> None:
        if isinstance(event, GtidEvent):
            self._gtid, self._rows, self._xid = event.gtid, [], None
        elif isinstance(event, WriteRowsEvent | UpdateRowsEvent | DeleteRowsEvent):
            self._rows += [self._row(event, row) for row in event.rows]
        elif isinstance(event, XidEvent):
            self._commit(self._rows)
        elif isinstance(event, XAPrepareEvent):
            assert self._xid is not None
            if event.one_phase:
                self._commit(self._rows)
            else:
                self._prepared[self._xid] = self._rows
                self._commit([])
        elif isinstance(event, QueryEvent):
            self._statement(event)

    def _row(self, event: Any, row: dict[str, Any]) -> tuple[TableName, Row | None, Row | None]:
        name = (event.schema, event.table)
        if isinstance(event, UpdateRowsEvent):
            return name, from_source(row["before_values"]), from_source(row["after_values"])
        values = from_source(row["values"])
        return (name, None, values) if isinstance(event, WriteRowsEvent) else (name, values, None)

    def _statement(self, event: QueryEvent) -> None:
        text = event.query.decode() if isinstance(event.query, bytes) else str(event.query)
        database = event.schema.decode() if isinstance(event.schema, bytes) else str(event.schema)
        if text == "BEGIN":
            return
        xa = _XA.match(text)
        if xa is None:
            self._apply(database, text)
            self._commit(self._rows)
        elif xa[1] == "START":
            self._xid = xa[2]
        elif xa[1] == "COMMIT":
            self._commit(self._prepared.pop(xa[2]))
        elif xa[1] == "ROLLBACK":
            self._prepared.pop(xa[2], None)
            self._commit([])

    def _apply(self, database: str, text: str) -> None:
        """Apply a statement that moves or removes rows without row events."""
        found = _STATEMENT.match(text)
        if found is None:
            return
        verb, names = found[1].upper(), _COMMENT.sub("", text[found.end() :])
        if verb == "RENAME":
            for part in names.split(","):
                old_database, old, new_database, new = _RENAME.search(part).groups()  # type: ignore[union-attr]
                rows = self.history(old_database or database, old).leave(self._gtid)
                self.history(new_database or database, new).arrive(rows)
            return
        for part in names.split(","):
            in_database, name = re.search(_NAME, part).groups()  # type: ignore[union-attr]
            history = self.history(in_database or database, name)
            if verb == "DROP":
                history.leave(self._gtid)
            else:
                history.truncate(self._gtid)

    def _commit(self, rows: _Rows) -> None:
        for (database, table), before, after in rows:
            self.history(database, table).add(self._gtid, before, after)
        self._gtids.add(self._gtid)
        self._rows = []
