"""The key struct as Connect's SimpleHeaderConverter prints it, for the headers of a changed key.

Like the JSON of the key, but a Decimal is a number, Connect's own Date, Time and Timestamp are bare ISO text, and in
strings only quotes and backslashes are escaped.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tailrace.schemas.connect import ConnectField

_LOGICAL: Final = "org.apache.kafka.connect.data."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DECODER: Final = json.JSONDecoder()
_MOST_ZEROS: Final = -6
"""Java prints a decimal with an exponent when its first digit is further right than this."""


def header_printer(key: Sequence[ConnectField]) -> Callable[[bytes], bytes]:
    """Return the function from the key's JSON to the header's value."""
    printers = [_printer(field) for field in key]
    same_bytes = all(printer is None for printer in printers)

    def printed(key_json: bytes) -> bytes:
        if same_bytes and b"\\" not in key_json:
            return key_json
        text = key_json.decode()
        at, members = 1, []
        for field, printer in zip(key, printers, strict=True):
            _, at = _DECODER.raw_decode(text, at)
            value, end = _DECODER.raw_decode(text, at + 1)
            if value is None or (printer is None and not isinstance(value, str)):
                shown = text[at + 1 : end]
            else:
                shown = _quoted(value) if printer is None else printer(value)
            members.append(f"{_quoted(field.name)}:{shown}")
            at = end + 1
        return ("{" + ",".join(members) + "}").encode()

    return printed


def _printer(field: ConnectField) -> Callable[..., str] | None:
    """Return what prints a value of a logical type that a header shows in another way than JSON does."""
    schema = field.schema
    if schema.name == _LOGICAL + "Decimal":
        scale = int(dict(schema.parameters)["scale"])
        return lambda value: _big_decimal(value, scale)
    known: dict[str, Callable[[int], str]] = {
        _LOGICAL + "Date": lambda days: (_EPOCH + timedelta(days=days)).strftime("%Y-%m-%d"),
        _LOGICAL + "Time": lambda millis: _iso(millis).partition("T")[2],
        _LOGICAL + "Timestamp": _iso,
    }
    return known.get(schema.name or "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _iso(millis: int) -> str:
    moment = _EPOCH + timedelta(milliseconds=millis)
    return f"{moment:%Y-%m-%dT%H:%M:%S}.{moment.microsecond // 1000:03d}Z"


def _big_decimal(value: str, scale: int) -> str:
    """Print an unscaled value in base64 as Java's BigDecimal.toString does."""
    unscaled = int.from_bytes(b64decode(value), "big", signed=True)
    digits = str(abs(unscaled))
    sign = "-" if unscaled < 0 else ""
    power = len(digits) - 1 - scale
    if power >= _MOST_ZEROS:
        return f"{Decimal((unscaled < 0, tuple(map(int, digits)), -scale)):f}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}E{power}"
