"""DATETIME: a moment without a time zone."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import (
    BinlogType,
    Cache,
    Expression,
    FixedWidth,
    KeyKind,
    RawBytes,
)
from tailrace.producer.mysql.types.temporal import (
    DAY_S,
    EPOCH_TEXT,
    FRACTION_BYTES,
    INT64_MAX,
    INT64_MIN,
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
    def layout(self) -> FixedWidth:
        return FixedWidth((f"{5 + FRACTION_BYTES[self.column.fsp]}s",))

    def _assemble(self) -> Callable[[int | None, int, int], Scalar]:
        """Return the function from days, seconds of the day and microseconds to the printed value."""
        if self._iso:
            missing = self._fallback('"1970-01-01T00:00:00Z"')

            def text(days: int | None, seconds: int, micros: int) -> Scalar:
                return missing if days is None else f'"{iso_day(days)}T{clock_text(seconds)}{iso_fraction(micros)}Z"'

            return text
        zero = self._fallback(0)
        per_second = 1_000_000_000 // self._nanos_per_unit
        if self._nanos_per_unit == 1:

            def nanos(days: int | None, seconds: int, micros: int) -> Scalar:
                if days is None:
                    return zero
                value = (days * DAY_S + seconds) * per_second + micros * 1_000
                return value if INT64_MIN <= value <= INT64_MAX else zero

            return nanos
        micros_per_unit = self._nanos_per_unit // 1_000

        def units(days: int | None, seconds: int, micros: int) -> Scalar:
            return zero if days is None else (days * DAY_S + seconds) * per_second + micros // micros_per_unit

        return units

    def from_result_set(self, raw: RawBytes) -> Expression:
        adjust = self.settings.enable_time_adjuster
        days = Cache[str, int | None](
            lambda text: day_number(int(text[:4]), int(text[5:7]), int(text[8:]), adjust=adjust)
        )
        clock = Cache[str, int](seconds_of_text)
        assemble = self._assemble()
        scale = 10 ** (6 - self.column.fsp)
        if self.column.fsp:

            def convert(text: str) -> Scalar:
                return assemble(days[text[:10]], clock[text[11:19]], int(text[20:]) * scale)
        else:

            def convert(text: str) -> Scalar:
                return assemble(days[text[:10]], clock[text[11:]], 0)

        return Expression(f"{raw.bind('datetime', convert)}({raw.text})", self._form)

    def from_row_image(self, raw: RawBytes) -> Expression:
        adjust = self.settings.enable_time_adjuster
        days = Cache[int, int | None](lambda ymd: day_number(*split_ymd(ymd), adjust=adjust))
        assemble = self._assemble()
        fraction_bits = 8 * FRACTION_BYTES[self.column.fsp]
        fraction_mask = (1 << fraction_bits) - 1
        scale = fraction_scale(self.column.fsp)
        offset = 1 << (39 + fraction_bits)
        from_bytes = int.from_bytes

        def convert(data: bytes) -> Scalar:
            packed = from_bytes(data, "big") - offset
            whole = packed >> fraction_bits
            seconds = (whole >> 12 & 31) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
            return assemble(days[whole >> 17], seconds, (packed & fraction_mask) * scale)

        return Expression(f"{raw.bind('datetime', convert)}({raw.parts[0]})", self._form)

    def key_from_row_image(self, raw: RawBytes) -> str:
        fsp = self.column.fsp
        fraction_bits = 8 * FRACTION_BYTES[fsp]
        offset = 1 << (39 + fraction_bits)

        def convert(data: bytes) -> str:
            packed = int.from_bytes(data, "big") - offset
            whole = packed >> fraction_bits
            year, month, day = split_ymd(whole >> 17)
            micros = (packed & ((1 << fraction_bits) - 1)) * fraction_scale(fsp)
            clock = f"{whole >> 12 & 31:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
            return f"{year:04d}-{month:02d}-{day:02d} {clock}{fraction_text(micros, fsp)}"

        return f"{raw.bind('datetime_key', convert)}({raw.parts[0]})"
