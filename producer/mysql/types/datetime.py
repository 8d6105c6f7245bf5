"""DATETIME: a moment without a time zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import BinlogType, Cache, Fast, KeyKind, Layout, Value
from tailrace.producer.mysql.types.temporal import (
    DAY_S,
    EPOCH_TEXT,
    FRACTION_BYTES,
    INT64_MAX,
    INT64_MIN,
    KEEP_FRACTION,
    KEEP_YEARS,
    FractionalType,
    Scalar,
    clock_text,
    day_number,
    fraction_scale,
    fraction_text,
    iso_day,
    iso_fraction,
    seconds_of_text,
    split_ymd,
)
from tailrace.schemas.connect import ConnectSchema


class DatetimeType(FractionalType):
    """DATETIME: milliseconds up to three fraction digits, else microseconds, by default."""

    data_types = ("datetime",)
    binlog_types = (BinlogType(18, "datetime", 1),)
    old_binlog_codes: ClassVar = {12: "datetime"}
    jdbc_types: ClassVar = {"datetime": 93}
    key_kinds: ClassVar = {"datetime": KeyKind.TEMPORAL}
    allows_current_timestamp = True

    @classmethod
    def current_timestamp(cls, column: Column) -> bytes | None:
        return EPOCH_TEXT + (b"." + b"0" * column.fsp if column.fsp else b"")

    def connect(self) -> ConnectSchema:
        if self._iso:
            return ConnectSchema("string", name="io.debezium.time.IsoTimestamp", version=1)
        if self.settings.time_precision_mode == "connect":
            return ConnectSchema("int64", name="org.apache.kafka.connect.data.Timestamp", version=1)
        names = {1: "NanoTimestamp", 1_000: "MicroTimestamp", 1_000_000: "Timestamp"}
        return ConnectSchema("int64", name=f"io.debezium.time.{names[self._nanos_per_unit]}", version=1)

    @property
    def layout(self) -> Layout:
        return Layout(5 + FRACTION_BYTES[self.column.fsp])

    def _assemble(self, *, cuts: bool) -> Callable[[int | None, int, int], Scalar | None]:
        """Return the function from days, seconds of the day and microseconds to the printed value.

        It returns None for a value without an exact form. With ``cuts``, the unit may cut digits of the fraction.
        """
        if self._iso:

            def text(days: int | None, seconds: int, micros: int) -> Scalar | None:
                if days is None:
                    return None
                return f"{iso_day(days)}T{clock_text(seconds)}{iso_fraction(micros)}Z".encode()

            return text
        per_second = 1_000_000_000 // self._nanos_per_unit
        if self._nanos_per_unit == 1:

            def nanos(days: int | None, seconds: int, micros: int) -> Scalar | None:
                if days is None:
                    return None
                value = (days * DAY_S + seconds) * per_second + micros * 1_000
                return value if INT64_MIN <= value <= INT64_MAX else None

            return nanos
        micros_per_unit = self._nanos_per_unit // 1_000

        def units(days: int | None, seconds: int, micros: int) -> Scalar | None:
            return None if days is None else (days * DAY_S + seconds) * per_second + micros // micros_per_unit

        def whole_units(days: int | None, seconds: int, micros: int) -> Scalar | None:
            return None if micros % micros_per_unit else units(days, seconds, micros)

        return units if cuts else whole_units

    def _replaced(self, text: str) -> Scalar | None:
        """Return what is written for a value that has no exact form."""
        year, month, day = int(text[:4]), int(text[5:7]), int(text[8:10])
        days = day_number(year, month, day, adjust=self.settings.enable_time_adjuster)
        if days is None:
            return self._no_day(text, b"1970-01-01T00:00:00Z" if self._iso else 0)
        written = self._assemble(cuts=True)(days, seconds_of_text(text[11:].encode()), int(text[20:].ljust(6, "0")))
        if written is None:
            return self._inexact(text, "is beyond 64 bits of nanoseconds", KEEP_FRACTION, None)
        if days != day_number(year, month, day, adjust=False):
            return self._inexact(text, "of a key has a year that is adjusted", KEEP_YEARS, written)
        return self._inexact(text, "of a key has digits that the mode cuts", KEEP_FRACTION, written)

    def from_text(self) -> Value:
        days = Cache[bytes, int | None](lambda text: self._exact_day(int(text[:4]), int(text[5:7]), int(text[8:])))
        clock = Cache[bytes, int](seconds_of_text)
        assemble, replaced = self._assemble(cuts=not self.in_key), self._replaced
        scale = 10 ** (6 - self.column.fsp)
        if self.column.fsp:

            def convert(text: bytes) -> Scalar | None:
                value = assemble(days[text[:10]], clock[text[11:19]], int(text[20:]) * scale)
                return replaced(str(text, "latin-1")) if value is None else value
        else:

            def convert(text: bytes) -> Scalar | None:
                value = assemble(days[text[:10]], clock[text[11:]], 0)
                return replaced(str(text, "latin-1")) if value is None else value

        return Value(self._kind, convert)

    def from_image(self) -> Value:
        days = Cache[int, int | None](lambda ymd: self._exact_day(*split_ymd(ymd)))
        assemble, replaced, text_of = self._assemble(cuts=not self.in_key), self._replaced, self._text
        fraction_bits = 8 * FRACTION_BYTES[self.column.fsp]
        fraction_mask = (1 << fraction_bits) - 1
        scale = fraction_scale(self.column.fsp)
        offset = 1 << (39 + fraction_bits)
        from_bytes = int.from_bytes

        def convert(data: bytes) -> Scalar | None:
            packed = from_bytes(data, "big") - offset
            whole = packed >> fraction_bits
            seconds = (whole >> 12 & 31) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
            value = assemble(days[whole >> 17], seconds, (packed & fraction_mask) * scale)
            return replaced(text_of(data)) if value is None else value

        return Value(self._kind, convert)

    def raw_key(self) -> Callable[[bytes], str]:
        return self._text

    def fast_text(self) -> Fast:
        return self._fast("datetime", f"0000-00-00 00:00:00{fraction_text(0, self.column.fsp)}".encode())

    def fast_image(self) -> Fast:
        return self.fast_text()

    def _text(self, data: bytes) -> str:
        """Return a value of a row image as a result set would contain it."""
        fsp = self.column.fsp
        fraction_bits = 8 * FRACTION_BYTES[fsp]
        packed = int.from_bytes(data, "big") - (1 << (39 + fraction_bits))
        whole = packed >> fraction_bits
        year, month, day = split_ymd(whole >> 17)
        micros = (packed & ((1 << fraction_bits) - 1)) * fraction_scale(fsp)
        clock = f"{whole >> 12 & 31:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
        return f"{year:04d}-{month:02d}-{day:02d} {clock}{fraction_text(micros, fsp)}"
