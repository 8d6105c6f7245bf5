"""DATE: days since the epoch."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tailrace.producer.mysql.types.base import BinlogType, Cache, Fast, KeyKind, Layout, Value
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
    def layout(self) -> Layout:
        return Layout(3)

    def _printed(self, year: int, month: int, day: int) -> Scalar | None:
        days = self._exact_day(year, month, day)
        return self._replaced(year, month, day) if days is None else self._print(days)

    def _print(self, days: int) -> Scalar:
        return f"{iso_day(days)}Z".encode() if self._iso else days

    def _replaced(self, year: int, month: int, day: int) -> Scalar | None:
        """Return what is written for a value that is no day, or not the same day."""
        text = _text(year, month, day)
        days = day_number(year, month, day, adjust=self.settings.enable_time_adjuster)
        if days is None:
            return self._no_day(text, b"1970-01-01Z" if self._iso else 0)
        return self._inexact(text, "of a key has a year that is adjusted", KEEP_YEARS, self._print(days))

    def _value(self, parts: Callable[[bytes], tuple[int, int, int]]) -> Value:
        # A value that is replaced is counted each time, so it is not kept.
        dates = Cache[bytes, Scalar | None](
            lambda data: self._printed(*parts(data)), lambda data: self._exact_day(*parts(data)) is not None
        )
        return Value(self._kind, dates.__getitem__)

    def from_text(self) -> Value:
        return self._value(lambda data: (int(data[:4]), int(data[5:7]), int(data[8:10])))

    def from_image(self) -> Value:
        return self._value(_parts)

    def raw_key(self) -> Callable[[bytes], str]:
        return lambda data: _text(*_parts(data))

    def fast_text(self) -> Fast:
        return self._fast("date", b"0000-00-00")

    def fast_image(self) -> Fast:
        return self.fast_text()


def _text(year: int, month: int, day: int) -> str:
    return f"{year:04d}-{month:02d}-{day:02d}"


def _parts(data: bytes) -> tuple[int, int, int]:
    packed = int.from_bytes(data, "little")
    return packed >> 9, packed >> 5 & 15, packed & 31
