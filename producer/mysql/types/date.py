"""DATE: days since the epoch."""

from __future__ import annotations

from typing import ClassVar

from tailrace.producer.mysql.types.base import (
    BinlogType,
    Cache,
    Expression,
    FixedWidth,
    KeyKind,
    RawBytes,
)
from tailrace.producer.mysql.types.temporal import Scalar, TemporalType, day_number, iso_day
from tailrace.schemas.connect import ConnectSchema


class DateType(TemporalType):
    """DATE: days since the epoch."""

    data_types = ("date",)
    binlog_types = (BinlogType(10, "date"),)
    jdbc_types: ClassVar = {"date": 91}
    key_kinds: ClassVar = {"date": KeyKind.TEMPORAL}

    def connect(self) -> ConnectSchema:
        if self._iso:
            return ConnectSchema("string", name="io.debezium.time.IsoDate", version=1)
        if self.settings.time_precision_mode == "connect":
            return ConnectSchema("int32", name="org.apache.kafka.connect.data.Date", version=1)
        return ConnectSchema("int32", name="io.debezium.time.Date", version=1)

    @property
    def layout(self) -> FixedWidth:
        return FixedWidth(("H", "B"))

    def _printed(self, year: int, month: int, day: int) -> Scalar:
        days = day_number(year, month, day, adjust=self.settings.enable_time_adjuster)
        if not self._iso:
            return self._fallback(0) if days is None else days
        return self._fallback('"1970-01-01Z"') if days is None else f'"{iso_day(days)}Z"'

    def from_result_set(self, raw: RawBytes) -> Expression:
        def convert(text: str) -> Scalar:
            return self._printed(int(text[:4]), int(text[5:7]), int(text[8:10]))

        return Expression(f"{raw.bind('dates', Cache(convert))}[{raw.text}]", self._form)

    def from_row_image(self, raw: RawBytes) -> Expression:
        def convert(packed: int) -> Scalar:
            return self._printed(packed >> 9, packed >> 5 & 15, packed & 31)

        return Expression(f"{raw.bind('dates', Cache(convert))}[{raw.parts[0]} | {raw.parts[1]} << 16]", self._form)

    def key_from_row_image(self, raw: RawBytes) -> str:
        def convert(packed: int) -> str:
            return f"{packed >> 9:04d}-{packed >> 5 & 15:02d}-{packed & 31:02d}"

        return f"{raw.bind('date_keys', convert)}({raw.parts[0]} | {raw.parts[1]} << 16)"
