"""Makes the records of updates that change the key of a row, for generated Python and for the compiled extension."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.producer.model.codec import EventEnvelope, KeyChange
from tailrace.producer.serialization.envelope_frame import EnvelopeFrame
from tailrace.producer.serialization.row_image_decoder import RowImageDecoder
from tailrace.schemas.rowkind import Op


class KeyChangeFactory:
    """Of one table version.

    ``print_header`` prints the key struct of a plain JSON key; ``plain`` decodes the images to plain JSON, None if the
    keys and rows are plain JSON themselves.
    """

    def __init__(
        self, frame: EnvelopeFrame, plain: RowImageDecoder | None, print_header: Callable[[bytes], bytes]
    ) -> None:
        self._frame = frame
        self._plain = plain
        self._print_header = print_header
        self._ends: tuple[EventEnvelope, tuple[bytes, bytes], tuple[bytes, bytes]] | None = None
        """The envelope of the last record, with what surrounds the row numbers of its delete and its create."""

    def of_text(
        self,
        rows: tuple[str, str],
        keys: tuple[str, str],
        envelope: EventEnvelope,
        row: int,
        images: tuple[bytes, str, int, int] | None,
    ) -> KeyChange:
        """Return the record of rows and keys as text of one character per byte.

        ``images``: the event, its text, and the offsets of both images; needed to decode them to plain JSON.
        """
        old, new = (key.encode("latin-1") for key in keys)
        plain_old, plain_new = old, new
        if self._plain is not None:
            assert images is not None
            event, text, first, second = images
            plain_old, plain_new = (self._plain_key(event, text, at) for at in (first, second))
        before, after = (each.encode("latin-1") for each in rows)
        return self._record((before, after), (old, new), (plain_old, plain_new), envelope, row)

    def of_bytes(
        self,
        rows: tuple[bytes, bytes],
        keys: tuple[bytes, bytes],
        envelope: EventEnvelope,
        row: int,
        images: tuple[bytes, int, int, int],
    ) -> KeyChange:
        """Return the record of rows and keys; ``images``: the event, the offsets of both images and of their end."""
        plain = keys
        if self._plain is not None:
            event, first, second, end = images
            pair = event[first:end]
            text = str(pair, "latin-1")
            plain = self._plain_key(pair, text, 0), self._plain_key(pair, text, second - first)
        return self._record(rows, keys, plain, envelope, row)

    def _plain_key(self, event: bytes, text: str, at: int) -> bytes:
        assert self._plain is not None
        return self._plain.decode(event, text, at)[1].encode("latin-1")

    def _record(
        self,
        rows: tuple[bytes, bytes],
        keys: tuple[bytes, bytes],
        plain_keys: tuple[bytes, bytes],
        envelope: EventEnvelope,
        row: int,
    ) -> KeyChange:
        frame, print_header = self._frame, self._print_header
        number = frame.row_number(row)
        ends = self._ends
        if ends is None or ends[0] is not envelope:
            ends = self._ends = envelope, frame.event(envelope, Op.DELETE), frame.event(envelope, Op.CREATE)
        _, delete, create = ends
        return KeyChange(
            old_key=keys[0],
            new_key=keys[1],
            delete=b"".join((frame.before_update, rows[0], frame.after_delete, delete[0], number, delete[1])),
            create=b"".join((frame.before_insert, rows[1], create[0], number, create[1])),
            new_key_header=print_header(plain_keys[1]),
            old_key_header=print_header(plain_keys[0]),
        )
