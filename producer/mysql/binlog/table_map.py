"""TABLE_MAP: a table version out of its binlog event, complete with binlog_row_metadata=FULL.

Body after the table id: flags u16, database and table (length u8, text, NUL), column count (packed), one type byte per
column, metadata bytes (packed length), nullability bits, then optional metadata as (type u8, packed length, value).
Numbers are little-endian; "packed" is MySQL's length-encoded integer; bit lists of the optional part run from the
highest bit, the nullability bits from the lowest.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from typing import Final

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.collation import charset_of_collation, decode
from tailrace.runtime.errors import SchemaError

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_SHAPES, _SIMPLE_KEY, _PREFIX_KEY, _LABEL_DEFAULT_CHARSET, _LABEL_COLUMN_CHARSET = 7, 8, 9, 10, 11

_FLOAT, _DOUBLE, _VARCHAR, _BIT, _TIMESTAMP2, _DATETIME2, _TIME2 = 4, 5, 15, 16, 17, 18, 19
_JSON, _NEWDECIMAL, _ENUM, _SET, _BLOB, _VAR_STRING, _STRING, _GEOMETRY, _VECTOR = (
    245,
    246,
    247,
    248,
    252,
    253,
    254,
    255,
    242,
)

_METADATA_BYTES: Final = {
    **dict.fromkeys((_FLOAT, _DOUBLE, _TIMESTAMP2, _DATETIME2, _TIME2, _BLOB, _JSON, _GEOMETRY, _VECTOR), 1),
    **dict.fromkeys((_VARCHAR, _BIT, _NEWDECIMAL, _ENUM, _SET, _VAR_STRING, _STRING), 2),
}
_PLAIN: Final = {
    1: "tinyint",
    2: "smallint",
    3: "int",
    8: "bigint",
    9: "mediumint",
    10: "date",
    13: "year",
    _FLOAT: "float",
    _DOUBLE: "double",
    _JSON: "json",
    _GEOMETRY: "geometry",
}
_YEAR: Final = 13
_POINT_SHAPE: Final = 1
_NUMERIC: Final = frozenset({1, 2, 3, 8, 9, _FLOAT, _DOUBLE, _NEWDECIMAL})
_TIMED: Final = {_TIMESTAMP2: "timestamp", _DATETIME2: "datetime", _TIME2: "time"}
_OLD: Final = {0: "decimal", 7: "timestamp", 11: "time", 12: "datetime"}
"""Column formats of MySQL 5.5 and before, kept by tables that were never rebuilt since."""


def read_id(body: bytes) -> TableId:
    """Return database and table of a TABLE_MAP body (without table id and checksum)."""
    at = 3 + body[2]
    return TableId(body[3:at].decode(), body[at + 2 : at + 2 + body[at + 1]].decode())


def read_table_map(body: bytes, *, year_has_sign: bool) -> TableVersion:
    """Return the table version that a TABLE_MAP body (without table id and checksum) describes.

    ``year_has_sign``: the server is of 8.0.21 or newer, where the signs of numbers have a bit for YEAR columns too.
    Raises SchemaError where the server sent no FULL metadata, or a column has a form that cannot be read.
    """
    table = read_id(body)
    try:
        return _read(table, body, year_has_sign=year_has_sign)
    except (IndexError, StopIteration, UnicodeDecodeError) as error:
        raise BinlogError(
            f"the log's description of {table} cannot be read", cause=str(error), body=body.hex()
        ) from error


def _read(table: TableId, body: bytes, *, year_has_sign: bool) -> TableVersion:
    at = 3 + body[2]
    at += body[at + 1] + 3
    count, at = packed(body, at)
    types = body[at : at + count]
    at += count
    length, at = packed(body, at)
    metadata = _split_metadata(table, types, body[at : at + length])
    at += length
    nulls = body[at : at + (count + 7) // 8]
    options = _options(body, at + (count + 7) // 8)
    if _NAMES not in options:
        raise SchemaError(
            f"the log does not say the columns' names of {table}",
            hint="SET GLOBAL binlog_row_metadata=FULL; rows logged before that cannot be read",
        )
    names = [text.decode() for text in _strings(options[_NAMES])]
    if len(names) != count:
        raise BinlogError(f"the log names {len(names)} of {count} columns of {table}")
    real = [_real_type(kind, meta) for kind, meta in zip(types, metadata, strict=True)]
    unsigned = _signs(types, options.get(_SIGNEDNESS, b""), year_has_sign=year_has_sign)
    character = _charsets(options, _DEFAULT_CHARSET, _COLUMN_CHARSET)
    labelled = _charsets(options, _LABEL_DEFAULT_CHARSET, _LABEL_COLUMN_CHARSET)
    shapes = iter(_numbers(options.get(_SHAPES, b"")))
    enums, sets = _label_lists(options.get(_ENUM_LABELS, b"")), _label_lists(options.get(_SET_LABELS, b""))
    columns = []
    for index, (name, kind, meta) in enumerate(zip(names, real, metadata, strict=True)):
        nullable = bool(nulls[index >> 3] >> (index & 7) & 1)
        if kind in {_ENUM, _SET}:
            charset = next(labelled)
            raw = next(enums if kind == _ENUM else sets)
            labels = tuple(decode(label, charset, what=f"a label of {table}.{name}") for label in raw)
            word = "enum" if kind == _ENUM else "set"
            columns.append(Column(name, word, nullable, charset=charset, enum_values=labels))
        elif kind in {_VARCHAR, _VAR_STRING, _STRING, _BLOB}:
            columns.append(_sized(name, kind, meta, nullable, next(character)))
        elif kind == _VECTOR:
            next(character, None)  # it counts as text, of character set binary
            columns.append(Column(name, "vector", nullable))
        elif kind == _GEOMETRY and next(shapes) == _POINT_SHAPE:
            columns.append(Column(name, "point", nullable))
        else:
            columns.append(_other(table, name, kind, meta, nullable=nullable, unsigned=unsigned[index]))
    fingerprint = hashlib.blake2b(body, digest_size=16, person=b"year" if year_has_sign else b"").digest()
    return TableVersion(table, tuple(columns), tuple(names[index] for index in _key(options)), fingerprint)


def _signs(types: bytes, value: bytes, *, year_has_sign: bool) -> list[bool]:
    """Tell for each column whether it is an unsigned number.

    Only numbers have a bit, and, on newer servers, YEAR: there it is always set, for YEAR is unsigned.
    """
    bits = _high_bits(value)
    if year_has_sign:
        signs = [next(bits, False) if kind in _NUMERIC or kind == _YEAR else False for kind in types]
        if all(sign for kind, sign in zip(types, signs, strict=True) if kind == _YEAR):
            return [sign and kind != _YEAR for kind, sign in zip(types, signs, strict=True)]
        bits = _high_bits(value)
    return [next(bits, False) if kind in _NUMERIC else False for kind in types]


def _sized(name: str, kind: int, meta: bytes, nullable: bool, charset: str) -> Column:
    binary = charset == "binary"
    if kind == _BLOB:
        return Column(name, "blob" if binary else "text", nullable, length=(1 << 8 * meta[0]) - 1, charset=charset)
    if kind == _STRING:
        # Two bits of lengths above 255 are kept, inverted, in the byte of the type.
        length = meta[1] | ((meta[0] & 0x30) ^ 0x30) << 4
        return Column(name, "binary" if binary else "char", nullable, length=length, charset=charset)
    length = meta[0] | meta[1] << 8
    return Column(name, "varbinary" if binary else "varchar", nullable, length=length, charset=charset)


def _other(table: TableId, name: str, kind: int, meta: bytes, *, nullable: bool, unsigned: bool) -> Column:
    if kind in _PLAIN:
        return Column(name, _PLAIN[kind], nullable, unsigned)
    if kind == _NEWDECIMAL:
        return Column(name, "decimal", nullable, unsigned, precision=meta[0], scale=meta[1])
    if kind == _BIT:
        return Column(name, "bit", nullable, length=meta[0] + 8 * meta[1])
    if kind in _TIMED:
        return Column(name, _TIMED[kind], nullable, fsp=meta[0])
    if kind in _OLD:
        raise SchemaError(
            f"column {name} of {table} has the storage format of MySQL 5.5 or before",
            hint=f"ALTER TABLE {table.quoted} FORCE",
            type=_OLD[kind],
        )
    raise SchemaError(
        f"column {name} of {table} has a type that is not known",
        hint="exclude the table, or change the column's type",
        type=kind,
    )


def _real_type(kind: int, meta: bytes) -> int:
    """STRING stands for CHAR, BINARY, ENUM and SET; the first metadata byte tells which."""
    return meta[0] if kind == _STRING and meta[0] in {_ENUM, _SET} else kind


def _split_metadata(table: TableId, types: bytes, metadata: bytes) -> list[bytes]:
    parts, at = [], 0
    for kind in types:
        size = _METADATA_BYTES.get(kind, 0)
        parts.append(metadata[at : at + size])
        at += size
    if at != len(metadata):
        raise SchemaError(
            f"the log describes {table} with a column type that is not known",
            hint="exclude the table",
            types=types.hex(),
            metadata=metadata.hex(),
        )
    return parts


def _options(body: bytes, at: int) -> dict[int, bytes]:
    """Split the optional metadata. Kinds that are not known add something we do not use; they are kept, unread."""
    found: dict[int, bytes] = {}
    while at < len(body):
        kind = body[at]
        length, at = packed(body, at + 1)
        found[kind] = body[at : at + length]
        at += length
    return found


def _charsets(options: dict[int, bytes], default: int, each: int) -> Iterator[str]:
    """Yield the character set of each column of the family: either one per column, or a default with exceptions."""
    if each in options:
        yield from map(charset_of_collation, _numbers(options[each]))
        return
    if default in options:
        usual, *rest = _numbers(options[default])
        exceptions = dict(zip(rest[::2], rest[1::2], strict=True))
        index = 0
        while True:
            yield charset_of_collation(exceptions.get(index, usual))
            index += 1


def _label_lists(value: bytes) -> Iterator[list[bytes]]:
    at = 0
    while at < len(value):
        count, at = packed(value, at)
        labels = []
        for _ in range(count):
            length, at = packed(value, at)
            labels.append(value[at : at + length])
            at += length
        yield labels


def _key(options: dict[int, bytes]) -> Sequence[int]:
    if _SIMPLE_KEY in options:
        return _numbers(options[_SIMPLE_KEY])
    return _numbers(options.get(_PREFIX_KEY, b""))[::2]


def _strings(value: bytes) -> Iterator[bytes]:
    at = 0
    while at < len(value):
        length, at = packed(value, at)
        yield value[at : at + length]
        at += length


def _numbers(value: bytes) -> list[int]:
    numbers, at = [], 0
    while at < len(value):
        number, at = packed(value, at)
        numbers.append(number)
    return numbers


def _high_bits(value: bytes) -> Iterator[bool]:
    return (bool(byte >> shift & 1) for byte in value for shift in range(7, -1, -1))


def packed(data: bytes, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset behind it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = _PACKED_SIZES[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


_PACKED_SIZES: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}
