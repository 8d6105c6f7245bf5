"""DATE, TIME, DATETIME, TIMESTAMP: converted by integer arithmetic, in the units that ``time.precision.mode`` names.

DATETIME has no zone and is taken as UTC; TIMESTAMP is text in UTC with exactly its fraction digits. Zero dates,
part-zero dates and days that no calendar has are NULL, or the epoch in a NOT NULL column. So is what a mode has no
value for: a TIME that is no time of day in ``connect`` and ``isostring``, a DATETIME beyond 64 bits in ``nanoseconds``.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date
from typing import ClassVar, Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import (
    NULL,
    BinlogColumn,
    BinlogType,
    Cache,
    CatalogRow,
    ColumnType,
    Expression,
    ExpressionKind,
    FixedWidth,
    KeyKind,
    RawBytes,
)
from tailrace.producer.mysql.types.year import adjusted_year
from tailrace.schemas.connect import ConnectSchema

_EPOCH_TEXT: Final = b"1970-01-01 00:00:00"
"""What Debezium writes for the default CURRENT_TIMESTAMP."""
_EPOCH: Final = date(1970, 1, 1).toordinal()
_DAY_S: Final = 86_400
_DAY_US: Final = _DAY_S * 1_000_000
_INT64_MIN: Final = -(1 << 63)
_INT64_MAX: Final = (1 << 63) - 1
_FRACTION_BYTES: Final = (0, 1, 1, 2, 2, 3, 3)

Scalar = int | str


def _days(year: int, month: int, day: int, *, adjust: bool) -> int | None:
    """Return days since 1970-01-01, or None for what is no day."""
    if not (year and month and day):
        return None
    try:
        return date(adjusted_year(year) if adjust else year, month, day).toordinal() - _EPOCH
    except ValueError:
        return None


def _iso_day(days: int) -> str:
    return date.fromordinal(days + _EPOCH).isoformat()


class _Temporal(ColumnType):
    """What the four share: the unit of the mode and the value that stands for no value."""

    @property
    def _nanos_per_unit(self) -> int:
        """Length of the unit of DATETIME and TIME in nanoseconds."""
        mode = self.settings.time_precision_mode
        if mode == "nanoseconds":
            return 1
        if mode == "connect":
            return 1_000_000
        if mode == "adaptive_time_microseconds" and self.column.data_type == "datetime" and self.column.fsp <= 3:
            return 1_000_000
        return 1_000

    @property
    def _iso(self) -> bool:
        return self.settings.time_precision_mode == "isostring"

    def _fallback(self, epoch: Scalar) -> Scalar:
        return NULL if self.column.nullable else epoch

    @property
    def _form(self) -> ExpressionKind:
        return ExpressionKind.JSON if self._iso else ExpressionKind.INT


class _WithFraction(_Temporal):
    """Types with fraction digits."""

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        return Column(row.name, row.data_type, row.nullable, fsp=row.fsp)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        return Column(column.name, column.type.data_type, column.nullable, fsp=column.metadata[0])


class DateType(_Temporal):
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
        days = _days(year, month, day, adjust=self.settings.enable_time_adjuster)
        if not self._iso:
            return self._fallback(0) if days is None else days
        return self._fallback('"1970-01-01Z"') if days is None else f'"{_iso_day(days)}Z"'

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


def _seconds_of_text(text: str) -> int:
    return int(text[:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:8])


def _clock(seconds: int) -> str:
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


class DatetimeType(_WithFraction):
    """DATETIME: milliseconds up to three fraction digits, else microseconds, by default."""

    data_types = ("datetime",)
    binlog_types = (BinlogType(18, "datetime", 1),)
    old_binlog_codes: ClassVar = {12: "datetime"}
    jdbc_types: ClassVar = {"datetime": 93}
    key_kinds: ClassVar = {"datetime": KeyKind.TEMPORAL}
    allows_current_timestamp = True

    @classmethod
    def current_timestamp(cls, column: Column) -> bytes | None:
        return _EPOCH_TEXT + (b"." + b"0" * column.fsp if column.fsp else b"")

    def connect(self) -> ConnectSchema:
        if self._iso:
            return ConnectSchema("string", name="io.debezium.time.IsoTimestamp", version=1)
        if self.settings.time_precision_mode == "connect":
            return ConnectSchema("int64", name="org.apache.kafka.connect.data.Timestamp", version=1)
        names = {1: "NanoTimestamp", 1_000: "MicroTimestamp", 1_000_000: "Timestamp"}
        return ConnectSchema("int64", name=f"io.debezium.time.{names[self._nanos_per_unit]}", version=1)

    @property
    def layout(self) -> FixedWidth:
        return FixedWidth((f"{5 + _FRACTION_BYTES[self.column.fsp]}s",))

    def _assemble(self) -> Callable[[int | None, int, int], Scalar]:
        """Return the function from days, seconds of the day and microseconds to the printed value."""
        if self._iso:
            missing = self._fallback('"1970-01-01T00:00:00Z"')

            def text(days: int | None, seconds: int, micros: int) -> Scalar:
                return missing if days is None else f'"{_iso_day(days)}T{_clock(seconds)}{_iso_fraction(micros)}Z"'

            return text
        zero = self._fallback(0)
        per_second = 1_000_000_000 // self._nanos_per_unit
        if self._nanos_per_unit == 1:

            def nanos(days: int | None, seconds: int, micros: int) -> Scalar:
                if days is None:
                    return zero
                value = (days * _DAY_S + seconds) * per_second + micros * 1_000
                return value if _INT64_MIN <= value <= _INT64_MAX else zero

            return nanos
        micros_per_unit = self._nanos_per_unit // 1_000

        def units(days: int | None, seconds: int, micros: int) -> Scalar:
            return zero if days is None else (days * _DAY_S + seconds) * per_second + micros // micros_per_unit

        return units

    def from_result_set(self, raw: RawBytes) -> Expression:
        adjust = self.settings.enable_time_adjuster
        days = Cache[str, int | None](lambda text: _days(int(text[:4]), int(text[5:7]), int(text[8:]), adjust=adjust))
        clock = Cache[str, int](_seconds_of_text)
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
        days = Cache[int, int | None](lambda ymd: _days(*_split_ymd(ymd), adjust=adjust))
        assemble = self._assemble()
        fraction_bits = 8 * _FRACTION_BYTES[self.column.fsp]
        fraction_mask = (1 << fraction_bits) - 1
        scale = _fraction_scale(self.column.fsp)
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
        fraction_bits = 8 * _FRACTION_BYTES[fsp]
        offset = 1 << (39 + fraction_bits)

        def convert(data: bytes) -> str:
            packed = int.from_bytes(data, "big") - offset
            whole = packed >> fraction_bits
            year, month, day = _split_ymd(whole >> 17)
            micros = (packed & ((1 << fraction_bits) - 1)) * _fraction_scale(fsp)
            clock = f"{whole >> 12 & 31:02d}:{whole >> 6 & 63:02d}:{whole & 63:02d}"
            return f"{year:04d}-{month:02d}-{day:02d} {clock}{_fraction(micros, fsp)}"

        return f"{raw.bind('datetime_key', convert)}({raw.parts[0]})"


class TimestampType(_WithFraction):
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
        return None if column.nullable else _EPOCH_TEXT

    @classmethod
    def default_bytes(cls, column: Column, text: str) -> bytes:  # noqa: ARG003 - all TIMESTAMP columns alike
        return b"0000-00-00 00:00:00" if text.startswith("0000-00-00") else text.encode()

    def connect(self) -> ConnectSchema:
        return ConnectSchema("string", name="io.debezium.time.ZonedTimestamp", version=1)

    @property
    def layout(self) -> FixedWidth:
        return FixedWidth((f"{4 + _FRACTION_BYTES[self.column.fsp]}s",))

    @property
    def _zero(self) -> Scalar:
        return self._fallback('"1970-01-01T00:00:00Z"')

    def from_result_set(self, raw: RawBytes) -> Expression:
        zero = self._zero

        def convert(text: str) -> Scalar:
            return f'"{text[:10]}T{text[11:]}Z"' if text[0] != "0" else zero

        return Expression(f"{raw.bind('timestamp', convert)}({raw.text})", ExpressionKind.JSON)

    def from_row_image(self, raw: RawBytes) -> Expression:
        zero = self._zero
        fsp = self.column.fsp
        fraction_bits = 8 * _FRACTION_BYTES[fsp]
        fraction_mask = (1 << fraction_bits) - 1
        # One digit is stored as two, three as four, five as six.
        unit = 10 if fsp % 2 else 1
        days: Cache[int, str] = Cache(_iso_day)
        clock: Cache[int, str] = Cache(_clock)
        from_bytes = int.from_bytes

        def convert(data: bytes) -> Scalar:
            packed = from_bytes(data, "big")
            if not packed:
                return zero
            seconds = packed >> fraction_bits
            fraction = f".{(packed & fraction_mask) // unit:0{fsp}d}" if fsp else ""
            return f'"{days[seconds // _DAY_S]}T{clock[seconds % _DAY_S]}{fraction}Z"'

        return Expression(f"{raw.bind('timestamp', convert)}({raw.parts[0]})", ExpressionKind.JSON)

    def key_from_row_image(self, raw: RawBytes) -> str:
        fsp = self.column.fsp
        fraction_bits = 8 * _FRACTION_BYTES[fsp]

        def convert(data: bytes) -> str:
            packed = int.from_bytes(data, "big")
            if not packed:
                return f"0000-00-00 00:00:00{_fraction(0, fsp)}"
            seconds = packed >> fraction_bits
            micros = (packed & ((1 << fraction_bits) - 1)) * _fraction_scale(fsp)
            return f"{_iso_day(seconds // _DAY_S)} {_clock(seconds % _DAY_S)}{_fraction(micros, fsp)}"

        return f"{raw.bind('timestamp_key', convert)}({raw.parts[0]})"


class TimeType(_WithFraction):
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
    def layout(self) -> FixedWidth:
        return FixedWidth((f"{3 + _FRACTION_BYTES[self.column.fsp]}s",))

    def _value(self, micros: str, raw: RawBytes) -> Expression:
        nanos = self._nanos_per_unit
        if nanos == 1_000 and not self._iso:
            return Expression(micros, ExpressionKind.INT)
        if nanos == 1:
            return Expression(f"{micros} * 1000", ExpressionKind.INT)
        no_time = self._fallback('"00:00:00Z"' if self._iso else 0)
        printed = _iso_time if self._iso else _millis

        def time_of_day(micros: int) -> Scalar:
            return printed(micros) if 0 <= micros <= _DAY_US else no_time

        return Expression(f"{raw.bind('time_of_day', time_of_day)}({micros})", self._form)

    def from_result_set(self, raw: RawBytes) -> Expression:
        scale = 10 ** (6 - self.column.fsp)
        fraction_length = self.column.fsp

        def convert(text: str) -> int:
            hours, minutes, rest = text.split(":")
            micros = (abs(int(hours)) * 3600 + int(minutes) * 60 + int(rest[:2])) * 1_000_000
            if fraction_length:
                micros += int(rest[3:]) * scale
            return -micros if text[0] == "-" else micros

        return self._value(f"{raw.bind('time', convert)}({raw.text})", raw)

    def from_row_image(self, raw: RawBytes) -> Expression:
        return self._value(self._micros(raw), raw)

    def key_from_row_image(self, raw: RawBytes) -> str:
        return self._micros(raw)

    def _micros(self, raw: RawBytes) -> str:
        fraction_bits = 8 * _FRACTION_BYTES[self.column.fsp]
        fraction_mask = (1 << fraction_bits) - 1
        scale = _fraction_scale(self.column.fsp)
        offset = 1 << (23 + fraction_bits)
        from_bytes = int.from_bytes

        def convert(data: bytes) -> int:
            # Seen as one number with the fraction in its low bits, the value is plain sign and magnitude.
            packed = from_bytes(data, "big") - offset
            size = abs(packed)
            whole = size >> fraction_bits
            seconds = (whole >> 12) * 3600 + (whole >> 6 & 63) * 60 + (whole & 63)
            micros = seconds * 1_000_000 + (size & fraction_mask) * scale
            return -micros if packed < 0 else micros

        return f"{raw.bind('time', convert)}({raw.parts[0]})"


def _split_ymd(ymd: int) -> tuple[int, int, int]:
    """Return year, month and day of DATETIME's upper bits: (year * 13 + month) * 32 + day."""
    year, month = divmod(ymd >> 5, 13)
    return year, month, ymd & 31


def _fraction_scale(fsp: int) -> int:
    """Return the microseconds that one unit of the stored fraction stands for."""
    return (1, 10_000, 10_000, 100, 100, 1, 1)[fsp]


def _fraction(micros: int, fsp: int) -> str:
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def _iso_fraction(micros: int) -> str:
    """Return a fraction without zeros at its end."""
    return f".{micros:06d}".rstrip("0") if micros else ""


def _millis(micros: int) -> int:
    return micros // 1000


def _iso_time(micros: int) -> str:
    seconds, fraction = divmod(micros % _DAY_US, 1_000_000)
    return f'"{_clock(seconds)}{_iso_fraction(fraction)}Z"'
