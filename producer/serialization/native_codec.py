"""Encodes rows by the compiled extension, and what it declines by Python. Made only if the extension is used."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from tailrace.producer.model.codec import (
    EventEnvelope,
    EventRows,
    KeyReader,
    KeyTuple,
    KeyValue,
    RowKeys,
    RowsEncoder,
    SnapshotRows,
)
from tailrace.producer.native.loader import codec
from tailrace.producer.serialization.envelope_frame import Constants, EnvelopeFrame
from tailrace.producer.serialization.plain_codec import END_OF_ROWS, HEADER, WHOLE_PACKET, PlainCodec
from tailrace.producer.serialization.row_plan import RowPlan, RowPlans
from tailrace.schemas.rowkind import Op

if TYPE_CHECKING:
    from tailrace.producer.native.codec import ImageEncoder, PacketEncoder, Template


class NativeCodec:
    """The compiled loops of one table version; ``python`` encodes what they decline.

    Each is made at its first use: a codec of the binlog alone needs no encoder of packets.
    """

    def __init__(
        self,
        plans: RowPlans,
        frame: EnvelopeFrame,
        python: PlainCodec,
        *,
        tombstones: bool,
        skip_unchanged: bool,
    ) -> None:
        self._plans = plans
        self._frame = frame
        self._python = python
        self._avro = plans.row_image.columns[0].avro
        self._tombstones = tombstones
        # Rows that are written otherwise than as plain JSON are compared by Python.
        self._compares_rows = plans.plain_image is None
        self._skip_unchanged = skip_unchanged
        self._packets: PacketEncoder | None = None
        self._images: dict[Op, ImageEncoder | None] = {}

    @property
    def packets(self) -> PacketEncoder:
        if self._packets is None:
            self._packets = codec.PacketEncoder(self._plans.result_set, self._frame.before_insert)
        return self._packets

    def snapshot(self, data: memoryview, start: int, suffix: bytes) -> SnapshotRows:
        """Encode the complete packets from an offset on; Python encodes the rows that are declined, one at a time."""
        records = codec.Records()  # all of them have a value
        checksum, at, copy = 0, start, b""
        while True:
            at, added, declined = self.packets.encode(data, at, len(data), suffix, records)
            checksum += added
            if not declined:
                return SnapshotRows(records, checksum, at, finished=False)  # type: ignore[arg-type]
            is_whole = declined - HEADER == WHOLE_PACKET
            if declined > HEADER and not is_whole and data[at + HEADER] == END_OF_ROWS:
                return SnapshotRows(records, checksum, at + declined, finished=True)  # type: ignore[arg-type]
            # Of everything, although one row is read: a row that does not fit ends in the same error.
            copy = copy or bytes(data[start:])
            stop = _end_of_row(data, at) if is_whole else at + declined
            rows, added, read, finished = self._python.packets(copy, at - start, stop - start, suffix)
            records.extend(rows)
            checksum += added
            is_complete = start + read > at
            at = start + read
            if finished or not is_complete:
                return SnapshotRows(records, checksum, at, finished)  # type: ignore[arg-type]

    def encoder(self, op: Op) -> RowsEncoder:
        event, new, images = self._frame.event, tuple.__new__, self._images
        python, skips, tombstones = self._python.encoder(op), self._skips(op), self._writes_tombstones(op)

        def encode(data: bytes, start: int, end: int, envelope: EventEnvelope, *, keys: bool = False) -> EventRows:
            native = images[op] if op in images else self.images(op)
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

    def key_reader(self, op: Op) -> KeyReader:
        images, python = self._images, self._python.key_reader(op)

        def read(data: bytes, start: int, end: int) -> RowKeys | None:
            native = images[op] if op in images else self.images(op)
            keys = native.raw_keys(data, start, end) if native is not None else None
            return keys if keys is not None else python(data, start, end)

        return read

    def template(self, source: Constants, op: Op) -> tuple[Template, Template]:
        """Return what precedes and what follows the row number in the records of an operation."""
        before, after = self._frame.event_template(source, op)
        return codec.Template(before, avro=self._avro), codec.Template(after, avro=self._avro)

    def images(self, op: Op) -> ImageEncoder | None:
        """Return the encoder of the row images of an operation; None if Python must compare the rows."""
        if op not in self._images:
            compares = self._compares_rows or not self._skips(op)
            self._images[op] = self._new_images(op) if compares else None
        return self._images[op]

    def _skips(self, op: Op) -> bool:
        return self._skip_unchanged and op is Op.UPDATE

    def _writes_tombstones(self, op: Op) -> bool:
        return self._tombstones and op is Op.DELETE

    def _new_images(self, op: Op) -> ImageEncoder:
        frame, plan = self._frame, self._plans.row_image
        return codec.ImageEncoder(
            codec.Rows(plan),
            _raw_key(plan),
            frame.before_insert if op is Op.CREATE else frame.before_update,
            {Op.UPDATE: frame.between_rows, Op.DELETE: frame.after_delete}.get(op, b""),
            self._python.key_change if op is Op.UPDATE else None,
            pairs=op is Op.UPDATE,
            deletes=op is Op.DELETE,
            tombstones=self._writes_tombstones(op),
            skips=self._skips(op),
            avro=self._avro,
        )


def _raw_key(plan: RowPlan) -> list[tuple[int, Callable[[bytes], KeyValue] | None]]:
    """Return the columns of the raw key, each with the function that decodes its value; None: an integer."""
    return [
        (part.column, None if plan.columns[part.column].fast.kind == "integer" else read)
        for part, read in zip(plan.key, plan.raw_key, strict=True)
    ]


def _end_of_row(data: memoryview, at: int) -> int:
    """Return the offset after a row of several packets; the end of the data if it is not complete."""
    while at + HEADER <= len(data):
        size = int.from_bytes(data[at : at + 3], "little")
        at += HEADER + size
        if size < WHOLE_PACKET:
            break
    return min(at, len(data))
