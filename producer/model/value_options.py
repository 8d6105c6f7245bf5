"""The modes that decide how values are written; names and defaults are Debezium's."""

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


@dataclass(frozen=True, slots=True)
class ValueOptions:
    """One set of modes; equal settings and equal tables give equal bytes."""

    time_precision_mode: TimePrecision = "adaptive_time_microseconds"
    decimal_handling_mode: DecimalHandling = "precise"
    bigint_unsigned_handling_mode: BigintUnsignedHandling = "long"
    binary_handling_mode: BinaryHandling = "bytes"
    enable_time_adjuster: bool = True
    """Years 0 to 69 become 2000 to 2069, years 70 to 99 become 1970 to 1999."""
    tinyint_as_int8: bool = False
    """Signed TINYINT is INT8 as from Debezium 3.7, not INT16."""
