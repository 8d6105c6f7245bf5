"""What the JDBC sink needs to know of a database: its types, its catalog and the statements of an upsert.

A dialect is a class with the entry point group ``tailrace.jdbc_dialects``; the name of the entry point is the part of
the URL that names the database: ``postgresql`` in ``jdbc:postgresql://host/db``.
"""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from importlib.metadata import entry_points
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.source.common_type import MAX_PRECISION

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

_DECIMAL: Final = re.compile(r"(?:decimal|numeric)\((\d+),(\d+)\)")
GROUP: Final = "tailrace.jdbc_dialects"
"""The entry point group."""


class Role(Enum):
    """What a column is for; it decides between the types that a database has for a Spark type."""

    VALUE = "value"
    KEY = "key"
    """Part of the key: compared exactly, and short enough for an index."""
    JSON = "JSON"
    """JSON text; its Spark type is string."""
    SEQUENCE = "sequence"
    """A sequence as 40 bytes; its Spark type is binary."""


class Rule(Enum):
    """Which rows of a staging table change the target."""

    LATER = "later"
    """Those whose sequence is greater than that of the row with the same key, and those without such a row."""
    ALWAYS = "always"
    """All of them; the key has the sequence."""
    NEW = "new"
    """Those whose key the target does not have; none is deleted."""


@dataclass(frozen=True, slots=True)
class StoredColumn:
    """A column that a table of the database has."""

    name: str
    declared: str
    """The type as in DDL."""
    kind: tp.DataType | None
    """A Spark type whose values the column represents; None if there is none."""
    nullable: bool = True
    required: bool = False
    """It has neither NULL nor a default."""
    generated: bool = False
    json: bool = False
    """Only JSON texts can be stored."""
    any_number: bool = False
    """All integers and decimals can be stored."""
    exact: bool = True
    """Different texts are different keys, perhaps but for spaces at their ends (``pads``)."""
    pads: bool = False
    """Texts that differ only in spaces at their ends are equal keys."""

    def kind_for(self, wanted: tp.DataType) -> tp.DataType | None:
        """Return the Spark type in which values of the type ``wanted`` are written."""
        if self.any_number and isinstance(wanted, (tp.DecimalType, tp.IntegralType)):
            return wanted
        return self.kind

    def written_as(self, wanted: tp.DataType) -> tp.DataType:
        """Return the same; ``wanted`` if there is none."""
        return self.kind_for(wanted) or wanted


@dataclass(frozen=True, slots=True)
class UniqueIndex:
    """A unique index; ``columns`` is empty if it is on expressions or on a part of the rows."""

    name: str
    columns: frozenset[str]
    primary: bool
    deferrable: bool = False
    constraint: bool = False


@dataclass(frozen=True, slots=True)
class StoredTable:
    """A table or view of the database."""

    name: str
    is_table: bool
    columns: tuple[StoredColumn, ...]
    unique: tuple[UniqueIndex, ...]

    def column(self, name: str) -> StoredColumn | None:
        """Return a column by its name; upper and lower case are the same unless both exist."""
        found = [each for each in self.columns if each.name.lower() == name.lower()]
        return next((each for each in found if each.name == name), found[0] if found else None)

    def spelled(self, name: str) -> str:
        """Return the name of a column as the table has it."""
        found = self.column(name)
        return name if found is None else found.name


@dataclass(frozen=True, slots=True)
class Merge:
    """An upsert from a staging table, with all names quoted. The staging table may have a row several times."""

    target: str
    stage: str
    columns: Mapping[str, str]
    """Column of the target to column of the staging table."""
    key: tuple[str, ...]
    """Columns of the target."""
    sequence: str
    """Column of both tables."""
    deleted: str
    """Column of the staging table."""
    cleared: tuple[str, ...] = ()
    """Columns of the target that become NULL in rows that change."""
    rule: Rule = Rule.LATER

    def match(self, target: str, stage: str) -> str:
        """Return the condition that a row of each table has the same key."""
        return " AND ".join(f"{target}.{name} = {stage}.{self.staged(name)}" for name in self.key)

    def staged(self, name: str) -> str:
        """Return the column of the staging table for one of the target; the sequence has one name in both."""
        return self.columns.get(name, name)


class Dialect(ABC):
    """One database. A new one for each sink."""

    driver: ClassVar[str]
    """The class of the JDBC driver."""
    jars: ClassVar[Sequence[str]] = ()
    """Maven coordinates of the driver."""
    properties: ClassVar[Mapping[str, str]] = {}
    """Connection properties of all sessions; the configuration overrides them."""
    verified: ClassVar[Mapping[str, str]] = {}
    """Connection properties with which the driver knows that the server is the one of the URL."""
    session: ClassVar[Sequence[str]] = ()
    """Statements at the start of each session of the driver."""
    transaction: ClassVar[Sequence[str]] = ()
    """Statements at the start of a transaction."""
    mark: ClassVar[str] = '"'
    """What quotes names; it is written twice in a name."""
    current: ClassVar[str] = "SELECT current_schema()"
    """The query of the schema of tables that name none."""
    types: ClassVar[Mapping[type[tp.DataType], str]]
    """Spark type to the type of a column that is not part of the key; decimals are NUMERIC(p,s)."""
    sequence_type: ClassVar[str]
    """The type of 40 bytes that compare byte by byte."""
    json_type: ClassVar[str]
    """The type of JSON texts."""
    stage_columns: ClassVar[Sequence[str]] = ()
    """Definitions of further columns of staging tables, which have values by themselves."""
    zone: ClassVar[str] = ""
    """What follows the text of a TIMESTAMP in UTC."""
    reading: ClassVar[Mapping[str, str]] = {}
    """Connection properties of executors that read rows."""
    max_name: ClassVar[int]
    """The greatest length of a name."""
    holds_nul: ClassVar[bool] = True
    """Whether texts can have the character U+0000."""

    def start(self, session: Session) -> None:  # noqa: B027 - most dialects need nothing
        """Read what depends on the server; called once, before everything else."""

    def quote(self, name: str) -> str:
        """Quote an identifier."""
        return f"{self.mark}{name.replace(self.mark, 2 * self.mark)}{self.mark}"

    def name_length(self, name: str) -> int:
        """Return the length of a name as ``max_name`` counts it."""
        return len(name)

    def column_type(self, kind: tp.DataType, role: Role, keys: int = 1) -> str:
        """Return the type of a new column for a Spark type; ``keys`` is the number of key columns."""
        if role is Role.KEY:
            return self.key_type(kind, keys)
        if role is Role.JSON:
            return self.json_type
        if role is Role.SEQUENCE:
            return self.sequence_type
        if isinstance(kind, tp.DecimalType):
            return f"NUMERIC({kind.precision},{kind.scale})"
        if type(kind) not in self.types:
            raise SinkError(
                f"the target database has no type for {kind.simpleString()}",
                hint="cast the column with transforms.<name>.projection, or exclude it with column.exclude.list in the "
                "producer",
            )
        return self.types[type(kind)]

    def key_type(self, kind: tp.DataType, keys: int) -> str:  # noqa: ARG002 - for dialects whose keys are short
        """Return the type of a key column."""
        return self.column_type(kind, Role.VALUE)

    def literal(self, text: str) -> str:
        """Return the literal of a text."""
        return "'" + text.replace("'", "''") + "'"

    @abstractmethod
    def binary(self, content: bytes) -> str:
        """Return a literal."""

    @abstractmethod
    def text_value(self, kind: tp.DataType) -> str:
        """Return the expression with one parameter ``?``, a text, whose value has a Spark type; binary is in hex."""

    @abstractmethod
    def text_of(self, column: str, kind: tp.DataType) -> str:
        """Return the expression that gives the value of a column as a text which Spark casts to the type.

        A TIMESTAMP is in UTC and without a zone; binary is in hex. ``column`` is quoted.
        """

    def has_schema(self, session: Session, schema: str) -> bool:
        """Return whether a schema exists."""
        return bool(session.query("SELECT 1 FROM information_schema.SCHEMATA WHERE SCHEMA_NAME = ?", schema))

    @abstractmethod
    def read_table(self, session: Session, schema: str, table: str) -> StoredTable | None:
        """Return a table or view; None if it does not exist."""

    def tables_like(self, session: Session, schema: str, start: str) -> list[str]:
        """Return the tables of a schema whose names start with a text."""
        statement = (
            "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = ? AND LEFT(TABLE_NAME, ?) = ?"
        )
        return [str(name) for (name,) in session.query(statement, schema, str(len(start)), start)]

    @abstractmethod
    def change_type(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that gives a column another type and NULL or NOT NULL; names are quoted."""

    @abstractmethod
    def drop_unique(self, schema: str, table: str, index: UniqueIndex) -> str:
        """Return the statement that removes a unique index."""

    @abstractmethod
    def merge(self, merge: Merge) -> Sequence[str]:
        """Return the statements that delete and upsert the rows of a staging table that the rule takes."""

    def table_name(self, schema: str, table: str) -> str:
        """Return the quoted name of a table."""
        return f"{self.quote(schema)}.{self.quote(table)}"

    def check_name(self, name: str, what: str) -> None:
        """Raise SinkError for a name that the database would refuse or cut off."""
        if self.name_length(name) > self.max_name or "\0" in name:
            fault = "has NUL" if "\0" in name else f"is too long for the target database, which allows {self.max_name}"
            raise SinkError(
                f"the name of {what} {fault}",
                hint="give it another name: a table with sink.table or routes.<name>.sink-table, a column with "
                "transforms.<name>.projection",
                name=name,
            )


def decimal_type(declared: str) -> tp.DataType | None:
    """Return the Spark type of a declared decimal; None if it is none, or Spark has no such decimal."""
    found = _DECIMAL.fullmatch(declared)
    return tp.DecimalType(int(found[1]), int(found[2])) if found and int(found[1]) <= MAX_PRECISION else None


def load_dialect(url: str) -> Dialect:
    """Return the dialect for a URL; raises ConfigError if there is none."""
    parts = url.split(":")
    found = {entry.name: entry for entry in entry_points(group=GROUP)}
    if len(parts) < 3 or parts[0] != "jdbc" or parts[1] not in found:
        raise ConfigError([f"sink.url: there is no dialect for it; use one of jdbc:{', jdbc:'.join(sorted(found))}"])
    entry = found[parts[1]]
    try:
        dialect = entry.load()()
    except (ImportError, AttributeError, TypeError) as error:
        problem = f"sink.url: the dialect {entry.name!r} cannot be loaded from {entry.value}: {error}"
        raise ConfigError([problem]) from error
    if not isinstance(dialect, Dialect):
        raise ConfigError([f"sink.url: {entry.value} is not a Dialect of the JDBC sink"])
    return dialect
