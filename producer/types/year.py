"""YEAR: a number; the binlog holds it less 1900, and 0 for the year 0000."""

from __future__ import annotations

from producer.types.base import ColumnType, Fixed, Form, Raw, Value
from schemas.connect import ConnectSchema


class YearType(ColumnType):
    """YEAR, 1901 to 2155 and 0000."""

    kinds = ("year",)

    def connect(self) -> ConnectSchema:
        return ConnectSchema("int32", name="io.debezium.time.Year", version=1)

    @property
    def layout(self) -> Fixed:
        return Fixed(("B",))

    @property
    def _zero(self) -> int:
        return adjusted_year(0) if self.settings.enable_time_adjuster else 0

    def from_text(self, raw: Raw) -> Value:
        return Value(f"(int({raw.text}) or {self._zero})", Form.INT)

    def from_log(self, raw: Raw) -> Value:
        return Value(f"({raw.parts[0]} + 1900 if {raw.parts[0]} else {self._zero})", Form.INT)

    def key_from_log(self, raw: Raw) -> str:
        return f"({raw.parts[0]} + 1900 if {raw.parts[0]} else 0)"


def adjusted_year(year: int) -> int:
    """Return the year that a two-digit year stands for."""
    if 0 <= year < 70:
        return year + 2000
    return year + 1900 if 70 <= year < 100 else year
