"""The source channel: each row inserted into the signal table is a signal, read from the binlog."""

from __future__ import annotations

import orjson

from tailrace.producer.config import ValuesConfig
from tailrace.producer.model.binlog_events import RowsEvent, TableVersion
from tailrace.producer.model.codec import EventEnvelope
from tailrace.producer.model.table import Table, TableId
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.producer.signals.signal import InvalidSignalError, Signal, from_row, read_signal

_ENVELOPE = EventEnvelope(b',"row":', b',"op":"', b'"}')


class SourceSignalChannel:
    """Decodes the rows of the signal table with a codec of its own. The table may have any key, or none."""

    def __init__(self, table: TableId) -> None:
        self.id = table
        self._cached: tuple[TableVersion, TableCodec] | None = None

    def signals(self, event: RowsEvent) -> list[Signal | InvalidSignalError]:
        """Return the signals of an insert event."""
        try:
            rows = self._codec(event.table).inserts(event.data, event.start, event.stop, _ENVELOPE)
        except Exception as error:  # noqa: BLE001 - whatever the table looks like, the stream continues
            return [InvalidSignalError(f"rows of {self.id} cannot be read ({type(error).__name__}: {error})")]
        return [
            read_signal(_from_record, record[1])
            for record in rows.records
            if isinstance(record, tuple) and record[1] is not None
        ]

    def _codec(self, version: TableVersion) -> TableCodec:
        if self._cached is None or self._cached[0] is not version:
            columns = tuple(version.columns)
            # The codec needs a key; the first column serves, since the key of the record is not used.
            table = Table(version.id, columns, (columns[0].name,))
            self._cached = version, TableCodec(table, str(version.id), CodecOptions(ValuesConfig().options))
        return self._cached[1]


def _from_record(value: bytes) -> Signal:
    return from_row(list(orjson.loads(value)["after"].values()))
