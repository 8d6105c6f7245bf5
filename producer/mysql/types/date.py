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
from tailrace.producer.mysql.types.temporal import KEEP_YEARS, Scalar, TemporalType, day_number, iso_day
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
        days = self._exact_day(year, month, day)
        return self._replaced(year, month, day) if days is None else self._print(days)

    def _print(self, days: int) -> Scalar:
        return f'"{iso_day(days)}Z"' if self._iso else days

    def _replaced(self, year: int, month: int, day: int) -> Scalar:
        """Return what is written for a value that is no day, or not the same day."""
        text = f"{year:04d}-{month:02d}-{day:02d}"
        days = day_number(year, month, day, adjust=self.settings.enable_time_adjuster)
        if days is None:
            return self._no_day(text, '"1970-01-01Z"' if self._iso else 0)
        return self._inexact(text, "of a key has a year that is adjusted", KEEP_YEARS, self._print(days))

    def _is_exact(self, year: int, month: int, day: int) -> bool:
        """Return whether the value is replaced by no other one, so that none must be counted."""
        return self._exact_day(year, month, day) is not None

    def from_result_set(self, raw: RawBytes) -> Expression:
        def parts(text: str) -> tuple[int, int, int]:
            return int(text[:4]), int(text[5:7]), int(text[8:10])

        dates = Cache[str, Scalar](lambda text: self._printed(*parts(text)), lambda text: self._is_exact(*parts(text)))
        return Expression(f"{raw.bind('dates', dates)}[{raw.text}]", self._form)

    def from_row_image(self, raw: RawBytes) -> Expression:
        dates = Cache[int, Scalar](
            lambda packed: self._printed(*_parts(packed)), lambda packed: self._is_exact(*_parts(packed))
        )
        return Expression(f"{raw.bind('dates', dates)}[{raw.parts[0]} | {raw.parts[1]} << 16]", self._form)

    def key_from_row_image(self, raw: RawBytes) -> str:
        def convert(packed: int) -> str:
            year, month, day = _parts(packed)
            return f"{year:04d}-{month:02d}-{day:02d}"

        return f"{raw.bind('date_keys', convert)}({raw.parts[0]} | {raw.parts[1]} << 16)"


def _parts(packed: int) -> tuple[int, int, int]:
    return packed >> 9, packed >> 5 & 15, packed & 31
