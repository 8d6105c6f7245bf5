"""Makes the row and the key of a record from the bytes of the values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from tailrace.producer.model.codec import KeyTuple, KeyValue
from tailrace.producer.mysql.types.text import needs_escape
from tailrace.producer.serialization.form import Piece, inside_string, json_text
from tailrace.producer.serialization.row_plan import RowPlan

MOST_PATTERNS: Final = 256
"""Bound of what is kept by the NULLs of a row; all of it is dropped then."""

Values = list[bytes]
"""The bytes of the values of a row that are not NULL."""


class _Pattern(NamedTuple):
    """How the rows are written whose NULLs are the same. ``at`` is the index of a value among those that are there."""

    converted: list[tuple[int, Piece]]
    """The values that a function makes a piece of; the other ones are copied."""
    texts: tuple[int, ...]
    """The values that are copied into a JSON string, and perhaps escaped."""
    dropped: tuple[int, ...]
    """The values that are not published, the last one first."""
    row: bytes
    """The format of the row, with NULLs."""
    key: bytes
    key_parts: list[tuple[int, Piece | None]]
    raw_key: list[tuple[int, Callable[[bytes], KeyValue]]]
    """-1: NULL."""


class RowWriter:
    """Makes the row and the key from the bytes of the values."""

    def __init__(self, plan: RowPlan) -> None:
        self._plan = plan
        self._patterns: dict[int, _Pattern] = {}

    def write(self, values: Values, nulls: int) -> tuple[bytes, bytes]:
        """Return row and key; ``nulls`` has the bits of the columns that are NULL."""
        converted, texts, dropped, row, key, key_parts, _ = self._patterns.get(nulls) or self._pattern(nulls)
        pieces = values[:]
        for at, piece in converted:
            pieces[at] = piece(values[at])
        # One search for what is escaped costs less than one in each text.
        if texts and needs_escape(b"".join([values[at] for at in texts])):
            for at in texts:
                pieces[at] = inside_string(values[at])
        of_key = [pieces[at] if piece is None else piece(values[at]) for at, piece in key_parts]
        for at in dropped:
            del pieces[at]
        return row % tuple(pieces), key % tuple(of_key)

    def raw_key(self, values: Values, nulls: int) -> KeyTuple:
        pattern = self._patterns.get(nulls) or self._pattern(nulls)
        return tuple([None if at < 0 else read(values[at]) for at, read in pattern.raw_key])

    def check(self, values: Values, nulls: int) -> None:
        """Raise the error of the first of these values that has one: they precede a fault of their row."""
        for at, piece in self._pattern(nulls).converted:
            if at < len(values):
                piece(values[at])

    def _pattern(self, nulls: int) -> _Pattern:
        plan = self._plan
        converted: list[tuple[int, Piece]] = []
        texts: list[int] = []
        dropped: list[int] = []
        places: list[int] = []
        row = b""
        present = 0
        for i, column in enumerate(plan.columns):
            is_null = nulls >> i & 1
            places.append(-1 if is_null else present)
            if column.call is None:
                if not is_null:
                    dropped.insert(0, present)
            elif is_null:
                row += _constant(column.head + column.null)
            else:
                row += _constant(column.head) + _format(column.call)
                if column.call is json_text:
                    texts.append(present)
                elif column.call is not bytes:
                    converted.append((present, column.call))
            present += not is_null
        key, parts = _constant(plan.key_start), []
        for head, column_at, piece, null in plan.key:
            key += _constant(head)
            of_row = plan.columns[column_at]
            if places[column_at] < 0:
                key += _constant(of_row.null if piece is None else null)
            else:
                key += b"%b" if piece is not None or of_row.call is None else _format(of_row.call)
                parts.append((places[column_at], piece))
        raw = [(places[part.column], read) for part, read in zip(plan.key, plan.raw_key, strict=True)]
        pattern = _Pattern(
            converted,
            tuple(texts),
            tuple(dropped),
            row + _constant(plan.row_end),
            key + _constant(plan.key_end),
            parts,
            raw,
        )
        if len(self._patterns) >= MOST_PATTERNS:
            self._patterns.clear()
        self._patterns[nulls] = pattern
        return pattern


def _format(piece: Piece) -> bytes:
    return b'"%b"' if piece is json_text else b"%b"


def _constant(data: bytes) -> bytes:
    return data.replace(b"%", b"%%")
