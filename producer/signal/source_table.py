"""The signal table at the source: what is inserted there is a signal, met in the log."""

from __future__ import annotations

import orjson

from producer.binlog.events import MappedTable, Rows
from producer.codec.compile import compile_table
from producer.codec.contract import EventStamp, TableCodec
from producer.database.table import Table, TableId
from producer.signal.request import Signal, SignalFault, from_row
from producer.types.settings import ValueSettings
from schemas.errors import SchemaError

_STAMP = EventStamp(b',"row":', b',"op":"', b'"}')


class SourceTable:
    """Reads the rows of one table, whatever its key, in the plain JSON form."""

    def __init__(self, table: TableId) -> None:
        self.id = table
        self._version: tuple[MappedTable, TableCodec] | None = None

    def signals(self, event: Rows) -> list[Signal | SignalFault]:
        """Return the signals of an insert into the table."""
        try:
            rows = self._codec(event.table).inserts(event.data, event.start, event.stop, _STAMP)
        except SchemaError as error:
            return [SignalFault(f"{self.id}: {error}")]
        return [_signal(record[1]) for record in rows.records if isinstance(record, tuple) and record[1] is not None]

    def _codec(self, mapped: MappedTable) -> TableCodec:
        if self._version is None or self._version[0] is not mapped:
            columns = tuple(mapped.columns)
            version = Table(mapped.id, columns, (columns[0].name,))
            self._version = mapped, compile_table(version, str(mapped.id), ValueSettings())
        return self._version[1]


def _signal(value: bytes) -> Signal | SignalFault:
    try:
        return from_row(list(orjson.loads(value)["after"].values()))
    except SignalFault as fault:
        return fault
