"""The modes that decide how values are represented; the names are Debezium's."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

TimePrecision = Literal["adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"]
DecimalHandling = Literal["precise", "double", "string"]
BigintUnsignedHandling = Literal["long", "precise"]
NameAdjustment = Literal["none", "avro", "avro_unicode"]
Converter = Literal["json", "json-schema", "avro"]
"""How keys or values are serialized; ``json-schema`` is JsonConverter with ``schemas.enable``."""
BinaryHandling = Literal["bytes", "base64", "base64-url-safe", "hex"]
ConversionFailureHandling = Literal["fail", "warn"]
ProcessingFailureHandling = Literal["table", "fail", "warn", "skip"]
"""What happens to a change that cannot be written, and to its table."""


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """One set of modes. Their defaults are those of the configuration."""

    time_precision_mode: TimePrecision
    decimal_handling_mode: DecimalHandling
    bigint_unsigned_handling_mode: BigintUnsignedHandling
    binary_handling_mode: BinaryHandling
    enable_time_adjuster: bool
    """Years 0 to 69 become 2000 to 2069, years 70 to 99 become 1970 to 1999."""
    tinyint_as_int8: bool
    """Signed TINYINT is INT8 as from Debezium 3.7, not INT16."""
    conversion_failures: ConversionFailureHandling
