"""ENUM and SET: text of their labels; the binlog has ordinals and bit masks.

Ordinal 0 is the value the server stores for what is no label: the empty string. A SET prints its labels in the order of
the definition.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import ClassVar, Final

from tailrace.producer.model.table import Column, SourceType
from tailrace.producer.mysql.types.base import (
    BinlogColumn,
    BinlogOption,
    BinlogType,
    Cache,
    CatalogRow,
    ColumnType,
    Fast,
    Layout,
    Value,
    ValueKind,
)
from tailrace.producer.mysql.types.text import json_string
from tailrace.schemas.connect import ConnectSchema


class _Labelled(ColumnType):
    is_text = True
    has_labels = True

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        labels = _declared_labels(row.column_type)
        return Column(row.name, row.data_type, row.nullable, charset=row.charset or "binary", enum_values=labels)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        data_type, labels = column.type.data_type, column.labels
        return Column(column.name, data_type, column.nullable, charset=column.charset, enum_values=labels)

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        return SourceType(column.data_type.upper(), cls.known_length(column), None)

    def _schema(self, name: str) -> ConnectSchema:
        labels = in_catalog(self.column.enum_values)
        allowed = ",".join(label.replace("\\", "\\\\").replace(",", "\\,") for label in labels)
        return ConnectSchema("string", name=name, version=1, parameters=(("allowed", allowed),))

    def from_text(self) -> Value:
        return Value(ValueKind.TEXT)

    def raw_key(self) -> Callable[[bytes], int]:
        return lambda data: int.from_bytes(data, "little")

    def fast_text(self) -> Fast:
        return Fast("text")


_ESCAPES: Final = {"0": "\0", "n": "\n", "r": "\r"}


def in_catalog(labels: Sequence[str]) -> tuple[str, ...]:
    """Return labels as the catalog has them: its text has no characters of four bytes, only a question mark."""
    return tuple("".join(c if c <= "\uffff" else "?" for c in label) for label in labels)


def _declared_labels(column_type: str) -> tuple[str, ...]:
    """Return the labels of ``enum('a','it''s')``; the catalog doubles quotes and escapes with a backslash."""
    body = column_type[column_type.index("(") + 1 : column_type.rindex(")")]
    return tuple(_unescape(label) for label in re.findall(r"'((?:[^'\\]|''|\\.)*)'", body, re.DOTALL))


def _unescape(label: str) -> str:
    return re.sub(r"''|\\(.)", lambda m: "'" if m[1] is None else _ESCAPES.get(m[1], m[1]), label, flags=re.DOTALL)


class EnumType(_Labelled):
    """ENUM in one byte, or two from 256 labels on."""

    data_types = ("enum",)
    binlog_types = (BinlogType(247, "enum", 2, BinlogOption.LABELS),)
    jdbc_types: ClassVar = {"enum": 1}

    @classmethod
    def known_length(cls, column: Column) -> int | None:  # noqa: ARG003 - Debezium's constant
        return 1

    @classmethod
    def declared_sizes(cls, arguments: Sequence[str]) -> tuple[int | None, int | None]:  # noqa: ARG003
        return 1, None

    def connect(self) -> ConnectSchema:
        return self._schema("io.debezium.data.Enum")

    @property
    def layout(self) -> Layout:
        return Layout(1 if len(self.column.enum_values) < 256 else 2)

    def from_image(self) -> Value:
        # An ordinal beyond the labels is an IndexError, which the codec reports as a row that does not fit.
        labels = (b"", *(label.encode() for label in self.column.enum_values))
        pieces = [json_string(label).encode() for label in ("", *self.column.enum_values)]
        from_bytes = int.from_bytes
        return Value(
            ValueKind.TEXT,
            lambda data: labels[from_bytes(data, "little")],
            lambda data: pieces[from_bytes(data, "little")],
        )

    def fast_image(self) -> Fast:
        return Fast("label", labels=len(self.column.enum_values) + 1)


class SetType(_Labelled):
    """SET in 1, 2, 3, 4 or 8 bytes."""

    data_types = ("set",)
    binlog_types = (BinlogType(248, "set", 2, BinlogOption.LABELS),)
    jdbc_types: ClassVar = {"set": 1}

    @classmethod
    def known_length(cls, column: Column) -> int | None:
        """Return Debezium's length: all labels joined, each counted as one letter."""
        return max(0, 2 * len(column.enum_values) - 1)

    @classmethod
    def declared_sizes(cls, arguments: Sequence[str]) -> tuple[int | None, int | None]:
        return 2 * len(arguments) - 1, None

    def connect(self) -> ConnectSchema:
        return self._schema("io.debezium.data.EnumSet")

    @property
    def _width(self) -> int:
        width = (len(self.column.enum_values) + 7) // 8
        return 8 if width > 4 else width

    @property
    def layout(self) -> Layout:
        return Layout(self._width)

    def from_image(self) -> Value:
        return Value(ValueKind.TEXT, Cache(self._members).__getitem__)

    def _members(self, packed: bytes) -> bytes:
        mask = int.from_bytes(packed, "little")
        if mask >> len(self.column.enum_values):
            raise IndexError(f"SET mask {mask:#x} has more bits than labels")
        return ",".join(label for i, label in enumerate(self.column.enum_values) if mask >> i & 1).encode()
