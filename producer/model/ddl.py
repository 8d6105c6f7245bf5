"""What a DDL statement does to a table or a database."""

from __future__ import annotations

from enum import Enum
from typing import Literal, NamedTuple

from tailrace.producer.model.table import TableId


class Change(Enum):
    """What happens to a table or a database."""

    CREATE = "CREATE"
    ALTER = "ALTER"
    DROP = "DROP"
    RENAME = "RENAME"
    """Also by ALTER TABLE, which may change the definition as well."""
    INDEX = "INDEX"
    TRUNCATE = "TRUNCATE"
    EXCHANGE = "EXCHANGE"
    """The rows of the table become a partition of another table, and the reverse."""
    DATABASE = "DATABASE"
    """CREATE or ALTER of a database."""
    DROP_DATABASE = "DROP_DATABASE"


class ColumnDefinition(NamedTuple):
    """A column as ADD, CHANGE and MODIFY define it, as far as it decides the values of rows that exist."""

    data_type: str
    """The name of the type in lower case as the catalog has it; '' if it is not known."""
    arguments: tuple[str, ...] = ()
    """Length, digits, or fraction digits; not the labels of ENUM and SET. Text: its size in bytes, or its length."""
    unsigned: bool = False
    """Also for ZEROFILL, which includes it."""
    nullable: bool = True
    default: str | None = None
    """The text of a literal default; None: NULL, or no default."""
    computed: bool = False
    """The value of a row that exists is computed: a default that is an expression, AUTO_INCREMENT, GENERATED."""
    labels: tuple[str, ...] | None = ()
    """Enum, set: the labels in order; None: not known."""


class ColumnAction(NamedTuple):
    """What an ALTER TABLE does to one column; a column has more than one action if it is changed and renamed."""

    kind: Literal["add", "drop", "rename", "modify", "convert"]
    """``convert``: CONVERT TO CHARACTER SET, for all columns."""
    column: str
    """The name after the statement; before it for ``drop``; '' for all columns."""
    old: str = ""
    """The name before the statement, for ``rename`` and ``modify``."""
    definition: ColumnDefinition | None = None
    """For ``add`` and ``modify``."""


class DdlEffect(NamedTuple):
    """The effect of a statement on one table or database."""

    change: Change
    table: TableId
    """The table after the statement; the table name is empty for a change of a database."""
    renamed_from: TableId | None
    """The table before a rename, else None."""
    sql: str
    """The statement, or the part of it that concerns this table."""
    removes_rows_silently: bool = False
    """Rows are removed without row events: TRUNCATE, partitions that are dropped, truncated, exchanged or converted to
    a table, DISCARD TABLESPACE."""
    adds_rows_silently: bool = False
    """Rows are added without row events: an exchanged partition, one that was a table, a table that was one (CREATE),
    IMPORT TABLESPACE."""
    columns: tuple[ColumnAction, ...] = ()
    """What ALTER TABLE does to columns."""
    keeps_rows: bool = False
    """ALTER TABLE: a copy with the new definition has all rows, also if INSERT IGNORE fills it."""
    may_exist: bool = False
    """CREATE TABLE IF NOT EXISTS: the server logs it also for a table that exists."""
