"""Makes the records of updates that change the key of a row, for both loops, and the headers of these records.

A header has the key struct as Connect's SimpleHeaderConverter prints it, which differs from the JSON of the key: a
Decimal is a number, Connect's own Date, Time and Timestamp are ISO text without quotes, and in strings only quotes and
backslashes are escaped. Connect (``org.apache.kafka.connect.data.Values``) chooses the form of that text by the value:
below one day the time alone, for whole days the date alone. So a date before 1970-01-02 reads ``00:00:00.000Z``.
"""

from __future__ import annotations

import json
from base64 import b64decode
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Final

from tailrace.producer.model.codec import EventEnvelope, KeyChange
from tailrace.producer.serialization.envelope_frame import EnvelopeFrame
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.rowkind import Op

Pair = tuple[bytes, bytes]
"""Of the old and the new row."""


class KeyChangeFactory:
    """Of one table version; ``print_header`` prints the key struct of a plain JSON key."""

    def __init__(self, frame: EnvelopeFrame, print_header: Callable[[bytes], bytes]) -> None:
        self._frame = frame
        self._print_header = print_header
        self._ends: tuple[EventEnvelope, Pair, Pair] | None = None
        """The envelope of the last record, with what surrounds the row numbers of its delete and its create."""

    def record(self, rows: Pair, keys: Pair, plain_keys: Pair, envelope: EventEnvelope, row: int) -> KeyChange:
        """Return the record; ``plain_keys`` are the keys in JSON without schema."""
        frame, print_header = self._frame, self._print_header
        number = frame.row_number(row)
        ends = self._ends
        if ends is None or ends[0] is not envelope:
            ends = self._ends = envelope, frame.event(envelope, Op.DELETE), frame.event(envelope, Op.CREATE)
        _, delete, create = ends
        return KeyChange(
            old_key=keys[0],
            new_key=keys[1],
            delete=b"".join((frame.before_update, rows[0], frame.after_delete, delete[0], number, delete[1])),
            create=b"".join((frame.before_insert, rows[1], create[0], number, create[1])),
            new_key_header=print_header(plain_keys[1]),
            old_key_header=print_header(plain_keys[0]),
        )


_LOGICAL: Final = "org.apache.kafka.connect.data."
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_DAY_MS: Final = 86_400_000
_DECODER: Final = json.JSONDecoder()
_MIN_EXPONENT: Final = -6
"""Java prints a decimal in scientific notation if the exponent of its first digit is less than this."""


def header_printer(key: Sequence[ConnectField]) -> Callable[[bytes], bytes]:
    """Return the function from the JSON of a key to the value of the header."""
    printers = [_printer(field) for field in key]
    equals_json = all(printer is None for printer in printers)

    def print_header(key_json: bytes) -> bytes:
        if equals_json and b"\\" not in key_json:
            return key_json
        text = key_json.decode()
        at, members = 1, []
        for field, printer in zip(key, printers, strict=True):
            _, at = _DECODER.raw_decode(text, at)
            value, end = _DECODER.raw_decode(text, at + 1)
            if value is None or (printer is None and not isinstance(value, str)):
                printed = text[at + 1 : end]
            else:
                printed = _quoted(value) if printer is None else printer(value)
            members.append(f"{_quoted(field.name)}:{printed}")
            at = end + 1
        return ("{" + ",".join(members) + "}").encode()

    return print_header


def _printer(field: ConnectField) -> Callable[..., str] | None:
    """Return the function that prints a value whose logical type differs between headers and JSON; else None."""
    schema = field.schema
    if schema.name == _LOGICAL + "Decimal":
        scale = int(dict(schema.parameters)["scale"])
        return lambda value: _big_decimal(value, scale)
    printers: dict[str, Callable[[int], str]] = {
        _LOGICAL + "Date": lambda days: _java_date(days * _DAY_MS),
        _LOGICAL + "Time": _java_date,
        _LOGICAL + "Timestamp": _java_date,
    }
    return printers.get(schema.name or "")


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'


def _java_date(millis: int) -> str:
    """Print milliseconds since 1970 as Connect prints a ``java.util.Date``."""
    moment = _EPOCH + timedelta(milliseconds=millis)
    date, time = f"{moment:%Y-%m-%d}", f"{moment:%H:%M:%S}.{moment.microsecond // 1000:03d}Z"
    if millis < _DAY_MS:
        return time
    return date if millis % _DAY_MS == 0 else f"{date}T{time}"


def _big_decimal(value: str, scale: int) -> str:
    """Print an unscaled value in base64 as Java's BigDecimal.toString does."""
    unscaled = int.from_bytes(b64decode(value), "big", signed=True)
    digits = str(abs(unscaled))
    sign = "-" if unscaled < 0 else ""
    power = len(digits) - 1 - scale
    if power >= _MIN_EXPONENT:
        return f"{Decimal((unscaled < 0, tuple(map(int, digits)), -scale)):f}"
    return f"{sign}{digits[0]}{'.' + digits[1:] if len(digits) > 1 else ''}E{power}"
