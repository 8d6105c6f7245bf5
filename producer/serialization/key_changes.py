"""Makes the records of updates that change the key of a row, for both loops."""

from __future__ import annotations

from collections.abc import Callable

from tailrace.producer.model.codec import EventEnvelope, KeyChange
from tailrace.producer.serialization.envelope_frame import EnvelopeFrame
from tailrace.schemas.rowkind import Op

Pair = tuple[bytes, bytes]
"""Of the old and the new row."""


class KeyChangeFactory:
    """Of one table version; ``print_header`` prints the key struct of a plain JSON key."""

    def __init__(self, frame: EnvelopeFrame, print_header: Callable[[bytes], bytes]) -> None:
        self._frame = frame
        self._print_header = print_header
        self._ends: tuple[EventEnvelope, Pair, Pair] | None = None
        """The envelope of the last record, with what surrounds the row numbers of its delete and its create."""

    def record(self, rows: Pair, keys: Pair, plain_keys: Pair, envelope: EventEnvelope, row: int) -> KeyChange:
        """Return the record; ``plain_keys`` are the keys in JSON without schema."""
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
