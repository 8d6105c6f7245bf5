"""The constant parts of an envelope: everything but ``before``, ``after``, the row number and ``op``.

Field order, types and values are those of Debezium 3.6's JSON without schemas:
``{"before":…,"after":…,"source":{…},"transaction":null,"op":"c","ts_ms":…,"ts_us":…,"ts_ns":…}``.
One SourceBlock is made for each table; its methods run once for each split or rows event and do nothing but join text.
A statement that changes one row is one rows event: what a transaction's events share is joined once for all of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import time_ns
from typing import Any, Final

from tailrace.producer.model.binlog_events import RowsEvent, TransactionBegin
from tailrace.producer.model.codec import EventEnvelope, SnapshotEnvelope
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.types.text import json_string

_CLOCK_STEP_US: Final = 200
"""How far the processing time of a change may lie behind the clock: rows events come every few microseconds."""

VERSION: Final = "tailrace-0.1.0"
"""The field ``source.version``."""

CONNECTOR: Final = "mysql"


# Past the generated __new__ of a named tuple, which costs as much as the rest.
_new_tuple: Final = tuple.__new__


def _text(value: str) -> str:
    """Return a JSON string as Jackson writes it: characters beyond U+FFFF as two escapes."""
    return json_string(value)


def _processed(now_us: int) -> str:
    """Return the end of an envelope: the producer's clock, one instant in three units."""
    return f'","ts_ms":{now_us // 1000},"ts_us":{now_us},"ts_ns":{now_us * 1000}}}'


def source_time_us(rows: RowsEvent, begin: TransactionBegin | None) -> int:
    """Return when a change was made: the original commit in µs where the log has it, else the header's second."""
    return (begin.commit_ts_us if begin is not None else 0) or rows.ts * 1_000_000


class SourceInfo:
    """What is constant for the records of one table under one prefix."""

    __slots__ = (
        "_after_ts_ms",
        "_after_ts_ns",
        "_begin",
        "_clock",
        "_clock_us",
        "_head",
        "_incremental",
        "_middle",
        "_snapshot",
        "_start",
        "_ts",
    )

    def __init__(self, prefix: str, table: TableId) -> None:
        self._start = f',"source":{{"version":"{VERSION}","connector":"{CONNECTOR}","name":{_text(prefix)},"ts_ms":'
        block = f'"db":{_text(table.database)},"sequence":null,"ts_us":'
        self._after_ts_ms = f',"snapshot":"false",{block}'
        self._snapshot = f',"snapshot":"true",{block}'
        self._incremental = f',"snapshot":"incremental",{block}'
        self._after_ts_ns = f',"table":{_text(table.table)},"server_id":'
        self._begin: TransactionBegin | None = None
        self._ts = self._clock_us = 0
        self._head = self._middle = self._clock = b""

    def snapshot_stamp(
        self, position: Mapping[str, Any], *, read_at_us: int, now_us: int | None = None, incremental: bool = False
    ) -> SnapshotEnvelope:
        """Return what follows ``after`` in each row of a split; ``incremental`` of a table that is read again.

        ``position`` is the JSON form of the offset of the rows, ``read_at_us`` the server's clock, ``now_us`` ours.
        """
        now = time_ns() // 1000 if now_us is None else now_us
        text = (
            f"{self._start}{read_at_us // 1000}{self._incremental if incremental else self._snapshot}{read_at_us}"
            f',"ts_ns":{read_at_us * 1000}{self._after_ts_ns}0,'
            f'"gtid":null,"file":{_text(position["file"])},"pos":{position["pos"]},"row":0,"thread":null,"query":null}},'
            f'"transaction":null,"op":"r{_processed(now)}'
        )
        return SnapshotEnvelope(text.encode())

    def event(
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
        """Return the parts around row number and op for one rows event; ``gtid`` may be empty (printed as null)."""
        now = time_ns() // 1000 if now_us is None else now_us
        gtid_json = f'"{gtid}"' if gtid else "null"
        head = (
            f"{self._start}{ts_us // 1000}{self._after_ts_ms}{ts_us}"
            f',"ts_ns":{ts_us * 1000}{self._after_ts_ns}{server_id},"gtid":{gtid_json}'
            f',"file":"{file}","pos":{pos},"row":'
        )
        thread_json = "null" if thread is None else thread
        query_json = "null" if query is None else _text(query)
        middle = f',"thread":{thread_json},"query":{query_json}}},"transaction":null,"op":"'
        return EventEnvelope(head.encode(), middle.encode(), _processed(now).encode(), first_row)

    def rows_event(self, rows: RowsEvent, begin: TransactionBegin | None, *, query: bool = False) -> EventEnvelope:
        """Return ``event`` for a rows event and the transaction it is in; ``query`` is include.query."""
        if begin is None or (query and rows.query is not None):
            return self._rows_event(rows, begin, rows.query if query else None)
        if begin is not self._begin or rows.ts != self._ts:
            stamp = self._rows_event(rows, begin, None)
            self._begin, self._ts = begin, rows.ts
            self._head = stamp.head[: stamp.head.rindex(b":", 0, -len(b',"row":')) + 1]
            self._middle = stamp.middle
            return stamp
        now = time_ns() // 1000
        if not 0 <= now - self._clock_us < _CLOCK_STEP_US:
            self._clock_us = now
            self._clock = _processed(now).encode()
        head = b'%b%d,"row":' % (self._head, rows.pos)
        return _new_tuple(EventEnvelope, (head, self._middle, self._clock, 0))

    def _rows_event(self, rows: RowsEvent, begin: TransactionBegin | None, query: str | None) -> EventEnvelope:
        return self.event(
            ts_us=source_time_us(rows, begin),
            server_id=rows.server_id,
            gtid=begin.gtid if begin is not None else "",
            file=rows.file,
            pos=rows.pos,
            thread=begin.thread if begin is not None else None,
            query=query,
        )


def context_headers(prefix: str, *, run_id: str, task_id: str = "0", enabled: bool = True) -> list[tuple[str, bytes]]:
    """Return Debezium's ``__debezium.context.*`` headers, which row and schema change records carry; [] when off.

    ``run_id`` is made once for each start of the process. The list is equal for every record: make it once.
    """
    if not enabled:
        return []
    return [
        ("__debezium.context.connectorLogicalName", prefix.encode()),
        ("__debezium.context.taskId", task_id.encode()),
        ("__debezium.context.connectorName", CONNECTOR.encode()),
        ("__debezium.context.runId", run_id.encode()),
    ]
