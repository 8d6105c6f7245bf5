"""Values of all types as texts, so that sinks that store JSON compare with those that store values."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

from tailrace.schemas.connect import ConnectField
from tests.spark.records import Row, connect, decimal, unscaled

TYPES: Final = (
    ConnectField("flag", connect("boolean")),
    ConnectField("small", connect("int16")),
    ConnectField("whole", connect("int32")),
    ConnectField("large", connect("int64")),
    ConnectField("real", connect("double")),
    ConnectField("amount", decimal(38, 10)),
    ConnectField("text", connect("string")),
    ConnectField("doc", connect("string", name="io.debezium.data.Json")),
    ConnectField("raw", connect("bytes")),
    ConnectField("day", connect("int32", name="io.debezium.time.Date")),
    ConnectField("at", connect("int64", name="io.debezium.time.MicroTimestamp")),
    ConnectField("zoned", connect("string", name="io.debezium.time.ZonedTimestamp")),
    ConnectField("duration", connect("int64", name="io.debezium.time.MicroTime")),
)
"""Columns of every type that MySQL's own types become."""

_DIGITS: Final = 10**38 - 1
_EPOCH: Final = datetime(1970, 1, 1)
EXTREMES: Final[tuple[Row, ...]] = (
    {
        "flag": True,
        "small": 32_767,
        "whole": 2_147_483_647,
        "large": 9_223_372_036_854_775_807,
        "real": 1.7976931348623157e308,
        "amount": Decimal(f"{_DIGITS}e-10"),
        "text": "\U0001f600 \u00e9 \"\\ '\t\n" + "x" * 70_000,
        "doc": {"a": [1, 2.5, None, {"b": "\u8868"}]},
        "raw": bytes(range(256)),
        "day": date(9999, 12, 31),
        "at": datetime(9999, 12, 31, 23, 59, 59, 999_999),
        "zoned": datetime(2038, 1, 19, 3, 14, 7, 999_999, UTC),
        "duration": 3_020_399_999_999,
    },
    {
        "flag": False,
        "small": -32_768,
        "whole": -2_147_483_648,
        "large": -9_223_372_036_854_775_808,
        "real": -2.2250738585072014e-308,
        "amount": Decimal(f"-{_DIGITS}e-10"),
        "text": "",
        "doc": [],
        "raw": b"",
        "day": date(1000, 1, 1),
        "at": datetime(1000, 1, 1),
        "zoned": datetime(1970, 1, 1, 0, 0, 1, 0, UTC),
        "duration": -3_020_399_999_999,
    },
    dict.fromkeys(field.name for field in TYPES),
)
"""The greatest and the smallest values, and NULL."""


def encoded(row: Row) -> Row:
    """Return a row of EXTREMES as a record has it."""
    return {name: None if value is None else _encoded(name, value) for name, value in row.items()}


def _encoded(name: str, value: Any) -> Any:
    match name:
        case "amount":
            sign, digits, _ = value.as_tuple()
            return unscaled((-1) ** sign * int("".join(map(str, digits))))
        case "doc":
            return json.dumps(value)
        case "raw":
            return base64.b64encode(value).decode()
        case "day":
            return (value - date(1970, 1, 1)).days
        case "at":
            return (value - _EPOCH) // timedelta(microseconds=1)
        case "zoned":
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case _:
            return value


def canonical(row: Mapping[str, Any]) -> dict[str, str | None]:
    """Return the values of a row as texts, whether they are those of EXTREMES, of Spark or of JSON."""
    return {name: None if value is None else _text(name, value) for name, value in row.items()}


def _text(name: str, value: Any) -> str:
    if name == "doc":
        return json.dumps(json.loads(value) if isinstance(value, str) else value, sort_keys=True)
    if name in {"at", "zoned"}:
        found = datetime.fromisoformat(value) if isinstance(value, str) else value
        if name == "zoned":
            found = found.astimezone(UTC).replace(tzinfo=None)  # Spark's have the time zone of the process
        return str(found.isoformat(timespec="microseconds"))
    if isinstance(value, (bytes, bytearray)):
        return base64.b64encode(value).decode()
    if isinstance(value, bool):
        return str(int(value))
    if isinstance(value, (int, float, Decimal)):
        return _number(value)
    return str(value)


def _number(value: float | Decimal) -> str:
    sign, digits, exponent = Decimal(repr(value) if isinstance(value, float) else value).as_tuple()
    assert isinstance(exponent, int)
    shown = "".join(map(str, digits))
    stripped = shown.rstrip("0")
    return f"{'-' * sign}{stripped or '0'}e{exponent + len(shown) - len(stripped) if stripped else 0}"
