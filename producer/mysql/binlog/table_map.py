"""TABLE_MAP: a table version out of its binlog event, complete with binlog_row_metadata=FULL.

With MINIMAL it lacks names, labels, keys and more, which a definition that is proven for its position adds
(``proven_definitions.py``). All that both have must be equal. MySQL 5.7 has no optional metadata at all.

Body after the table id: flags u16, database and table (length u8, text, NUL), column count (packed), one type byte per
column, metadata bytes (packed length), nullability bits, then optional metadata as (type u8, packed length, value).
Numbers are little-endian; "packed" is MySQL's length-encoded integer; bit lists of the optional part run from the
highest bit, the nullability bits from the lowest.
"""

from __future__ import annotations

import hashlib
import struct
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Final, NamedTuple

from tailrace.producer.errors import BinlogError, TableDefinitionError
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.text.collation import charset_of_collation, decode
from tailrace.producer.mysql.types.base import BinlogColumn, BinlogOption, BinlogType
from tailrace.producer.mysql.types.registry import BINLOG_TYPES, OLD_BINLOG_CODES, binlog_family
from tailrace.producer.mysql.types.text import STRING
from tailrace.runtime.errors import SchemaError

_SIGNEDNESS, _DEFAULT_CHARSET, _COLUMN_CHARSET, _NAMES, _SET_LABELS, _ENUM_LABELS = 1, 2, 3, 4, 5, 6
_SHAPES, _SIMPLE_KEY, _PREFIX_KEY, _LABEL_DEFAULT_CHARSET, _LABEL_COLUMN_CHARSET = 7, 8, 9, 10, 11

_ENUM, _SET = 247, 248
_WITH_FRACTION: Final = frozenset({17, 18, 19})
"""Types TIMESTAMP, DATETIME and TIME, whose metadata is the number of fractional digits."""
_MAX_FRACTION: Final = 6
_DECIMAL, _BIT = 246, 16
_DIGITS: Final = range(1, 66)
"""Of a DECIMAL."""
_BITS: Final = range(1, 65)
"""Of a BIT."""


def read_id(body: bytes) -> TableId:
    """Return database and table of a TABLE_MAP body (without table id and checksum)."""
    at = 3 + body[2]
    return TableId(body[3:at].decode(), body[at + 2 : at + 2 + body[at + 1]].decode())


def unnamed(table: TableId) -> TableVersion:
    """Raise SchemaError: nothing tells the names of the columns of a TABLE_MAP event without FULL metadata."""
    raise SchemaError(
        f"the log does not say the columns' names of {table}",
        hint="SET GLOBAL binlog_row_metadata=FULL (since MySQL 8.0); rows logged before that cannot be read",
    )


class DefinitionDiffersError(TableDefinitionError):
    """A TABLE_MAP event does not have the definition that is in force."""


class MapFormat(NamedTuple):
    """What the version of a server decides of its TABLE_MAP events, and of the values of their rows."""

    year_has_sign: bool = False
    """MariaDB, and MySQL since 8.0.21: the signs of numbers have a bit for YEAR columns too."""
    shape_has_charset: bool = False
    """MariaDB: the character sets are also those of geometries."""
    bare_doubles: bool = False
    """``Column.bare_doubles``."""


def read_table_map(
    body: bytes, read_by: MapFormat, definition_of: Callable[[TableId], TableVersion] = unnamed
) -> TableVersion:
    """Return the table version that a TABLE_MAP body (without table id and checksum) describes.

    ``definition_of`` is asked for the definition in force where the server sent no FULL metadata.
    Raises SchemaError where there is none, or a column has a form that cannot be read.
    """
    table = read_id(body)
    try:
        return _read(table, body, read_by, definition_of)
    except (LookupError, StopIteration, ValueError, struct.error) as error:
        raise BinlogError(
            f"the log's description of {table} cannot be read", cause=str(error), body=body.hex()
        ) from error


def _read(
    table: TableId, body: bytes, read_by: MapFormat, definition_of: Callable[[TableId], TableVersion]
) -> TableVersion:
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
    definition = None if _NAMES in options else definition_of(table)
    if definition is None:
        names = [text.decode() for text in _strings(options[_NAMES])]
        if len(names) != count:
            raise BinlogError(f"the log names {len(names)} of {count} columns of {table}")
    else:
        names = [column.name for column in definition.columns]
        if len(names) != count:
            raise differs(definition, f"{count} columns, not {len(names)}")
    if len(set(names)) != count:
        raise BinlogError(f"the log names a column of {table} twice", names=", ".join(names))
    for name, code, meta in zip(names, types, metadata, strict=True):
        _check_size(table, name, code, meta)
    known = [_type(table, name, code, meta) for name, code, meta in zip(names, types, metadata, strict=True)]
    if definition is not None and not options:
        unsigned = [column.unsigned for column in definition.columns]
    else:
        unsigned = _signs(known, options.get(_SIGNEDNESS, b""), year_has_sign=read_by.year_has_sign)
    logged = [
        BinlogColumn(
            name,
            bool(nulls[index >> 3] >> (index & 7) & 1),
            known[index],
            metadata[index],
            unsigned[index],
            bare_doubles=read_by.bare_doubles,
        )
        for index, name in enumerate(names)
    ]
    described = _described(table, logged, options, definition, shape_has_charset=read_by.shape_has_charset)
    columns = tuple(binlog_family(column).from_binlog(column) for column in described)
    key, since = tuple(names[index] for index in _key(options)), ""
    if definition is not None:
        different = [pair for pair in zip(columns, definition.columns, strict=True) if pair[0] != pair[1]]
        if different:
            raise differs(definition, "; ".join(f"{found}, not {defined}" for found, defined in different[:3]))
        key, since, body = definition.primary_key, definition.since, body + repr(definition).encode()
    fingerprint = hashlib.blake2b(body, digest_size=16, person=bytes(read_by)).digest()
    return TableVersion(table, columns, key, fingerprint, since)


def _described(
    table: TableId,
    columns: Iterable[BinlogColumn],
    options: dict[int, bytes],
    definition: TableVersion | None,
    *,
    shape_has_charset: bool,
) -> list[BinlogColumn]:
    """Return the columns with what the optional metadata, or a definition, have of them."""
    character = _charsets(options, _DEFAULT_CHARSET, _COLUMN_CHARSET)
    labelled = _charsets(options, _LABEL_DEFAULT_CHARSET, _LABEL_COLUMN_CHARSET)
    shapes = iter(_numbers(options.get(_SHAPES, b"")))
    enums, sets = _label_lists(options.get(_ENUM_LABELS, b"")), _label_lists(options.get(_SET_LABELS, b""))
    lacked = _ONLY_FULL if options else _OF_VALUES
    found = list(columns)
    for index, column in enumerate(found):
        option = column.type.option
        if definition is not None and option in lacked:
            defined = definition.columns[index]
            shape = int(defined.data_type == "point")
            found[index] = column._replace(charset=defined.charset, labels=defined.enum_values, shape=shape)
        elif option is BinlogOption.LABELS:
            charset = next(labelled)
            raw = next(enums if column.type.code == _ENUM else sets)
            labels = tuple(decode(label, charset, what=f"a label of {table}.{column.name}") for label in raw)
            found[index] = column._replace(charset=charset, labels=labels)
        elif option is BinlogOption.CHARSET:
            found[index] = column._replace(charset=next(character))
        elif option is BinlogOption.SHAPE:
            found[index] = column._replace(shape=next(shapes))
            if shape_has_charset:
                next(character, None)
        elif option is BinlogOption.BINARY_CHARSET:
            next(character, None)
    return found


_ONLY_FULL: Final = frozenset({BinlogOption.LABELS, BinlogOption.SHAPE})
"""What MINIMAL metadata does not have of columns."""
_OF_VALUES: Final = _ONLY_FULL | {BinlogOption.CHARSET}
"""What MySQL 5.7 does not have of columns, besides signs."""


def differs(definition: TableVersion, what: str) -> DefinitionDiffersError:
    return DefinitionDiffersError(
        f"the log has rows of {definition.id} with another definition than the catalog had, and no statement between",
        hint="run no DDL with sql_log_bin=0; hidden columns, which the catalog does not show, need SET GLOBAL "
        "binlog_row_metadata=FULL",
        log=what,
        since=definition.since,
    )


def _check_size(table: TableId, name: str, code: int, metadata: bytes) -> None:
    """Raise BinlogError for metadata that no column has: the width of its values would not be known."""
    column = f"column {name} of {table} has an impossible number of"
    if code in _WITH_FRACTION and metadata[0] > _MAX_FRACTION:
        raise BinlogError(f"{column} fractional digits", digits=metadata[0])
    if code == _DECIMAL and not (metadata[0] in _DIGITS and metadata[1] <= metadata[0]):
        raise BinlogError(f"{column} digits", digits=metadata[0], scale=metadata[1])
    if code == _BIT and metadata[0] + 8 * metadata[1] not in _BITS:
        raise BinlogError(f"{column} bits", bits=metadata[0] + 8 * metadata[1])


def _type(table: TableId, name: str, code: int, metadata: bytes) -> BinlogType:
    """Return the type of a column. Raises SchemaError for one that is not supported."""
    if code == STRING and metadata[0] in {_ENUM, _SET}:
        code = metadata[0]
    known = BINLOG_TYPES.get(code)
    if known is not None:
        return known
    if code in OLD_BINLOG_CODES:
        raise SchemaError(
            f"column {name} of {table} has the storage format of MySQL 5.5 or before",
            hint=f"ALTER TABLE {table.quoted} FORCE",
            type=OLD_BINLOG_CODES[code],
        )
    raise SchemaError(
        f"column {name} of {table} has a type that is not known",
        hint="exclude the table, or change the column's type",
        type=code,
    )


def _signs(types: Sequence[BinlogType], value: bytes, *, year_has_sign: bool) -> list[bool]:
    """Return for each column whether it is an unsigned number.

    Only numbers have a bit, and on newer servers YEAR. The bit of YEAR is always set, because YEAR is unsigned.
    """
    options = [each.option for each in types]
    year = BinlogOption.SIGN_OF_YEAR
    if year_has_sign:
        bits = _high_bits(value)
        signs = [next(bits, False) if option in {BinlogOption.SIGN, year} else False for option in options]
        if all(sign for option, sign in zip(options, signs, strict=True) if option is year):
            return [sign and option is not year for option, sign in zip(options, signs, strict=True)]
    bits = _high_bits(value)
    return [next(bits, False) if option is BinlogOption.SIGN else False for option in options]


def _split_metadata(table: TableId, types: bytes, metadata: bytes) -> list[bytes]:
    parts, at = [], 0
    for kind in types:
        size = BINLOG_TYPES[kind].metadata_bytes if kind in BINLOG_TYPES else 0
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


def packed(data: bytes | memoryview, at: int) -> tuple[int, int]:
    """Read a length-encoded integer; return it and the offset behind it."""
    first = data[at]
    if first < 0xFB:
        return first, at + 1
    size = _PACKED_SIZES[first]
    return int.from_bytes(data[at + 1 : at + 1 + size], "little"), at + 1 + size


_PACKED_SIZES: Final = {0xFC: 2, 0xFD: 3, 0xFE: 8}
