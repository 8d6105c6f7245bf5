"""Which differences of column values, and of column defaults, the named exceptions cover."""

from __future__ import annotations

import json
import re
import struct
from decimal import Decimal
from typing import Final

from tests.debezium_parity.difference import Difference, column_of, in_row, in_snapshot, numbers, strings
from tests.debezium_parity.record_exceptions import CHANGED_TABLES
from tests.debezium_parity.tokens import Tree, read_tree

DECODED_DIFFERENTLY_BY_JAVA: Final = frozenset(
    {
        *("armscii8", "big5", "cp1250", "cp1251", "cp1256", "cp1257", "cp866", "cp932", "dec8", "eucjpms", "euckr"),
        *("gbk", "geostd8", "greek", "hebrew", "hp8", "keybcs2", "koi8u", "sjis", "swe7", "tis620", "ujis"),
    }
)
"""The character sets that Java decodes differently from the server, or does not have."""

_FRACTION: Final = re.compile(r"(\.\d*?)0*(?=Z?$)")
_LITERALS: Final = frozenset(
    {("defaults", "v"), ("defaults", "bin"), *(("more_defaults", name) for name in ("b8", "b16", "dm"))}
)
"""(table, column) of the defaults that Debezium takes from the SQL literal."""


def zero_date(difference: Difference) -> bool:
    """A zero date in a column with a default."""
    return column_of(difference) in {"zero_dates.dd", "zero_dates.dtd"}


def null_kept(difference: Difference) -> bool:
    """NULL in a column with a default."""
    with_defaults = ("defaults", "more_defaults", "hidden")
    return in_row(difference) and difference.actual == "null" and difference.record.table.startswith(with_defaults)


def snapshot_timestamp(difference: Difference) -> bool:
    """The trailing zeros of a fraction."""
    sides = strings(difference)
    if sides is None or not in_row(difference) or not in_snapshot(difference):
        return False
    expected, actual = (_FRACTION.sub(lambda found: found[1].rstrip("."), side) for side in sides)
    return bool(re.match(r"\d{4}-\d\d-\d\dT", actual)) and expected == actual


def snapshot_float(difference: Difference) -> bool:
    """The digits of FLOAT in a snapshot."""
    sides = numbers(difference)
    if sides is None or not in_row(difference) or not in_snapshot(difference):
        return False
    # The server rounds the exact value of the float, not its shortest text.
    exact = struct.unpack("f", struct.pack("f", float(sides[1])))[0]
    return difference.record.table == "floats" and sides[0] == Decimal(f"{exact:.5e}")


def snapshot_document(difference: Difference) -> bool:
    """The text of JSON in a snapshot."""
    sides = strings(difference)
    documents = difference.record.table.startswith("json") or column_of(difference) in {
        "more_defaults.gv",
        "more_defaults.xj",
    }
    if sides is None or not in_snapshot(difference) or not documents:
        return False
    expected, actual = (_normalized(json.loads(side)) for side in sides)
    return expected == actual


def document_scalars(difference: Difference) -> bool:
    """The text of scalars inside JSON."""
    sides = strings(difference)
    if sides is None or not in_row(difference) or not difference.record.table.startswith("json"):
        return False
    expected, actual = map(read_tree, sides)
    return _equal_but_for_scalars(expected, actual)


def _equal_but_for_scalars(expected: Tree, actual: Tree) -> bool:
    """Whether two documents differ only in the text of doubles, of fractions of times, and of opaque values."""
    if isinstance(expected, tuple) and isinstance(actual, tuple):
        names = [[name for name, _ in side] for side in (expected, actual)]
        return names[0] == names[1] and all(
            _equal_but_for_scalars(left, right) for (_, left), (_, right) in zip(expected, actual, strict=True)
        )
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(_equal_but_for_scalars, expected, actual))
    if isinstance(expected, str) and isinstance(actual, str):
        kinds = [json.loads(side) for side in (expected, actual)]
        if all(isinstance(each, str) for each in kinds):
            return expected == actual or _normalized(kinds[0]) == _normalized(kinds[1])
        return expected == actual or _same_double(expected, actual)
    return False


def _same_double(expected: str, actual: str) -> bool:
    """Whether both are the same number, at least one of them printed as a double."""
    texts = (expected, actual)
    return (
        all(text[0] in "-0123456789" for text in texts)
        and any(not text.lstrip("-").isdigit() for text in texts)
        and float(expected) == float(actual)
    )


def _normalized(document: object) -> object:
    """Return a document without trailing zeros of fractions and without the types of opaque values."""
    if isinstance(document, dict):
        return {name: _normalized(value) for name, value in document.items()}
    if isinstance(document, list):
        return [_normalized(value) for value in document]
    if isinstance(document, str):
        if re.fullmatch(r"[-0-9 :.]+", document):
            return _FRACTION.sub(lambda found: found[1].rstrip("."), document)
        return re.sub(r"^base64:type\d+:", "", document)
    return document


def snapshot_calendar(difference: Difference) -> bool:
    """Dates in the ten days that the Julian calendar does not have."""
    if not in_snapshot(difference) or not column_of(difference).startswith("temporals.dt"):
        return False
    sides, texts = numbers(difference), strings(difference)
    return (texts is not None and texts[0] == texts[1].replace("1582-10-10", "1582-10-20")) or (
        sides is not None and abs(sides[0] - sides[1]) in {Decimal(864_000 * 10**n) for n in (3, 6, 9)}
    )


def character_set(difference: Difference) -> bool:
    """Streamed text in a character set that Java decodes differently."""
    table, _, name = column_of(difference).partition(".")
    charset = name.partition("_")[2]
    return table.startswith("charset") and not in_snapshot(difference) and charset in DECODED_DIFFERENTLY_BY_JAVA


def undefined_byte(difference: Difference) -> bool:
    """Bytes that Windows-1252 does not define."""
    sides = strings(difference)
    return sides is not None and column_of(difference).endswith("_latin1") and "\ufffd" in sides[0]


def enum_escape(difference: Difference) -> bool:
    """Escapes in labels."""
    sides = strings(difference)
    return (
        sides is not None
        and column_of(difference) == "enums.e"
        and sides[0] == sides[1].replace("\\", "\\\\").replace(",", "\\,")
    )


def negative_time_in_json(difference: Difference) -> bool:
    """A negative TIME inside JSON."""
    sides = strings(difference)
    return (
        sides is not None
        and difference.record.table.startswith("json")
        and sides[1] == sides[0].replace("24:0-25:0-26.00000-12", "-23:24:25.120000")
    )


def year_zero(difference: Difference) -> bool:
    """The year 0000."""
    return in_row(difference) and {difference.expected, difference.actual} == {"1900", "2000"}


def float_digits(difference: Difference) -> bool:
    """The number of digits of a float."""
    sides = numbers(difference)
    if sides is None or not column_of(difference).startswith("floats."):
        return False
    expected, actual = (struct.pack("f", float(side)) for side in sides)
    return expected == actual and len(str(difference.actual)) <= len(str(difference.expected))


def default_of_changed_table(difference: Difference) -> bool:
    """The default of a column of an altered table: only Debezium has it, or Debezium has an older one."""
    if difference.path[0] != "schema" or not isinstance(difference.expected, tuple):
        return False
    if difference.record.table not in CHANGED_TABLES or not isinstance(difference.actual, tuple):
        return False
    return _without_default(difference.expected) == _without_default(difference.actual)


def default_literal(difference: Difference) -> bool:
    """The default of a column: Debezium writes the SQL literal, Tailrace the value."""
    sides = difference.expected, difference.actual
    if difference.path[0] != "schema" or not all(isinstance(side, tuple) for side in sides):
        return False
    if (difference.record.table.removesuffix("_new"), difference.path[1]) not in _LITERALS:
        return False
    return _without_default(sides[0]) == _without_default(sides[1])


def _without_default(schema: Tree | None) -> list[tuple[str, Tree]]:
    assert isinstance(schema, tuple)
    return [each for each in schema if each[0] not in {'"default"', '"doc"'}]
