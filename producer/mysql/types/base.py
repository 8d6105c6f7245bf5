"""What a column type is: one class per family of types, with everything that depends on the type.

Class attributes and class methods describe the type in the catalog, in TABLE_MAP events, in keys, defaults and schema
changes. Instances serve one column: its Connect schema, its SELECT expression, the functions that decode its values,
and the facts by which the compiled extension decodes them itself.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from tailrace.producer.model.codec import KeyValue
from tailrace.producer.model.table import Column, SourceType, declared_type, quote
from tailrace.producer.model.value_options import ValueOptions
from tailrace.producer.mysql.types.conversion import Conversion
from tailrace.schemas.connect import ConnectSchema

CACHE_ENTRIES = 65_536
"""Bound of every cache; a full cache is cleared."""


class ValueKind(Enum):
    """What ``Value.decode`` returns, so that a form (JSON, Avro) knows how to write it."""

    DIGITS = auto()
    """bytes: an integer in decimal digits."""
    INT = auto()
    """int."""
    FLOAT32 = auto()
    """float that holds a 32-bit value."""
    FLOAT64 = auto()
    """float."""
    BOOLEAN = auto()
    """bool."""
    PLAIN = auto()
    """bytes of ASCII text that never needs an escape."""
    TEXT = auto()
    """bytes of UTF-8."""
    BYTES = auto()
    """bytes."""
    JSON = auto()
    """bytes: a JSON value with whatever quotes it needs."""


class Value(NamedTuple):
    """How a value is decoded."""

    kind: ValueKind
    decode: Callable[[bytes], Any] = bytes
    """From the bytes of a result set, or of a row image without their length. None: the table stores a value that
    Debezium has none for (a zero date), which is written as NULL."""
    printed: Callable[[bytes], bytes] | None = None
    """From the same bytes to JSON, where one call is cheaper than two."""


class Fast(NamedTuple):
    """The facts by which the compiled extension decodes a value itself; it calls ``Value.decode`` for other values."""

    kind: str
    """How the bytes are read: see ``native/values.pxi``."""
    unit: int = 0
    """Nanoseconds of one unit of a time; 0: ISO text."""
    adjust: int = 0
    """What happens to years below 100: 0 nothing, 1 they are adjusted, 2 the extension leaves them to Python."""
    exact: bool = False
    """The extension leaves a value that the unit cuts to Python. JSON: doubles without fraction have no point."""
    zero: bytes | None = None
    """A zero date as a result set has it, if it is written without being counted."""
    scale: int = 0
    """Digits after the point of a decimal, or of a fraction."""
    whole_digits: int = 0
    """Digits of a decimal before the point."""
    signed: bool = False
    least: int = 0
    """The extension leaves a shorter value to Python."""
    labels: int = 0
    """The number of ordinals of an enumeration."""


class Layout(NamedTuple):
    """How a value lies in a row image."""

    width: int
    """Its bytes; 0: they follow their length."""
    prefix: int = 0
    """Little-endian bytes of the length."""


class KeyKind(Enum):
    """How the values of a key column are selected, written as a literal and compared."""

    INTEGER = auto()
    """int; bounds can be computed."""
    NUMBER = auto()
    """int; bounds are selected."""
    DECIMAL = auto()
    """Decimal."""
    BINARY = auto()
    """bytes, compared as they are."""
    TEXT = auto()
    """bytes, compared by the collation of the column."""
    TEMPORAL = auto()
    """str in ISO form."""


class CatalogRow(NamedTuple):
    """A column in information_schema.COLUMNS. Names of types are in lower case."""

    name: str
    nullable: bool
    data_type: str
    """``Column.data_type``."""
    native_type: str
    """DATA_TYPE: one of ``ColumnType.catalog_names``."""
    column_type: str
    """COLUMN_TYPE, with lengths and attributes."""
    octets: int
    """CHARACTER_OCTET_LENGTH."""
    precision: int
    scale: int
    fsp: int
    charset: str


class BinlogOption(Enum):
    """Which list of the optional metadata of a TABLE_MAP event has an entry for the columns of a type."""

    NONE = auto()
    SIGN = auto()
    SIGN_OF_YEAR = auto()
    """A sign on servers of 8.0.21 and newer only."""
    CHARSET = auto()
    BINARY_CHARSET = auto()
    """A character set that is always binary; servers may omit it."""
    LABELS = auto()
    SHAPE = auto()


class BinlogType(NamedTuple):
    """A type code of TABLE_MAP events."""

    code: int
    data_type: str
    """``Column.data_type``; ``ColumnType.from_binlog`` may choose another one of the family."""
    metadata_bytes: int = 0
    option: BinlogOption = BinlogOption.NONE


class BinlogColumn(NamedTuple):
    """A column in a TABLE_MAP event."""

    name: str
    nullable: bool
    type: BinlogType
    metadata: bytes = b""
    unsigned: bool = False
    charset: str = ""
    labels: tuple[str, ...] = ()
    shape: int | None = None
    """Type of a spatial column, as in WKB."""
    bare_doubles: bool = False
    """``Column.bare_doubles``."""


JDBC_OTHER = 1111
"""``java.sql.Types.OTHER``."""


class ColumnType(ABC):
    """One column's type, with the settings that apply to it."""

    data_types: ClassVar[tuple[str, ...]]
    """The values of ``Column.data_type`` that the family serves."""
    catalog_names: ClassVar[Mapping[str, str]] = {}
    """Other names of the types in information_schema, with their ``data_type``."""
    binlog_types: ClassVar[tuple[BinlogType, ...]] = ()
    old_binlog_codes: ClassVar[Mapping[int, str]] = {}
    """Codes of formats of MySQL 5.5 and before, which tables keep until they are rebuilt; they are rejected."""
    jdbc_types: ClassVar[Mapping[str, int]] = {}
    """Codes of java.sql.Types by ``data_type``; ``JDBC_OTHER`` for all others."""
    key_kinds: ClassVar[Mapping[str, KeyKind]] = {}
    """By ``data_type``: types whose ranges can be split and compared."""
    is_text: ClassVar[bool] = False
    """Values are text in a character set; Debezium masks no others."""
    has_labels: ClassVar[bool] = False
    """ENUM and SET."""
    allows_current_timestamp: ClassVar[bool] = False
    """The default may be CURRENT_TIMESTAMP without parentheses."""

    @classmethod
    def from_catalog(cls, row: CatalogRow) -> Column:
        """Return the column that a row of the catalog describes, without its ``catalog`` part."""
        return Column(row.name, row.data_type, row.nullable)

    @classmethod
    def from_binlog(cls, column: BinlogColumn) -> Column:
        """Return the column that a TABLE_MAP event describes."""
        return Column(column.name, column.type.data_type, column.nullable, column.unsigned)

    @classmethod
    def known_length(cls, column: Column) -> int | None:
        """Return the length that both catalog and binlog contain; None if there is none. The unit is Debezium's."""
        return column.fsp or None

    @classmethod
    def source_type(cls, column: Column) -> SourceType:
        """Return the type as SHOW CREATE TABLE has it; without the catalog, as close as the binlog allows."""
        return declared_type(column) or SourceType(column.data_type.upper(), cls.known_length(column), None)

    @classmethod
    def declared_sizes(cls, arguments: Sequence[str]) -> tuple[int | None, int | None]:
        """Return length and scale for a schema change, from the list in parentheses after the type."""
        numbers = [int(argument) for argument in arguments if argument.isdigit()]
        return (numbers[0] if numbers else None), (numbers[1] if len(numbers) > 1 else None)

    @classmethod
    def default_bytes(cls, column: Column, text: str) -> bytes:  # noqa: ARG003 - for families that need the column
        """Return a literal default of the catalog as a result set would contain the value."""
        return text.encode()

    @classmethod
    def current_timestamp(cls, column: Column) -> bytes | None:  # noqa: ARG003
        """Return what Debezium writes for the default CURRENT_TIMESTAMP; None for no default."""
        return None

    @classmethod
    def default_integer(cls, column: Column, value: int) -> int:  # noqa: ARG003
        """Return an integer default as Debezium writes it in schemas."""
        return value

    def __init__(self, column: Column, settings: ValueOptions, conversion: Conversion | None = None) -> None:
        """``conversion`` decides about inexact values; None: the type decodes defaults, no values of rows."""
        self.column = column
        self.settings = settings
        self.conversion = conversion

    @property
    def in_key(self) -> bool:
        """Whether the record key contains the column."""
        return self.conversion is not None and self.conversion.in_key

    @abstractmethod
    def connect(self) -> ConnectSchema:
        """Return the Connect schema of a NOT NULL column without default."""

    @property
    def select(self) -> str:
        """Return the SQL expression whose text ``from_text`` reads; the session is in UTC and utf8mb4."""
        return quote(self.column.name)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Return how a value lies in a row image."""

    @abstractmethod
    def from_text(self) -> Value:
        """Return how the bytes of a result set are decoded."""

    @abstractmethod
    def from_image(self) -> Value:
        """Return how the bytes of a row image are decoded."""

    @abstractmethod
    def raw_key(self) -> Callable[[bytes], KeyValue]:
        """Return the function from the bytes of a row image to the raw key value."""

    def fast_text(self) -> Fast | None:
        """Return how the extension reads the bytes of a result set; None: it calls ``from_text``."""
        return None

    def fast_image(self) -> Fast | None:
        """Return how the extension reads the bytes of a row image; None: it calls ``from_image``."""
        return None

    @property
    def may_replace(self) -> bool:
        """Whether a value may be replaced, and then counted, by ``conversion``."""
        return False


K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V], Generic[K, V]):
    """A bounded dictionary that computes what it misses: ``memo[key]`` costs one look-up once known."""

    __slots__ = ("_compute", "_stores")

    def __init__(self, compute: Callable[[K], V], stores: Callable[[K], bool] | None = None) -> None:
        """``stores`` returns False for keys that are computed at every look-up."""
        super().__init__()
        self._compute = compute
        self._stores = stores

    def __missing__(self, key: K) -> V:
        if self._stores is not None and not self._stores(key):
            return self._compute(key)
        if len(self) >= CACHE_ENTRIES:
            self.clear()
        value = self._compute(key)
        self[key] = value
        return value
