"""ENUM and SET: text of their labels; the binlog has ordinals and bit masks.

Ordinal 0 is the value the server stores for what is no label: the empty string. A SET prints its labels in the order of
the definition.
"""

from __future__ import annotations

from tailrace.producer.mysql.types.base import Cache, ColumnType, Expression, ExpressionKind, FixedWidth, RawBytes
from tailrace.producer.mysql.types.text import escape
from tailrace.schemas.connect import ConnectSchema


class _Labelled(ColumnType):
    def _schema(self, name: str) -> ConnectSchema:
        allowed = ",".join(label.replace("\\", "\\\\").replace(",", "\\,") for label in self.column.enum_values)
        return ConnectSchema("string", name=name, version=1, parameters=(("allowed", allowed),))

    def from_result_set(self, raw: RawBytes) -> Expression:
        return Expression(raw.text, ExpressionKind.TEXT)


class EnumType(_Labelled):
    """ENUM in one byte, or two from 256 labels on."""

    kinds = ("enum",)

    def connect(self) -> ConnectSchema:
        return self._schema("io.debezium.data.Enum")

    @property
    def layout(self) -> FixedWidth:
        return FixedWidth(("B" if len(self.column.enum_values) < 256 else "H",))

    def from_row_image(self, raw: RawBytes) -> Expression:
        # A tuple: an ordinal beyond the labels is an IndexError, which the codec reports as a row that does not fit.
        labels = ("", *(_printed(label) for label in self.column.enum_values))
        return Expression(f"{raw.bind('labels', labels)}[{raw.parts[0]}]", ExpressionKind.PLAIN)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return raw.parts[0]


class SetType(_Labelled):
    """SET in 1, 2, 3, 4 or 8 bytes."""

    kinds = ("set",)

    def connect(self) -> ConnectSchema:
        return self._schema("io.debezium.data.EnumSet")

    @property
    def _width(self) -> int:
        width = (len(self.column.enum_values) + 7) // 8
        return 8 if width > 4 else width

    @property
    def layout(self) -> FixedWidth:
        return FixedWidth((f"{self._width}s",))

    def from_row_image(self, raw: RawBytes) -> Expression:
        return Expression(f"{raw.bind('members', Cache(self._members))}[{raw.parts[0]}]", ExpressionKind.PLAIN)

    def _members(self, packed: bytes) -> str:
        mask = int.from_bytes(packed, "little")
        if mask >> len(self.column.enum_values):
            raise IndexError(f"SET mask {mask:#x} has more bits than labels")
        return ",".join(_printed(label) for i, label in enumerate(self.column.enum_values) if mask >> i & 1)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return f"int.from_bytes({raw.parts[0]}, 'little')"


def _printed(label: str) -> str:
    return escape(label.encode().decode("latin-1"))
