"""The signal table at the source: what is inserted there is a signal, met in the log."""

from __future__ import annotations

import orjson

from tailrace.producer.config import ValuesConfig
from tailrace.producer.model.binlog_events import RowsEvent, TableVersion
from tailrace.producer.model.codec import EventEnvelope
from tailrace.producer.model.table import Table, TableId
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.producer.signals.signal import InvalidSignalError, Signal, from_row
from tailrace.runtime.errors import SchemaError

_STAMP = EventEnvelope(b',"row":', b',"op":"', b'"}')


class SourceSignalChannel:
    """Reads the rows of one table, whatever its key, in the plain JSON form."""

    def __init__(self, table: TableId) -> None:
        self.id = table
        self._version: tuple[TableVersion, TableCodec] | None = None

    def signals(self, event: RowsEvent) -> list[Signal | InvalidSignalError]:
        """Return the signals of an insert into the table."""
        try:
            rows = self._codec(event.table).inserts(event.data, event.start, event.stop, _STAMP)
        except SchemaError as error:
            return [InvalidSignalError(f"{self.id}: {error}")]
        return [_signal(record[1]) for record in rows.records if isinstance(record, tuple) and record[1] is not None]

    def _codec(self, mapped: TableVersion) -> TableCodec:
        if self._version is None or self._version[0] is not mapped:
            columns = tuple(mapped.columns)
            version = Table(mapped.id, columns, (columns[0].name,))
            self._version = mapped, TableCodec(version, str(mapped.id), CodecOptions(ValuesConfig().options))
        return self._version[1]


def _signal(value: bytes) -> Signal | InvalidSignalError:
    try:
        return from_row(list(orjson.loads(value)["after"].values()))
    except InvalidSignalError as fault:
        return fault
