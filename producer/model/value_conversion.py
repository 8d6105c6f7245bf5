"""Whether MODIFY and CHANGE keep the values of the rows that exist. The server writes no row events for them."""

from __future__ import annotations

from typing import Final

from tailrace.producer.model.ddl import ColumnDefinition
from tailrace.producer.model.table import Column

_STRICT: Final = 1 << 21 | 1 << 22
"""STRICT_TRANS_TABLES and STRICT_ALL_TABLES in the sql_mode of the binlog."""
_PADS_CHAR: Final = 1 << 31
"""PAD_CHAR_TO_FULL_LENGTH: a CHAR that becomes another type gets blanks."""
_INTEGERS: Final = ("tinyint", "smallint", "mediumint", "int", "bigint")
_TEXTS: Final = frozenset({"char", "varchar", "text"})
_BINARIES: Final = frozenset({"binary", "varbinary", "blob"})
_LABELLED: Final = frozenset({"enum", "set"})
_WITH_FRACTION: Final = frozenset({"datetime", "timestamp", "time"})
_DEFAULT_DIGITS: Final = 10
_BYTES: Final = {"utf8mb4": 4, "utf16": 4, "utf16le": 4, "utf32": 4, "gb18030": 4, "utf8mb3": 3, "utf8": 3, "ucs2": 2}
"""The most bytes of a character; one is assumed of other character sets, so that a text is at most taken for longer."""


def is_strict(sql_mode: int) -> bool:
    """Return whether a statement fails rather than change a value that does not fit."""
    return bool(sql_mode & _STRICT) and not sql_mode & _PADS_CHAR


def keeps_values(before: Column, after: ColumnDefinition, *, strict: bool) -> bool:
    """Return whether every value of a column survives its new definition, or the statement fails.

    Invariant: True only where no value can change without an error. A note is no error, nor is what is not known. A
    number counts as kept if it is equal; its type in records may be another.
    """
    loses_null = before.nullable and not after.nullable
    # A TIMESTAMP gets the time of the statement for NULL, in strict mode too.
    if after.computed or (loses_null and (not strict or after.data_type == "timestamp")):
        return False
    kind, now = before.data_type, after.data_type
    if kind in _INTEGERS:
        return _keeps_integer(before, after, strict=strict)
    if kind == "decimal":
        return now == "decimal" and _keeps_decimal(before, after, strict=strict)
    if kind == "float":
        return now in {"float", "double"} and not after.arguments and not after.unsigned
    if kind == "double":
        return now == kind and not after.arguments and (strict or before.unsigned or not after.unsigned)
    if kind in _WITH_FRACTION:
        return now == kind and int((after.arguments or ("0",))[0]) >= before.fsp
    if kind == "date":
        return now in {"date", "datetime"}
    if not strict:
        return now == kind and kind in {"year", "json"} and not after.arguments
    if kind in _LABELLED and now == kind:
        return _keeps_labels(before, after)
    if kind in _LABELLED or kind == "char":  # no value ends with a blank
        return now in {"varchar", "text"} or now == kind
    if kind in _TEXTS:
        return now in {"varchar", "text"} and _holds_text(before, after)
    if kind in _BINARIES:
        return now in {"varbinary", "blob"} or (now == kind and after.arguments == (str(before.length),))
    return now == kind


def as_column(name: str, definition: ColumnDefinition) -> Column | None:
    """Return what ``keeps_values`` needs to know of a column that a statement has defined; None: not known."""
    kind, digits = definition.data_type, tuple(map(int, definition.arguments))
    if not kind or definition.computed or definition.labels is None:
        return None
    first, second = digits[0] if digits else 0, digits[1] if len(digits) > 1 else 0
    is_decimal = kind == "decimal"
    return Column(
        name,
        kind,
        definition.nullable,
        definition.unsigned,
        length=0 if is_decimal else first,
        precision=(first or _DEFAULT_DIGITS) if is_decimal else 0,
        scale=second if is_decimal else 0,
        fsp=first if kind in _WITH_FRACTION else 0,
        enum_values=definition.labels,
    )


def _keeps_integer(before: Column, after: ColumnDefinition, *, strict: bool) -> bool:
    if after.data_type in _INTEGERS:
        wider = _INTEGERS.index(after.data_type) - _INTEGERS.index(before.data_type)
        same_sign = before.unsigned == after.unsigned
        return strict or (wider >= 0 and same_sign) or (wider > 0 and before.unsigned)
    if after.data_type == "decimal":
        return strict
    # ZEROFILL, which only an unsigned number has and the binlog does not tell, writes zeros into a text.
    return strict and not before.unsigned and after.data_type in {"varchar", "text"}


def _holds_text(before: Column, after: ColumnDefinition) -> bool:
    """Return whether the longest text fits: blanks at the end of a longer one are cut with a note in strict mode too.

    The new character set is not known: a character may have up to four bytes.
    """
    size, length = int((after.arguments or ("0",))[0]), before.length
    if before.data_type == "varchar":
        length //= _BYTES.get(before.charset, 1)
    if after.data_type == "varchar":
        return size >= length
    return size >= (length if before.data_type == "text" and before.charset.startswith("utf8") else 4 * length)


def _keeps_decimal(before: Column, after: ColumnDefinition, *, strict: bool) -> bool:
    digits = [int(number) for number in after.arguments]
    precision = digits[0] if digits else _DEFAULT_DIGITS
    scale = digits[1] if len(digits) > 1 else 0
    whole_fits = precision - scale >= before.precision - before.scale and (before.unsigned or not after.unsigned)
    return scale >= before.scale and (strict or whole_fits)


def _keeps_labels(before: Column, after: ColumnDefinition) -> bool:
    """Return whether each value has the same text; of a set, the text follows the order of the labels.

    A label that is gone becomes one that the collation takes for the same, such as another case. What a collation says
    of characters beyond ASCII is not known here.
    """
    old, new = before.enum_values, after.labels
    if new is None or not old:
        return False
    gone, added = [label for label in old if label not in new], [label for label in new if label not in old]
    if (
        gone
        and added
        and (
            not all(map(str.isascii, (*gone, *added))) or not {*map(str.lower, gone)}.isdisjoint(map(str.lower, added))
        )
    ):
        return False
    return before.data_type == "enum" or [each for each in old if each in new] == [each for each in new if each in old]
