"""Reads the raw keys of row images alone, by generated Python: the values outside the key are passed over."""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.producer.model.codec import KeyReader, KeyTuple, RowKeys
from tailrace.producer.mysql.types.base import ColumnType, Expression
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.event_encoder import DECODE_ERRORS
from tailrace.producer.serialization.row_image_decoder import RowImageDecoder
from tailrace.runtime.errors import TailraceError
from tailrace.schemas.rowkind import Op


class _NoRow:
    """A ``RowWriter`` of rows that nobody reads."""

    def __init__(self, _builder: CodeBuilder) -> None:
        pass

    def null(self, i: int) -> None:
        """See ``RowWriter``."""

    def value(self, _i: int, _value: Expression) -> list[str]:
        """See ``RowWriter``."""
        return []

    def value_or_null(self, _i: int, _value: Expression) -> tuple[list[str], list[str]]:
        """See ``RowWriter``."""
        return [], ["pass"]

    def escapes(self) -> list[str]:
        """See ``RowWriter``."""
        return []

    def row(self) -> str:
        """See ``RowWriter``."""
        return "''"

    def key(self) -> str:
        """See ``RowWriter``."""
        return "''"


class PythonKeyReaders:
    """The key readers of one table version."""

    def __init__(self, types: Sequence[ColumnType], key: Sequence[int]) -> None:
        self._decoder = RowImageDecoder(types, key, _NoRow, raw_keys=True)

    def reader(self, op: Op) -> KeyReader:
        """Return the key reader of an operation."""
        pairs, deletes = op is Op.UPDATE, op is Op.DELETE

        def read(data: bytes, start: int, end: int) -> RowKeys | None:
            try:
                keys = self._read(data[start:end])
            except (*DECODE_ERRORS, TailraceError):
                return None  # the encoder raises the error
            if keys is None or (pairs and len(keys) % 2):
                return None
            if pairs:
                return list(zip(keys[::2], keys[1::2], strict=True))
            return [(key, None) if deletes else (None, key) for key in keys]

        return read

    def _read(self, event: bytes) -> list[KeyTuple | None] | None:
        """Return the key of each image; None if the last one ends behind the event."""
        text, decode, p = str(event, "latin-1"), self._decoder.decode, 0
        found = []
        while p < len(event):
            _, _, p, key = decode(event, text, p)
            found.append(key)
        return found if p == len(event) else None
