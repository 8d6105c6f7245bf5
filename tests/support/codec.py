"""Encodes the rows of a table from both sources: a result set and the binlog of a real server."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import closing
from typing import Any, Final

from pymysql.connections import Connection

from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.model.codec import EventEnvelope, EventRows, SnapshotEnvelope
from tailrace.producer.model.table import Table, TableId
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.catalog import read_table
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.result_stream import read_rows
from tailrace.producer.serialization.captured_tables import with_float_digits
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tests.support.binlog import executed, follow, settings_of
from tests.support.database import Database

SNAPSHOT_ENVELOPE: Final = SnapshotEnvelope(b',"source":{"row":0},"op":"r"}')
EVENT_ENVELOPE: Final = EventEnvelope(b',"source":{"row":', b'},"op":"', b'"}')
_AFTER: Final = b'{"before":null,"after":'
_SOURCE: Final = b',"source":{"row":'

LENIENT: Final = "SET sql_mode = 'NO_ENGINE_SUBSTITUTION'"
"""Accepts zero dates and unknown enum values."""


class BothSources:
    """Tables of one test database, with all changes since this object was created."""

    def __init__(self, database: Database) -> None:
        self.database = database
        self._start = executed(database.server)
        self._events: list[Event] | None = None
        database.execute(LENIENT)
        database.execute("SET time_zone = '+00:00'")

    def session(self) -> Connection[Any]:
        """Open a session like the producer."""
        return connect(settings_of(self.database.server))

    def table(self, name: str, key: Sequence[str] = ()) -> Table:
        """Return a table from the catalog."""
        with closing(self.session()) as session:
            found = read_table(session, TableId(self.database.name, name))
        return Table(found.table.id, found.table.columns, tuple(key or found.primary_key))

    def selected(self, table: Table, settings: ValueOptions, *, order: str = "id") -> list[tuple[bytes, bytes]]:
        """Return (key, row JSON) of all rows from a SELECT."""
        codec = TableCodec(table, "topic", CodecOptions(settings))
        sql = f"SELECT {codec.select_list} FROM {table.id.quoted} ORDER BY {order}"
        with closing(self.session()) as session:
            blocks = list(read_rows(session, sql, codec, SNAPSHOT_ENVELOPE))
        return [(key, row_of(value)) for block in blocks for key, value in block.records]

    def logged(self, table: Table, settings: ValueOptions) -> list[tuple[bytes, bytes]]:
        """Return (key, row JSON) of all inserted rows, with the definition from TABLE_MAP events."""
        found: list[tuple[bytes, bytes]] = []
        for rows in self.rows_events(table, "c"):
            for record in self.encode(rows, table, settings).records:
                assert isinstance(record, tuple)
                assert record[1] is not None
                found.append((record[0], row_of(record[1])))
        return found

    def rows_events(self, table: Table, op: str = "") -> list[RowsEvent]:
        """Return the rows events of a table."""
        if self._events is None:
            server, name = self.database.server, self.database.name
            self._events = follow(server, self._start, captures=lambda table: table.database == name)
        return [
            e for e in self._events if isinstance(e, RowsEvent) and e.table.id == table.id and (not op or e.op == op)
        ]

    def encode(self, rows: RowsEvent, table: Table, settings: ValueOptions, *, keys: bool = False) -> EventRows:
        """Encode one rows event with the definition from its TABLE_MAP event."""
        mapped = Table(table.id, with_float_digits(rows.table.columns, table.columns), table.key)
        codec: TableCodec = TableCodec(mapped, "topic", CodecOptions(settings))
        return codec.encoders[rows.op](rows.data, rows.start, rows.stop, EVENT_ENVELOPE, keys=keys)


def row_of(value: bytes) -> bytes:
    """Return the ``after`` object of an envelope."""
    assert value.startswith(_AFTER)
    return value[len(_AFTER) : value.rindex(_SOURCE)]
