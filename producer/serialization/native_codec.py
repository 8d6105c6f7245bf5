"""Encodes the rows of a result set by the compiled extension, and what it declines by generated Python."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tailrace.producer.model.codec import SnapshotRows
from tailrace.producer.serialization.envelope_frame import EnvelopeFrame
from tailrace.producer.serialization.native_columns import member_name, result_set_columns
from tailrace.producer.serialization.packet_decoder import WHOLE_PACKET, PacketDecoder
from tailrace.producer.serialization.record_format import RecordFormat
from tailrace.producer.serialization.row_layout import RowLayout

if TYPE_CHECKING:
    from tailrace.producer.native.codec import PacketEncoder

_HEADER: Final = 4


def packet_encoder(layout: RowLayout, record_format: RecordFormat, frame: EnvelopeFrame) -> PacketEncoder | None:
    """Return the encoder of row packets, if the extension is used; None if it cannot encode the table."""
    columns = result_set_columns(layout, record_format)
    if columns is None:
        return None
    from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

    avro = record_format.value == "avro"
    names = layout.by_slot([field.name for field in record_format.columns])
    key = [
        (b"" if avro else (b"," if at else b"") + member_name(names[i]), i)
        for at, i in enumerate(layout.projection.key)
    ]
    before, after = (text.encode("latin-1") for text in record_format.key_ends())
    return codec.PacketEncoder(columns, key, before, after, b"" if avro else b"}", frame.before_insert)


def encode_packets(
    encoder: PacketEncoder, python: PacketDecoder, data: memoryview, start: int, suffix: bytes
) -> SnapshotRows:
    """Encode the complete packets from an offset on; ``python`` encodes the rows that are declined, one at a time."""
    records: list[tuple[bytes, bytes]] = []
    checksum, at = 0, start
    copy, text = b"", ""
    while True:
        at, added, declined = encoder.encode(data, at, len(data), suffix, records)
        checksum += added
        if not declined:
            return SnapshotRows(records, checksum, at, finished=False)
        if not copy:
            # Of everything, although one row is read: a row that does not fit ends in the same error.
            copy = bytes(data[start:])
            text = str(copy, "latin-1")
        is_whole = declined - _HEADER == WHOLE_PACKET
        stop = _end_of_row(data, at) if is_whole else at + declined
        rows, added, read, finished = python(copy, text, at - start, stop - start, suffix)
        records += rows
        checksum += added
        is_complete = start + read > at
        at = start + read
        if finished or not is_complete:
            return SnapshotRows(records, checksum, at, finished)


def _end_of_row(data: memoryview, at: int) -> int:
    """Return the offset after a row of several packets; the end of the data if it is not complete."""
    while at + _HEADER <= len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        at += _HEADER + size
        if size < WHOLE_PACKET:
            break
    return min(at, len(data))
