"""``source`` and the other parts of an envelope that surround ``before`` and ``after``.

Fields, types and values are those of Debezium 3.6's JSON without schemas:
``{"before":…,"after":…,"source":{…},"transaction":null,"op":"c","ts_ms":…,"ts_us":…,"ts_ns":…}``.
Rows get their ``source`` as JSON text, formatted once per split or rows event; other records get it as a struct. Both
take the order of the fields from ``SOURCE_SCHEMA``.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any, Final

from tailrace.producer.model.binlog_events import RowsEvent, TransactionBegin, TransactionCommit, gtid_of
from tailrace.producer.model.codec import EventEnvelope, SnapshotEnvelope
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.types.text import json_string
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.envelope.schemas import SOURCE_SCHEMA
from tailrace.schemas.rowkind import Op

VERSION: Final = "tailrace-0.1.0"
"""The field ``source.version``."""
CONNECTOR: Final = "mysql"
"""The connector of MySQL; another member of the family has its own."""

_FIELDS: Final = [field.name for field in SOURCE_SCHEMA.fields]
_CLOCK_STEP_US: Final = 200
"""Greatest age of the processing time of a change: rows events arrive every few microseconds."""
_ROW: Final = '"row":'

# Skips the generated __new__ of a named tuple, which costs as much as the rest of the method.
_new_tuple: Final = tuple.__new__


def source_struct(
    prefix: str,
    *,
    database: str,
    table: str | None,
    ts_us: int,
    file: str,
    pos: int,
    snapshot: bool = False,
    server_id: int = 0,
    gtid: str = "",
    connector: str = CONNECTOR,
) -> Struct:
    """Return ``source`` of a record that is not a row."""
    values = _constants(prefix, database, table, "true" if snapshot else "false", connector) | {
        "ts_ms": ts_us // 1000,
        "ts_us": ts_us,
        "ts_ns": ts_us * 1000,
        "server_id": server_id,
        "gtid": gtid_of(gtid),
        "file": file,
        "pos": pos,
        "row": 0,
        "thread": None,
        "query": None,
    }
    return {name: values[name] for name in _FIELDS}


def source_time_us(event: RowsEvent | TransactionCommit, begin: TransactionBegin | None) -> int:
    """Return the time of a change in µs: of the original commit if the binlog has it, else the second of the event."""
    return (begin.commit_ts_us if begin is not None else 0) or event.ts * 1_000_000


class SourceInfo:
    """``source`` of the rows of one table."""

    __slots__ = (
        "_after_row",
        "_before_row",
        "_begin",
        "_clock",
        "_clock_us",
        "_connector",
        "_event_head",
        "_head",
        "_middle",
        "_prefix",
        "_table",
        "_thread",
        "_ts",
    )

    def __init__(self, prefix: str, table: TableId, connector: str = CONNECTOR) -> None:
        self._prefix = prefix
        self._connector = connector
        self._table = table
        template = self._template("false")
        row_at = template.index(f"{_ROW}%s") + len(_ROW)
        self._before_row, self._after_row = template[:row_at], template[row_at + len("%s") :]
        self._event_head = self._before_row.removesuffix(f"%s,{_ROW}")
        assert self._event_head.endswith('"pos":'), "source.pos is not the field before row"
        self._begin: TransactionBegin | None = None
        self._thread: int | None = -1
        self._ts = self._clock_us = 0
        self._head = self._middle = self._clock = b""

    @property
    def constants(self) -> Mapping[str, str | int | None]:
        """Return the fields that all changes of the table share, without the query of their statements."""
        return {**_constants(self._prefix, *self._table, "false", self._connector), "query": None}

    def snapshot_envelope(
        self,
        position: Mapping[str, Any],
        *,
        read_at_us: int,
        now_us: int | None = None,
        incremental: bool = False,
        op: Op = Op.READ,
    ) -> SnapshotEnvelope:
        """Return the envelope of the rows of a split.

        ``position`` is the JSON of the offset of the rows, ``read_at_us`` is the server's clock, ``now_us`` ours.
        """
        now = time_ns() // 1000 if now_us is None else now_us
        times = (read_at_us // 1000, read_at_us, read_at_us * 1000)
        values = (*times, 0, "null", json_string(position["file"]), position["pos"], 0, "null", "null")
        source = self._template("incremental" if incremental else "true") % values
        return SnapshotEnvelope(f'{source},"transaction":null,"op":"{op}{_processed(now)}'.encode())

    def event_envelope(
        self,
        *,
        ts_us: int,
        server_id: int,
        gtid: str,
        file: str,
        pos: int,
        thread: int | None = None,
        query: str | None = None,
        now_us: int | None = None,
        first_row: int = 0,
    ) -> EventEnvelope:
        """Return the envelope of the rows of an event; ``gtid`` may be no GTID (printed as null)."""
        now = time_ns() // 1000 if now_us is None else now_us
        gtid_json = f'"{gtid}"' if gtid_of(gtid) else "null"
        before_row = self._before_row % (ts_us // 1000, ts_us, ts_us * 1000, server_id, gtid_json, f'"{file}"', pos)
        before_op = self._before_op(thread, query)
        return EventEnvelope(before_row.encode(), before_op.encode(), _processed(now).encode(), first_row)

    def rows_event_envelope(
        self, rows: RowsEvent, begin: TransactionBegin | None, *, query: bool = False
    ) -> EventEnvelope:
        """Return the envelope of a rows event in its transaction; ``query`` is include.query.

        The events of a transaction share all but their position, which is formatted for each of them.
        """
        if begin is None or (query and rows.query is not None):
            return self.event_envelope(
                ts_us=source_time_us(rows, begin),
                server_id=rows.server_id,
                gtid=begin.gtid if begin is not None else "",
                file=rows.file,
                pos=rows.pos,
                thread=begin.thread if begin is not None else None,
                query=rows.query if query else None,
            )
        if begin is not self._begin or rows.ts != self._ts:
            self._enter(begin, rows)
        now = time_ns() // 1000
        if not 0 <= now - self._clock_us < _CLOCK_STEP_US:
            self._clock_us = now
            self._clock = _processed(now).encode()
        before_row = b'%b%d,"row":' % (self._head, rows.pos)
        return _new_tuple(EventEnvelope, (before_row, self._middle, self._clock, 0))

    def _enter(self, begin: TransactionBegin, rows: RowsEvent) -> None:
        """Format what the events of a transaction share."""
        self._begin, self._ts = begin, rows.ts
        ts_us = begin.commit_ts_us or rows.ts * 1_000_000
        gtid_json = f'"{begin.gtid}"' if gtid_of(begin.gtid) else "null"
        values = (ts_us // 1000, ts_us, ts_us * 1000, rows.server_id, gtid_json, f'"{rows.file}"')
        self._head = (self._event_head % values).encode()
        if self._clock_us < ts_us:
            self._clock_us = 0  # a change is not processed before its commit
        if begin.thread != self._thread:
            self._thread = begin.thread
            self._middle = self._before_op(begin.thread, None).encode()

    def _before_op(self, thread: int | None, query: str | None) -> str:
        thread_json = "null" if thread is None else thread
        query_json = "null" if query is None else json_string(query)
        return f'{self._after_row % (thread_json, query_json)},"transaction":null,"op":"'

    def _template(self, snapshot: str) -> str:
        """Return ``source`` as a format of its other fields, in their order."""
        constants = _constants(self._prefix, *self._table, snapshot, self._connector)
        members = (f'"{name}":{_json(constants[name]) if name in constants else "%s"}' for name in _FIELDS)
        return f',"source":{{{",".join(members)}}}'


def _constants(
    prefix: str, database: str, table: str | None, snapshot: str, connector: str
) -> dict[str, str | int | None]:
    """Return the fields that have one value for all records of a table."""
    return {
        "version": VERSION,
        "connector": connector,
        "name": prefix,
        "snapshot": snapshot,
        "db": database,
        "sequence": None,
        "table": table,
    }


def _json(value: str | int | None) -> str:
    return "null" if value is None else json_string(str(value)).replace("%", "%%")


def _processed(now_us: int) -> str:
    """Return the end of an envelope: the producer's clock in three units."""
    return f'","ts_ms":{now_us // 1000},"ts_us":{now_us},"ts_ns":{now_us * 1000}}}'
