"""YEAR: a number. The binlog holds it less 1900, and 0 for the year 0000, which Debezium therefore prints as 1900."""

from __future__ import annotations

from typing import ClassVar, Final

from tailrace.producer.mysql.types.base import (
    BinlogOption,
    BinlogType,
    ColumnType,
    Expression,
    ExpressionKind,
    FixedWidth,
    KeyKind,
    RawBytes,
)
from tailrace.schemas.connect import ConnectSchema

_ZERO: Final = 1900


class YearType(ColumnType):
    """YEAR, 1901 to 2155 and 0000."""

    data_types = ("year",)
    binlog_types = (BinlogType(13, "year", option=BinlogOption.SIGN_OF_YEAR),)
    jdbc_types: ClassVar = {"year": 4}
    key_kinds: ClassVar = {"year": KeyKind.NUMBER}

    def connect(self) -> ConnectSchema:
        return ConnectSchema("int32", name="io.debezium.time.Year", version=1)

    @property
    def layout(self) -> FixedWidth:
        return FixedWidth(("B",))

    def from_result_set(self, raw: RawBytes) -> Expression:
        return Expression(f"(int({raw.text}) or {_ZERO})", ExpressionKind.INT)

    def from_row_image(self, raw: RawBytes) -> Expression:
        return Expression(f"({raw.parts[0]} + {_ZERO})", ExpressionKind.INT)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return f"({raw.parts[0]} + {_ZERO} if {raw.parts[0]} else 0)"


def adjusted_year(year: int) -> int:
    """Return the year that a two-digit year stands for."""
    if 0 <= year < 70:
        return year + 2000
    return year + 1900 if 70 <= year < 100 else year
