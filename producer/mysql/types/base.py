"""What every type family offers: a Connect schema, a SELECT expression, and source text that decodes a value.

A family writes Python source, not values: the codec puts the expressions of all columns into one straight-line function
per table version. Inside that function ``B`` is the buffer and ``S`` the same buffer decoded as latin-1, so that one
character is one byte and UTF-8 passes through untouched.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from enum import Enum, auto
from typing import Any, ClassVar, Generic, NamedTuple, TypeVar

from tailrace.producer.model.table import Column, quote
from tailrace.producer.model.value_options import ValueOptions
from tailrace.schemas.connect import ConnectSchema

NULL = "null"
"""What a decoding expression yields for a value that the table stores and Debezium has no value for (zero dates)."""

CACHE_ENTRIES = 65_536
"""Bound of every memo dictionary: beyond it the dictionary starts anew."""

Bind = Callable[[str, Any], str]
"""Makes an object known to the generated source: ``bind(hint, object)`` returns its name there."""


class ExpressionKind(Enum):
    """What an expression yields, so that a writer (JSON now) knows how to print it."""

    DIGITS = auto()
    """str: an integer in decimal digits."""
    INT = auto()
    """int, or ``NULL``."""
    FLOAT32 = auto()
    """float that holds a 32-bit value."""
    FLOAT64 = auto()
    """float."""
    PLAIN = auto()
    """str that needs quotes and never an escape."""
    TEXT = auto()
    """str of UTF-8 bytes that needs quotes and perhaps escapes."""
    NON_UTF8_TEXT = auto()
    """The same in a character set that equals UTF-8 in ASCII only; ``Expression.transcode`` converts it."""
    BYTES = auto()
    """bytes."""
    JSON = auto()
    """str: a JSON fragment with whatever quotes it needs, or ``NULL``."""


class Expression(NamedTuple):
    """A decoded value as source text."""

    expr: str
    kind: ExpressionKind
    transcode: Callable[[str], str] | None = None
    """For ``NON_UTF8_TEXT``: converts the bytes of the column's character set to UTF-8, both one character per byte."""


class RawBytes(NamedTuple):
    """Where a value's bytes are: the variables of its bounds, or of its parts where its width is fixed."""

    bind: Bind
    start: str = ""
    end: str = ""
    parts: tuple[str, ...] = ()

    @property
    def text(self) -> str:
        """Return the source of the value's bytes as latin-1 text."""
        return f"S[{self.start}:{self.end}]"

    @property
    def data(self) -> str:
        """Return the source of the value's bytes."""
        return f"B[{self.start}:{self.end}]"


class FixedWidth(NamedTuple):
    """A binlog value of fixed width: little-endian struct codes, one variable each."""

    codes: tuple[str, ...]


class LengthPrefixed(NamedTuple):
    """A binlog value behind its length in ``width`` little-endian bytes."""

    width: int


Layout = FixedWidth | LengthPrefixed


class ColumnType(ABC):
    """One column's type, with the settings that apply to it."""

    kinds: ClassVar[tuple[str, ...]]
    """The ``Column.data_type`` that the family serves."""

    def __init__(self, column: Column, settings: ValueOptions) -> None:
        self.column = column
        self.settings = settings

    @abstractmethod
    def connect(self) -> ConnectSchema:
        """Return the Connect schema of a NOT NULL column without default."""

    @property
    def select(self) -> str:
        """Return the SQL expression whose text ``from_result_set`` reads; the session is in UTC and utf8mb4."""
        return quote(self.column.name)

    @property
    @abstractmethod
    def layout(self) -> Layout:
        """Return how a value lies in a row image."""

    @abstractmethod
    def from_result_set(self, raw: RawBytes) -> Expression:
        """Return source that decodes the text protocol's bytes."""

    @abstractmethod
    def from_row_image(self, raw: RawBytes) -> Expression:
        """Return source that decodes a row image's bytes: bounds when prefixed, parts when fixed."""

    @abstractmethod
    def key_from_row_image(self, raw: RawBytes) -> str:
        """Return source of the raw key value, as ``model.codec.KeyValue`` says."""


K = TypeVar("K")
V = TypeVar("V")


class Cache(dict[K, V], Generic[K, V]):
    """A bounded dictionary that computes what it misses: ``memo[key]`` costs one look-up once known."""

    __slots__ = ("_compute",)

    def __init__(self, compute: Callable[[K], V]) -> None:
        super().__init__()
        self._compute = compute

    def __missing__(self, key: K) -> V:
        if len(self) >= CACHE_ENTRIES:
            self.clear()
        value = self._compute(key)
        self[key] = value
        return value
