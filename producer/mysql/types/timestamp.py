"""TIMESTAMP: a moment in UTC."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar, Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import BinlogType, Cache, Fast, KeyKind, Layout, Value, ValueKind
from tailrace.producer.mysql.types.temporal import (
    DAY_S,
    EPOCH_TEXT,
    FRACTION_BYTES,
    FractionalType,
    Scalar,
    clock_text,
    fraction_scale,
    fraction_text,
    iso_day,
)
from tailrace.schemas.connect import ConnectSchema

_DIGIT_0: Final = ord("0")


class TimestampType(FractionalType):
    """TIMESTAMP: text in UTC in every mode."""

    data_types = ("timestamp",)
    binlog_types = (BinlogType(17, "timestamp", 1),)
    old_binlog_codes: ClassVar = {7: "timestamp"}
    jdbc_types: ClassVar = {"timestamp": 2014}
    """With time zone."""
    key_kinds: ClassVar = {"timestamp": KeyKind.TEMPORAL}
    allows_current_timestamp = True

    @classmethod
    def current_timestamp(cls, column: Column) -> bytes | None:
        return None if column.nullable else EPOCH_TEXT

    @classmethod
    def default_bytes(cls, column: Column, text: str) -> bytes:  # noqa: ARG003 - all TIMESTAMP columns alike
        return b"0000-00-00 00:00:00" if text.startswith("0000-00-00") else text.encode()

    def connect(self) -> ConnectSchema:
        return ConnectSchema("string", name="io.debezium.time.ZonedTimestamp", version=1)

    @property
    def layout(self) -> Layout:
        return Layout(4 + FRACTION_BYTES[self.column.fsp])

    def _zero(self) -> Scalar | None:
        return self._no_day(self._zero_text, b"1970-01-01T00:00:00Z")

    @property
    def _zero_text(self) -> str:
        return f"0000-00-00 00:00:00{fraction_text(0, self.column.fsp)}"

    def from_text(self) -> Value:
        zero = self._zero

        def convert(text: bytes) -> Scalar | None:
            return b"%bT%bZ" % (text[:10], text[11:]) if text[0] != _DIGIT_0 else zero()

        return Value(ValueKind.PLAIN, convert)

    def from_image(self) -> Value:
        zero = self._zero
        fsp = self.column.fsp
        fraction_bits = 8 * FRACTION_BYTES[fsp]
        fraction_mask = (1 << fraction_bits) - 1
        # One digit is stored as two, three as four, five as six.
        unit = 10 if fsp % 2 else 1
        days: Cache[int, str] = Cache(iso_day)
        clock: Cache[int, str] = Cache(clock_text)
        from_bytes = int.from_bytes

        def convert(data: bytes) -> Scalar | None:
            packed = from_bytes(data, "big")
            if not packed:
                return zero()
            seconds = packed >> fraction_bits
            fraction = f".{(packed & fraction_mask) // unit:0{fsp}d}" if fsp else ""
            return f"{days[seconds // DAY_S]}T{clock[seconds % DAY_S]}{fraction}Z".encode()

        return Value(ValueKind.PLAIN, convert)

    def raw_key(self) -> Callable[[bytes], str]:
        fsp = self.column.fsp
        fraction_bits = 8 * FRACTION_BYTES[fsp]

        def convert(data: bytes) -> str:
            packed = int.from_bytes(data, "big")
            if not packed:
                return self._zero_text
            seconds = packed >> fraction_bits
            micros = (packed & ((1 << fraction_bits) - 1)) * fraction_scale(fsp)
            return f"{iso_day(seconds // DAY_S)} {clock_text(seconds % DAY_S)}{fraction_text(micros, fsp)}"

        return convert

    def fast_text(self) -> Fast:
        return self._fast("timestamp", self._zero_text.encode())

    def fast_image(self) -> Fast:
        return self.fast_text()
