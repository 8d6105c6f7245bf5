"""What DATE, DATETIME, TIMESTAMP and TIME share: integer arithmetic in the units of ``time.precision.mode``.

DATETIME has no time zone and is taken as UTC. TIMESTAMP is text in UTC with exactly its fraction digits. A zero date
and a date with a zero part are NULL, or the epoch in a NOT NULL column. Other values without an exact form are inexact:
a day that no calendar has, a TIME outside the day in ``connect`` and ``isostring``, a DATETIME beyond 64 bits in
``nanoseconds``; in a key also zero dates, adjusted years and fractions that the unit cuts.
"""

from __future__ import annotations

from datetime import date
from typing import Final

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.types.base import BinlogColumn, CatalogRow, ColumnType, Fast, ValueKind
from tailrace.producer.mysql.types.conversion import Inexact
from tailrace.producer.mysql.types.year import adjusted_year

EPOCH_TEXT: Final = b"1970-01-01 00:00:00"
"""What Debezium writes for the default CURRENT_TIMESTAMP."""
EPOCH: Final = date(1970, 1, 1).toordinal()
DAY_S: Final = 86_400
DAY_US: Final = DAY_S * 1_000_000
INT64_MIN: Final = -(1 << 63)
INT64_MAX: Final = (1 << 63) - 1
FRACTION_BYTES: Final = (0, 1, 1, 2, 2, 3, 3)

Scalar = int | bytes
_ADJUSTED_YEARS: Final = 100
_CORRECT: Final = "correct the value at the source, or exclude its column (column.exclude.list) or its table"
KEEP_YEARS: Final = "set enable.time.adjuster=false"
KEEP_FRACTION: Final = "set time.precision.mode to adaptive_time_microseconds or microseconds"


def day_number(year: int, month: int, day: int, *, adjust: bool) -> int | None:
    """Return days since 1970-01-01, or None if there is no such day."""
    if not (year and month and day):
        return None
    try:
        return date(adjusted_year(year) if adjust else year, month, day).toordinal() - EPOCH
    except ValueError:
        return None


def iso_day(days: int) -> str:
    """Return the date of a number of days since 1970-01-01."""
    return date.fromordinal(days + EPOCH).isoformat()


class TemporalType(ColumnType):
    """The unit of the mode, and the value that replaces one without representation."""

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

    def _inexact(self, value: str, problem: str, hint: str, written: Scalar | None) -> Scalar | None:
        """Return what is written for a value without an exact form: ``written``, as Debezium.

        None is NULL; Debezium stops if the column has none.
        """
        if self.conversion is not None:
            shown = written.decode() if isinstance(written, bytes) else written
            if shown is None and self.column.nullable:
                shown = "null"
            self.conversion.replace(Inexact(value, problem, hint), shown)
        return written

    def _no_day(self, text: str, epoch: Scalar) -> Scalar | None:
        """Return what is written for a zero date, a date with a zero part, or a day that no calendar has."""
        if all(map(int, (text[:4], text[5:7], text[8:10]))):
            return self._inexact(text, "is a day that no calendar has", _CORRECT, None)
        written = None if self.column.nullable else epoch
        if not self.in_key:
            return written
        return self._inexact(text, "of a key is a zero date, which has no form of its own", _CORRECT, written)

    @property
    def may_replace(self) -> bool:
        return True

    def _exact_day(self, year: int, month: int, day: int) -> int | None:
        """Return ``day_number``; None also if the adjusted year of a key is another year."""
        adjust = self.settings.enable_time_adjuster
        if adjust and self.in_key and year < _ADJUSTED_YEARS:
            return None
        return day_number(year, month, day, adjust=adjust)

    @property
    def _kind(self) -> ValueKind:
        return ValueKind.PLAIN if self._iso else ValueKind.INT

    def _fast(self, kind: str, zero: bytes | None = None) -> Fast:
        """Return the facts; ``zero`` is a zero date."""
        unit = 0 if self._iso else self._nanos_per_unit
        return Fast(
            kind,
            unit=unit,
            adjust=(2 if self.in_key else 1) if self.settings.enable_time_adjuster else 0,
            exact=self.in_key and unit != 0,
            zero=None if self.in_key else zero,
            scale=self.column.fsp,
        )


class FractionalType(TemporalType):
    """Types with fraction digits."""

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        return Column(row.name, row.data_type, row.nullable, fsp=row.fsp)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        return Column(column.name, column.type.data_type, column.nullable, fsp=column.metadata[0])


def seconds_of_text(text: bytes) -> int:
    """Return the seconds of ``HH:MM:SS``, from the start of the text."""
    return int(text[:2]) * 3600 + int(text[3:5]) * 60 + int(text[6:8])


def clock_text(seconds: int) -> str:
    """Return ``HH:MM:SS``."""
    return f"{seconds // 3600:02d}:{seconds // 60 % 60:02d}:{seconds % 60:02d}"


def split_ymd(ymd: int) -> tuple[int, int, int]:
    """Return year, month and day of DATETIME's upper bits: (year * 13 + month) * 32 + day."""
    year, month = divmod(ymd >> 5, 13)
    return year, month, ymd & 31


def fraction_scale(fsp: int) -> int:
    """Return the microseconds that one unit of the stored fraction stands for."""
    return (1, 10_000, 10_000, 100, 100, 1, 1)[fsp]


def fraction_text(micros: int, fsp: int) -> str:
    """Return the point and ``fsp`` digits."""
    return f".{micros:06d}"[: fsp + 1] if fsp else ""


def iso_fraction(micros: int) -> str:
    """Return a fraction without zeros at its end."""
    return f".{micros:06d}".rstrip("0") if micros else ""


def millis(micros: int) -> int:
    """Return whole milliseconds."""
    return micros // 1000


def iso_time(micros: int) -> bytes:
    """Return the text of a time of day in UTC."""
    seconds, fraction = divmod(micros % DAY_US, 1_000_000)
    return f"{clock_text(seconds)}{iso_fraction(fraction)}Z".encode()
