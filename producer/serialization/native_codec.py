"""Encodes rows by the compiled extension, and what it declines by generated Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.producer.model.codec import (
    EventEnvelope,
    EventRows,
    KeyReader,
    KeyTuple,
    RowKeys,
    RowsEncoder,
    SnapshotRows,
)
from tailrace.producer.serialization.envelope_frame import Constants, EnvelopeFrame
from tailrace.producer.serialization.key_changes import KeyChangeFactory
from tailrace.producer.serialization.native_columns import (
    member_name,
    raw_key_columns,
    result_set_columns,
    row_image_columns,
)
from tailrace.producer.serialization.packet_decoder import WHOLE_PACKET, PacketDecoder
from tailrace.producer.serialization.record_format import RecordFormat
from tailrace.producer.serialization.row_layout import RowLayout
from tailrace.schemas.rowkind import Op

if TYPE_CHECKING:
    from tailrace.producer.native.codec import ImageEncoder, PacketEncoder, Template

_HEADER: Final = 4
_EOF: Final = 0xFE


def packet_encoder(layout: RowLayout, record_format: RecordFormat, frame: EnvelopeFrame) -> PacketEncoder | None:
    """Return the encoder of row packets, if the extension is used; None if it cannot encode the table."""
    columns = result_set_columns(layout, record_format)
    if columns is None:
        return None
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    return codec.PacketEncoder(columns, *_key_and_ends(layout, record_format), frame.before_insert)


def _key_and_ends(
    layout: RowLayout, record_format: RecordFormat
) -> tuple[list[tuple[bytes, int]], bytes, bytes, bytes]:
    """Return the columns of the key with what precedes them, both ends of the key, and the end of the row."""
    avro = record_format.value == "avro"
    names = layout.by_slot([field.name for field in record_format.columns])
    key = [
        (b"" if avro else (b"," if at else b"") + member_name(names[i]), i)
        for at, i in enumerate(layout.projection.key)
    ]
    before, after = (text.encode("latin-1") for text in record_format.key_ends())
    return key, before, after, b"" if avro else b"}"


class EventEncoders:
    """Wraps the encoders of rows events: the extension encodes the events that it does not decline."""

    def __init__(
        self,
        layout: RowLayout,
        record_format: RecordFormat,
        frame: EnvelopeFrame,
        changes: KeyChangeFactory,
        *,
        tombstones: bool,
        skip_unchanged: bool,
    ) -> None:
        self._layout = layout
        self._changes = changes
        self._format = record_format
        self._frame = frame
        self._tombstones = tombstones
        self._skips = skip_unchanged
        self._built: dict[Op, ImageEncoder | None] = {}

    def wrap(self, op: Op, python: RowsEncoder) -> RowsEncoder:
        """Return the encoder of an operation; ``python`` encodes declined events."""
        event, new = self._frame.event, tuple.__new__
        skips, tombstones = self._options_of(op)
        built = self._built

        def encode(data: bytes, start: int, end: int, envelope: EventEnvelope, *, keys: bool = False) -> EventRows:
            native = built[op] if op in built else self.encoder(op)
            if native is None or (keys and skips):
                return python(data, start, end, envelope, keys=keys)
            first_row = envelope.first_row
            raw_keys: list[tuple[KeyTuple | None, KeyTuple | None]] | None = [] if keys else None
            found = native.encode(data, start, end, *event(envelope, op), first_row, raw_keys, envelope)
            if found is None:
                return python(data, start, end, envelope, keys=keys)
            count = found[1] - first_row
            if raw_keys is None:
                return new(EventRows, (found[0], (), (), count))
            rows = [row for row in range(count) for _ in (0, 1)] if tombstones else range(count)
            return new(EventRows, (found[0], rows, raw_keys, count))

        return encode

    def key_reader(self, op: Op, python: KeyReader) -> KeyReader:
        """Return the function that reads the raw keys of an operation's events; ``python`` reads declined events."""
        built = self._built

        def read(data: bytes, start: int, end: int) -> RowKeys | None:
            native = built[op] if op in built else self.encoder(op)
            keys = native.raw_keys(data, start, end) if native is not None else None
            return keys if keys is not None else python(data, start, end)

        return read

    def template(self, source: Constants, op: Op) -> tuple[Template, Template]:
        """Return what precedes and what follows the row number in the records of an operation."""
        from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

        avro = self._format.value == "avro"
        before, after = self._frame.event_template(source, op)
        return codec.Template(before, avro=avro), codec.Template(after, avro=avro)

    def _options_of(self, op: Op) -> tuple[bool, bool]:
        """Return whether an operation omits unchanged rows, and whether it writes tombstones."""
        return self._skips and op is Op.UPDATE, self._tombstones and op is Op.DELETE

    def encoder(self, op: Op) -> ImageEncoder | None:
        """Return the compiled encoder of an operation, made for its first event; None if it cannot encode the table."""
        if op not in self._built:
            skips, tombstones = self._options_of(op)
            self._built[op] = self.build(op, skips=skips, tombstones=tombstones)
        return self._built[op]

    def build(self, op: Op, *, skips: bool, tombstones: bool) -> ImageEncoder | None:
        """Return the compiled encoder of an operation; None if it cannot encode the table."""
        if skips and not self._format.plain_rows:
            return None
        columns = row_image_columns(self._layout, self._format)
        if columns is None:
            return None
        from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

        frame = self._frame
        between = {Op.UPDATE: frame.between_rows, Op.DELETE: frame.after_delete}.get(op, b"")
        return codec.ImageEncoder(
            codec.Rows(columns, *_key_and_ends(self._layout, self._format)),
            raw_key_columns(self._layout, self._format, columns),
            frame.before_insert if op is Op.CREATE else frame.before_update,
            between,
            self._changes.of_bytes if op is Op.UPDATE else None,
            pairs=op is Op.UPDATE,
            deletes=op is Op.DELETE,
            tombstones=tombstones,
            skips=skips,
            avro=self._format.value == "avro",
        )


def encode_packets(
    encoder: PacketEncoder, python: PacketDecoder, data: memoryview, start: int, suffix: bytes
) -> SnapshotRows:
    """Encode the complete packets from an offset on; ``python`` encodes the rows that are declined, one at a time."""
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    records = codec.Records()  # all of them have a value
    checksum, at = 0, start
    copy, text = b"", ""
    while True:
        at, added, declined = encoder.encode(data, at, len(data), suffix, records)
        checksum += added
        if not declined:
            return SnapshotRows(records, checksum, at, finished=False)  # type: ignore[arg-type]
        is_whole = declined - _HEADER == WHOLE_PACKET
        if declined > _HEADER and not is_whole and data[at + _HEADER] == _EOF:
            return SnapshotRows(records, checksum, at + declined, finished=True)  # type: ignore[arg-type]
        if not copy:
            # Of everything, although one row is read: a row that does not fit ends in the same error.
            copy = bytes(data[start:])
            text = str(copy, "latin-1")
        stop = _end_of_row(data, at) if is_whole else at + declined
        rows, added, read, finished = python(copy, text, at - start, stop - start, suffix)
        records.extend(rows)
        checksum += added
        is_complete = start + read > at
        at = start + read
        if finished or not is_complete:
            return SnapshotRows(records, checksum, at, finished)  # type: ignore[arg-type]


def _end_of_row(data: memoryview, at: int) -> int:
    """Return the offset after a row of several packets; the end of the data if it is not complete."""
    while at + _HEADER <= len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        at += _HEADER + size
        if size < WHOLE_PACKET:
            break
    return min(at, len(data))
