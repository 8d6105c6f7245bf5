"""What a DDL statement does to a table or a database."""

from __future__ import annotations

from enum import Enum
from typing import NamedTuple

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
    """Rows are removed without row events: TRUNCATE, partitions that are dropped, truncated or exchanged, DISCARD
    TABLESPACE."""
    adds_rows_silently: bool = False
    """Rows are added without row events: an exchanged partition, IMPORT TABLESPACE."""
