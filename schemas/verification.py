"""What a source and a target are compared by: canonical texts of values, and sums of the checksums of rows.

Both sides make the same text of a value, the server in SQL and Spark in native expressions. NULL is ``N``. Every other
text has only hexadecimal digits and ``- : .``, blank and ``+``, so a comma separates the texts of a row::

    text of a row      the texts of its compared columns, in table order
    text of a key      the texts of the key columns, in key order
    checksum of a row  the first 32 hexadecimal digits of the SHA-256 of its text
    bucket of a row    the CRC-32 of the text of its key, modulo BUCKETS

A bucket is compared by the number of its rows and the XOR of their checksums. Keys of the source are unique. So if a
target has as many rows with the same XOR, and not the same rows, the checksums of some rows have the XOR zero: any
difference is missed with the probability 2**-128, unless somebody has looked for such rows.

Requests and answers are JSON lines. The source begins with the table, and ends each answer with a window. ``begins``
and ``ends`` are offsets of the table's topic, by partition: the source showed every change whose record is before
``begins``, and every change that it showed has a record before ``ends``. So if a target has applied everything before
``ends``, and a key has no record between ``begins`` and what the target has applied, both have the row of the same last
record.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass
from datetime import date
from enum import StrEnum
from typing import Any, Final

import orjson

from tailrace.schemas.known_fields import known_fields

NULL: Final = "N"
"""The text of NULL."""
BUCKETS: Final = 4096
CHECKSUM_DIGITS: Final = 32


class TextForm(StrEnum):
    """What the text of a value is."""

    INTEGER = "integer"
    """Decimal digits, with ``-`` before a negative number; 1 and 0 for true and false."""
    DECIMAL = "decimal"
    """Plain notation, without zeros at the end of the fraction and without a point before no digit."""
    DOUBLE = "double"
    """16 hexadecimal digits, upper case: the bits of the number as an IEEE 754 double, the sign first.

    Zero has no sign.
    """
    BYTES = "bytes"
    """Hexadecimal digits, upper case; of a text its UTF-8."""
    DIGEST = "digest"
    """The SHA-256, lower case, of the same bytes: for values that can be long."""
    DATE = "date"
    """``YYYY-MM-DD``."""
    DATETIME = "datetime"
    """``YYYY-MM-DD hh:mm:ss.ffffff``; a moment is in UTC."""
    GEOMETRY = "geometry"
    """The SHA-256 of the WKB, a colon, and the SRID as eight hexadecimal digits, upper case; 0: none."""


@dataclass(frozen=True, slots=True)
class ComparedColumn:
    """A column with the form of its texts; the name is that in records."""

    name: str
    form: TextForm


@dataclass(frozen=True, slots=True)
class ComparedTable:
    """The first record: what of a table is compared."""

    topic: str
    database: str
    table: str
    columns: tuple[ComparedColumn, ...]
    """In table order."""
    key: tuple[str, ...]
    """Names of columns, in key order; all of them are compared."""
    excluded: Mapping[str, str]
    """The columns of the topic that are not compared, and why."""


@dataclass(frozen=True, slots=True)
class BucketSum:
    """The rows of a bucket: their number, and the XOR of their checksums."""

    bucket: int
    rows: int
    xor: str


@dataclass(frozen=True, slots=True)
class SumsProgress:
    """How many rows the sums have until now, and about how many the table has."""

    rows: int
    of: int


@dataclass(frozen=True, slots=True)
class ComparedRow:
    """A row: the text of its key, and its checksum, or its text if the request asks for that."""

    key: str
    content: str


@dataclass(frozen=True, slots=True)
class Keys:
    """The rows whose key has a text with one of some CRC-32, modulo a number."""

    modulus: int
    numbers: tuple[int, ...]

    @classmethod
    def of_buckets(cls, buckets: Collection[int]) -> Keys:
        """Return those of the rows in some buckets."""
        return cls(BUCKETS, tuple(sorted(buckets)))

    @classmethod
    def of_texts(cls, keys: Collection[str]) -> Keys:
        """Return those of some keys, and of few others."""
        return cls(1 << 32, tuple(sorted({zlib.crc32(key.encode()) for key in keys})))


MAX_CHOSEN: Final = 1000
MAX_CHOSEN_CHARS: Final = 400_000
"""Bounds of ``ChosenKeys``: they are part of a signal, and of a record of the state."""
_CLOCK: Final = r"(?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d\.\d{6}"
_DAY: Final = r"\d{4}-\d\d-\d\d"
_TEXTS: Final[Mapping[TextForm, re.Pattern[str]]] = {
    form: re.compile(pattern, re.ASCII)
    for form, pattern in {
        TextForm.INTEGER: r"0|-?[1-9]\d{0,19}",
        TextForm.DECIMAL: r"(?!-0$)-?(?:0|[1-9]\d{0,64})(?:\.\d{0,29}[1-9])?",
        TextForm.DOUBLE: r"(?!80{15}$|[7F]FF)[0-9A-F]{16}",
        TextForm.BYTES: r"(?:[0-9A-F]{2})*",
        TextForm.DIGEST: r"[0-9a-f]{64}",
        TextForm.DATE: _DAY,
        TextForm.DATETIME: f"{_DAY} {_CLOCK}",
        TextForm.GEOMETRY: r"[0-9a-f]{64}:[0-9A-F]{8}",
    }.items()
}
_DAY_CHARS: Final = 10


def is_canonical(form: TextForm, text: str) -> bool:
    """Whether a text is NULL's, or the only one of some value that a database has: no infinity, no day beyond 9999."""
    if text == NULL:
        return True
    if not _TEXTS[form].fullmatch(text):
        return False
    if form in {TextForm.DATE, TextForm.DATETIME}:
        try:
            date.fromisoformat(text[:_DAY_CHARS])
        except ValueError:
            return False
    return True


@dataclass(frozen=True, slots=True)
class ChosenKeys:
    """Keys of a table whose rows are to be read again: the names of the key columns in records, and their texts."""

    columns: tuple[str, ...]
    texts: tuple[str, ...]

    def problem(self) -> str:
        """Return why a signal may not have them, or ''."""
        if not self.columns or not self.texts:
            return "there is none"
        if len(self.texts) > MAX_CHOSEN or sum(map(len, self.texts)) > MAX_CHOSEN_CHARS:
            return f"they are more than {MAX_CHOSEN}, or their texts have more than {MAX_CHOSEN_CHARS} characters"
        for text in self.texts:
            parts = text.split(",")
            if len(parts) != len(self.columns) or not all(
                any(is_canonical(f, part) for f in TextForm) for part in parts
            ):
                return f"{text[:200]!r} is not the text of a key of {len(self.columns)} columns"
        return ""


@dataclass(frozen=True, slots=True)
class Request:
    """What of a table is wanted: the sums of all buckets, or rows."""

    columns: tuple[str, ...]
    """Names in records of the columns to compare."""
    keys: Keys | None = None
    """The rows that are wanted; None: the sums."""
    texts: bool = False
    """Whether the texts of these rows are wanted, and not their checksums."""
    sample: int = BUCKETS
    """How many buckets the sums are of, the first ones."""


@dataclass(frozen=True, slots=True)
class RepairRequest:
    """Keys that the producer is asked to read again; the answer is a window alone, when it has done that."""

    keys: ChosenKeys


@dataclass(frozen=True, slots=True)
class Window:
    """The last record of an answer: the offsets of the topic that its reading is between, by partition.

    Without it the reading has failed.
    """

    begins: Mapping[int, int]
    ends: Mapping[int, int]


Record = ComparedTable | SumsProgress | BucketSum | ComparedRow | Window | Request | RepairRequest

_KINDS: Final[Mapping[str, type[Record]]] = {
    "table": ComparedTable,
    "progress": SumsProgress,
    "bucket": BucketSum,
    "row": ComparedRow,
    "window": Window,
    "request": Request,
    "repair": RepairRequest,
}
_NAMES: Final = {kind: name for name, kind in _KINDS.items()}


def to_line(record: Record) -> bytes:
    """Return the line of a record, with its end."""
    body = {"kind": _NAMES[type(record)], **asdict(record)}
    return orjson.dumps(body, option=orjson.OPT_APPEND_NEWLINE | orjson.OPT_NON_STR_KEYS)


def from_line(line: bytes | str) -> Record:
    """Read what ``to_line`` returned. Raises ValueError for another line."""
    try:
        body: dict[str, Any] = orjson.loads(line)
        kind = _KINDS[body.pop("kind")]
        found = known_fields(kind, body)
        if kind is ComparedTable:
            columns = tuple(ComparedColumn(each["name"], TextForm(each["form"])) for each in found["columns"])
            found |= {"columns": columns, "key": tuple(found["key"])}
        elif kind is Window:
            found = {name: {int(number): at for number, at in each.items()} for name, each in found.items()}
        elif kind is RepairRequest:
            found = {"keys": ChosenKeys(tuple(found["keys"]["columns"]), tuple(found["keys"]["texts"]))}
        elif kind is Request:
            keys = found.get("keys")
            found = {
                "columns": tuple(found["columns"]),
                "keys": None if keys is None else Keys(keys["modulus"], tuple(keys["numbers"])),
                "texts": found.get("texts", False),
                "sample": found.get("sample", BUCKETS),
            }
        return kind(**found)
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise ValueError(f"not a record of a comparison: {line[:200]!r}") from error
