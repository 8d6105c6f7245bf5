"""YEAR: a number. The binlog holds it less 1900, and 0 for the year 0000, which Debezium therefore prints as 1900."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from tailrace.producer.mysql.types.base import (
    BinlogOption,
    BinlogType,
    ColumnType,
    Fast,
    KeyKind,
    Layout,
    Value,
    ValueKind,
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
    def layout(self) -> Layout:
        return Layout(1)

    def from_text(self) -> Value:
        return Value(ValueKind.INT, lambda data: int(data) or _ZERO)

    def from_image(self) -> Value:
        return Value(ValueKind.INT, lambda data: data[0] + _ZERO)

    def raw_key(self) -> Callable[[bytes], int]:
        return lambda data: data[0] + _ZERO if data[0] else 0

    def fast_text(self) -> Fast:
        return Fast("year")

    def fast_image(self) -> Fast:
        return Fast("year")


def adjusted_year(year: int) -> int:
    """Return the year that a two-digit year stands for."""
    if 0 <= year < 70:
        return year + 2000
    return year + 1900 if 70 <= year < 100 else year
