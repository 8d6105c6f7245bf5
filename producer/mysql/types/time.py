"""TIME: a signed span of time up to 838:59:59."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from tailrace.producer.mysql.types.base import BinlogType, Fast, Layout, Value, ValueKind
from tailrace.producer.mysql.types.temporal import (
    DAY_US,
    FRACTION_BYTES,
    KEEP_FRACTION,
    FractionalType,
    Scalar,
    clock_text,
    fraction_scale,
    fraction_text,
    iso_time,
    millis,
)
from tailrace.schemas.connect import ConnectSchema


class TimeType(FractionalType):
    """TIME: a signed span up to 838:59:59, in microseconds by default."""

    data_types = ("time",)
    binlog_types = (BinlogType(19, "time", 1),)
    old_binlog_codes: ClassVar = {11: "time"}
    jdbc_types: ClassVar = {"time": 92}

    def connect(self) -> ConnectSchema:
        if self._iso:
            return ConnectSchema("string", name="io.debezium.time.IsoTime", version=1)
        if self.settings.time_precision_mode == "connect":
            return ConnectSchema("int32", name="org.apache.kafka.connect.data.Time", version=1)
        name = "NanoTime" if self._nanos_per_unit == 1 else "MicroTime"
        return ConnectSchema("int64", name=f"io.debezium.time.{name}", version=1)

    @property
    def layout(self) -> Layout:
        return Layout(3 + FRACTION_BYTES[self.column.fsp])

    def _value(self, micros_of: Callable[[bytes], int]) -> Value:
        nanos = self._nanos_per_unit
        if nanos == 1_000 and not self._iso:
            return Value(ValueKind.INT, micros_of)
        if nanos == 1:
            return Value(ValueKind.INT, lambda data: micros_of(data) * 1000)
        # 24:00 is written as 00:00 in isostring.
        printed, last = (iso_time, DAY_US - 1) if self._iso else (millis, DAY_US)
        unit = 1000 if self.in_key and not self._iso else 1
        replaced = self._replaced

        def time_of_day(data: bytes) -> Scalar | None:
            micros = micros_of(data)
            return printed(micros) if 0 <= micros <= last and not micros % unit else replaced(micros)

        return Value(self._kind, time_of_day)

    def _replaced(self, micros: int) -> Scalar | None:
        """Return what is written for a value that the mode cannot represent."""
        seconds, fraction = divmod(abs(micros), 1_000_000)
        text = f"{'-' if micros < 0 else ''}{clock_text(seconds)}{fraction_text(fraction, self.column.fsp)}"
        if self._iso and micros == DAY_US:
            return self._inexact(text, "is no time of a day", KEEP_FRACTION, iso_time(micros))
        if 0 <= micros <= DAY_US:
            return self._inexact(text, "of a key has digits that the mode cuts", KEEP_FRACTION, millis(micros))
        return self._inexact(text, "is no time of a day", KEEP_FRACTION, None)

    def from_text(self) -> Value:
        scale = 10 ** (6 - self.column.fsp)
        fraction_length = self.column.fsp

        def micros(text: bytes) -> int:
            hours, minutes, rest = text.split(b":")
            found = (abs(int(hours)) * 3600 + int(minutes) * 60 + int(rest[:2])) * 1_000_000
            if fraction_length:
                found += int(rest[3:]) * scale
            return -found if text[:1] == b"-" else found

        return self._value(micros)

    def from_image(self) -> Value:
        return self._value(self.raw_key())

    def raw_key(self) -> Callable[[bytes], int]:
        fraction_bits = 8 * FRACTION_BYTES[self.column.fsp]
        fraction_mask = (1 << fraction_bits) - 1
        scale = fraction_scale(self.column.fsp)
        offset = 1 << (23 + fraction_bits)
        from_bytes = int.from_bytes

        def micros(data: bytes) -> int:
            # Seen as one number with the fraction in its low bits, the value is plain sign and magnitude.
            packed = from_bytes(data, "big") - offset
            size = abs(packed)
            whole = size >> fraction_bits
            seconds = (whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
            found = seconds * 1_000_000 + (size & fraction_mask) * scale
            return -found if packed < 0 else found

        return micros

    def fast_text(self) -> Fast:
        return self._fast("time")

    def fast_image(self) -> Fast:
        return self._fast("time")
