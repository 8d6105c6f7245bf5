"""Values that describe a captured table; equal from the catalog and from a TABLE_MAP event."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple


class TableId(NamedTuple):
    """Database and table, as the server writes them."""

    database: str
    table: str

    def __str__(self) -> str:
        return f"{self.database}.{self.table}"

    @property
    def quoted(self) -> str:
        """Return the qualified name as quoted SQL."""
        return f"{quote(self.database)}.{quote(self.table)}"


def quote(name: str) -> str:
    """Return a name as a quoted SQL identifier."""
    return "`" + name.replace("`", "``") + "`"


@dataclass(frozen=True, slots=True)
class Column:
    """What decides the bytes of the values of a column; equal from the catalog and from a TABLE_MAP event.

    ``data_type`` is one of: tinyint smallint mediumint int bigint decimal float double bit char varchar text binary
    varbinary blob date datetime timestamp time year enum set json point geometry vector uuid inet4 inet6. The four
    sizes of TEXT and BLOB are one type each, and so are all spatial types except POINT. CHAR, VARCHAR and TEXT have a
    character set other than binary, BINARY, VARBINARY and BLOB have ``binary``.
    """

    name: str
    data_type: str
    nullable: bool = True
    unsigned: bool = False
    """For numbers; ZEROFILL includes it."""
    length: int = 0
    """Bit: bits. Char, varchar, binary, varbinary: the maximum in bytes, as the binlog has it. Text, blob: the maximum
    in bytes of their size, 255, 65535, 16777215 or 4294967295: it decides the length prefix in the binlog. Vector: of
    MariaDB, the maximum in bytes. Else 0."""
    precision: int = 0
    """Decimal: total digits. FLOAT(M,D): the same, which only the catalog has; it is written as a double."""
    scale: int = 0
    """Decimal, FLOAT(M,D): digits after the point."""
    fsp: int = 0
    """Datetime, timestamp, time: fraction digits, 0 to 6."""
    charset: str = ""
    """Character set name as the server writes it (``utf8mb4``, ``latin1``, ``binary``), for text, binary, enum, set."""
    enum_values: tuple[str, ...] = ()
    """Enum, set: the labels in order."""
    compressed: bool = False
    """MariaDB: a row image has the values compressed. Only varchar, text, varbinary, blob."""
    bare_doubles: bool = field(default=False, compare=False)
    """JSON of a row image: the server prints a double without fraction as ``1``, not ``1.0``. Only the binlog knows."""
    catalog: ColumnCatalog | None = field(default=None, compare=False)
    """What only the catalog has; it does not decide the bytes of a JSON value without schema."""


@dataclass(frozen=True, slots=True)
class ColumnCatalog:
    """The part of a column definition that a TABLE_MAP event does not carry."""

    column_type: str
    """As in information_schema.columns.column_type, e.g. ``int(10) unsigned zerofill``."""
    collation: str | None
    default: str | None
    """The literal as text, or None; for expressions ``default_is_expression`` is set."""
    default_is_expression: bool
    generated: bool
    auto_increment: bool
    comment: str
    extra: str = ""
    default_value: bytes | None = None
    """The literal default as a result set would contain it, where the text in ``default`` is not exact."""


@dataclass(frozen=True, slots=True)
class Table:
    """One version of a table: columns in table order, and the names of the key columns in key order.

    ``key`` is the primary key, or its replacement: a unique index without NULLs, ``message.key.columns``, or all
    columns. It is empty only in ``CatalogTable``.
    """

    id: TableId
    columns: tuple[Column, ...]
    key: tuple[str, ...]

    def column(self, name: str) -> Column:
        """Return the column of that name."""
        return next(column for column in self.columns if column.name == name)

    @property
    def key_columns(self) -> tuple[Column, ...]:
        """Return the key columns in key order."""
        return tuple(self.column(name) for name in self.key)


@dataclass(frozen=True, slots=True)
class Collation:
    """How a text column is compared."""

    name: str
    pads: bool
    """PAD SPACE: trailing blanks are ignored."""


@dataclass(frozen=True, slots=True)
class CatalogTable:
    """A table as the catalog describes it now. ``table.key`` is ``index_key``, which may be empty here."""

    table: Table
    primary_key: tuple[str, ...]
    """Column names in key order; empty if there is none."""
    unique_key: tuple[str, ...]
    """Columns of the first unique index (in the server's order) without NULLs, prefixes and expressions, or empty."""
    prefix_columns: frozenset[str]
    """Columns of which the primary key holds only a prefix: ``PRIMARY KEY (name(10))``."""
    collations: Mapping[str, Collation]
    """Per text column."""
    is_key_logged: bool = False
    """Whether the log names ``index_key`` as the key of each row since the index is there."""
    unique_keys: tuple[tuple[str, ...], ...] = ()
    """The columns of all unique indexes without NULLs, prefixes and expressions."""

    @property
    def index_key(self) -> tuple[str, ...]:
        """Return the key that an index enforces: the primary key, else the unique key, else empty."""
        return self.primary_key or self.unique_key


_TYPE: Final = re.compile(r"([\w ]+?)(?:\((\d+)(?:,(\d+))?\))?((?: unsigned)?(?: zerofill)?)", re.IGNORECASE)
_NAME, _LENGTH, _SCALE = (f"__debezium.source.column.{part}" for part in ("type", "length", "scale"))
_COMMENT, _OWN_NAME = (f"__debezium.source.column.{part}" for part in ("comment", "name"))


class SourceType(NamedTuple):
    """The type of a column as its source declares it. Debezium puts it into schemas and into the names of type filters.

    ``length`` and ``scale`` are None if the definition has none.
    """

    name: str
    """In capitals, with UNSIGNED and ZEROFILL."""
    length: int | None
    scale: int | None


def declared_type(column: Column) -> SourceType | None:
    """Read the type that the catalog has, such as ``int(10) unsigned``; None without the catalog."""
    found = _TYPE.fullmatch(column.catalog.column_type) if column.catalog is not None else None
    if found is None:
        return None
    length, scale = (None if each is None else int(each) for each in found.group(2, 3))
    return SourceType(f"{found[1]}{found[4]}".upper(), length, scale)


def source_parameters(column: Column, source_type: SourceType, *, comments: bool) -> tuple[tuple[str, str], ...]:
    """Return the parameters that describe the source type of a column in its Connect schema."""
    name, length, scale = source_type
    found = [(_NAME, name)]
    if length is not None:
        found.append((_LENGTH, str(length)))
    if scale is not None:
        found.append((_SCALE, str(scale)))
    if comments and column.catalog is not None and column.catalog.comment:
        found.append((_COMMENT, column.catalog.comment))
    return (*found, (_OWN_NAME, column.name))
