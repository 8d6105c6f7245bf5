"""MySQL as a target of the JDBC sink. DDL statements are transactions of their own there."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

from pyspark.sql import types as tp

from tailrace.spark_consumer.sink.jdbc_dialect import (
    Dialect,
    Merge,
    Role,
    Rule,
    StoredColumn,
    StoredTable,
    UniqueIndex,
    decimal_type,
)

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

_STORED: Final[Mapping[str, tp.DataType]] = {
    "smallint": tp.ShortType(),
    "mediumint": tp.ShortType(),
    "int": tp.IntegerType(),
    "bigint": tp.LongType(),
    "float": tp.FloatType(),
    "double": tp.DoubleType(),
    "varchar": tp.StringType(),
    "tinytext": tp.StringType(),
    "text": tp.StringType(),
    "mediumtext": tp.StringType(),
    "longtext": tp.StringType(),
    "json": tp.StringType(),
    "varbinary": tp.BinaryType(),
    "tinyblob": tp.BinaryType(),
    "blob": tp.BinaryType(),
    "mediumblob": tp.BinaryType(),
    "longblob": tp.BinaryType(),
    "date": tp.DateType(),
}
_WHOLE: Final[Mapping[str, tp.DataType]] = {
    "tinyint(1)": tp.BooleanType(),
    "datetime(6)": tp.TimestampNTZType(),
    "timestamp(6)": tp.TimestampType(),
}
_INDEX_BYTES: Final = 3072
"""The longest key of InnoDB."""
_TEXT_BYTES: Final = 4
"""Bytes of a character of utf8mb4."""
_UTF8: Final = "utf8mb4"
_EXACT: Final = ("utf8mb4_0900_bin", "utf8mb4_nopad_bin", "utf8mb4_bin")
"""Collations that compare by code point; all but the last one tell texts by spaces at their ends."""
_PADS: Final = _EXACT[-1]

_TABLE: Final = """
SELECT TABLE_NAME, TABLE_TYPE = 'BASE TABLE' FROM information_schema.TABLES
WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ?"""
_COLUMNS: Final = """
SELECT COLUMN_NAME, COLUMN_TYPE, CHARACTER_SET_NAME, COLLATION_NAME, IS_NULLABLE = 'YES',
  COLUMN_DEFAULT IS NOT NULL OR EXTRA LIKE '%auto_increment%' OR EXTRA LIKE '%DEFAULT_GENERATED%',
  EXTRA LIKE '% GENERATED%'
FROM information_schema.COLUMNS WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? ORDER BY ORDINAL_POSITION"""
_INDEXES: Final = """
SELECT INDEX_NAME, COLUMN_NAME, SUB_PART IS NOT NULL FROM information_schema.STATISTICS
WHERE TABLE_SCHEMA = ? AND TABLE_NAME = ? AND NON_UNIQUE = 0 ORDER BY INDEX_NAME, SEQ_IN_INDEX"""
_MODE: Final = "STRICT_ALL_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_ENGINE_SUBSTITUTION"


class MySqlDialect(Dialect):
    """MySQL 8.0 and later."""

    driver = "com.mysql.cj.jdbc.Driver"
    jars = ("com.mysql:mysql-connector-j:9.5.0",)
    properties: ClassVar = {
        "rewriteBatchedStatements": "true",
        "characterEncoding": "UTF-8",
        # A value that does not fit is an error; TIMESTAMP values are written in UTC.
        "sessionVariables": f"sql_mode='{_MODE}',time_zone='+00:00'",
        "tinyInt1isBit": "false",
    }
    verified: ClassVar = {"sslMode": "VERIFY_IDENTITY"}
    # Without a cursor the driver takes all rows of a query into memory.
    reading: ClassVar = {"useCursorFetch": "true"}
    session: ClassVar = ("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",)
    mark = "`"
    current = "SELECT DATABASE()"
    # Servers can require a primary key of each table.
    stage_columns: ClassVar = ("`n` BIGINT NOT NULL AUTO_INCREMENT PRIMARY KEY",)
    types: ClassVar = {
        tp.BooleanType: "TINYINT(1)",
        tp.ByteType: "SMALLINT",
        tp.ShortType: "SMALLINT",
        tp.IntegerType: "INT",
        tp.LongType: "BIGINT",
        tp.FloatType: "FLOAT",
        tp.DoubleType: "DOUBLE",
        tp.StringType: f"LONGTEXT CHARACTER SET {_UTF8}",
        tp.BinaryType: "LONGBLOB",
        tp.DateType: "DATE",
        tp.TimestampNTZType: "DATETIME(6)",
        tp.TimestampType: "TIMESTAMP(6)",
    }
    json_type = "JSON"
    sequence_type = "VARBINARY(40)"
    max_name = 64

    def __init__(self) -> None:
        self._collation = _EXACT[0]

    def start(self, session: Session) -> None:
        """Choose the collation of text keys: the first one that the server has."""
        marks = ", ".join("?" for _ in _EXACT)
        found = session.query(
            f"SELECT COLLATION_NAME FROM information_schema.COLLATIONS WHERE COLLATION_NAME IN ({marks})", *_EXACT
        )
        known = {name for (name,) in found}
        self._collation = next(name for name in _EXACT if name in known)

    def column_type(self, kind: tp.DataType, role: Role, keys: int = 1) -> str:
        """Return the type of a new column."""
        if isinstance(kind, tp.DecimalType):
            return f"DECIMAL({kind.precision},{kind.scale})"
        return super().column_type(kind, role, keys)

    def key_type(self, kind: tp.DataType, keys: int) -> str:
        """Return a type that an index can have as a whole, with texts that compare exactly."""
        if isinstance(kind, tp.StringType):
            length = _INDEX_BYTES // _TEXT_BYTES // keys
            return f"VARCHAR({length}) CHARACTER SET {_UTF8} COLLATE {self._collation}"
        if isinstance(kind, tp.BinaryType):
            return f"VARBINARY({_INDEX_BYTES // keys})"
        return self.column_type(kind, Role.VALUE)

    def literal(self, text: str) -> str:
        """Return the literal of a text, in which a backslash begins an escape."""
        return super().literal(text.replace("\\", "\\\\"))

    def binary(self, content: bytes) -> str:
        """Return a literal."""
        return f"x'{content.hex()}'"

    def text_value(self, kind: tp.DataType) -> str:
        """Return a parameter: the server converts texts to the type of the column."""
        return "UNHEX(?)" if isinstance(kind, tp.BinaryType) else "?"

    def text_of(self, column: str, kind: tp.DataType) -> str:
        """Return a value as text."""
        if isinstance(kind, tp.BinaryType):
            return f"HEX({column})"
        if isinstance(kind, tp.FloatType):
            return f"({column} + 0e0)"  # the text of a FLOAT has six digits only
        return column if isinstance(kind, (tp.StringType, tp.DoubleType)) else f"CAST({column} AS CHAR)"

    def read_table(self, session: Session, schema: str, table: str) -> StoredTable | None:
        """Return a table or view; None if it does not exist."""
        found = session.query(_TABLE, schema, table)
        if not found:
            return None
        [(name, is_table)] = found
        columns = tuple(_column(*row) for row in session.query(_COLUMNS, schema, table))
        parts: dict[str, set[str]] = defaultdict(set)
        partial = set()
        for index, column, is_part in session.query(_INDEXES, schema, table):
            parts[str(index)].add(column or "")
            if column is None or is_part == "1":
                partial.add(str(index))
        unique = tuple(
            UniqueIndex(index, frozenset() if index in partial else frozenset(names), index == "PRIMARY")
            for index, names in parts.items()
        )
        return StoredTable(str(name), is_table == "1", columns, unique)

    def change_type(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that gives a column another type."""
        return f"ALTER TABLE {table} MODIFY COLUMN {column} {declared} {'NULL' if nullable else 'NOT NULL'}"

    def drop_unique(self, schema: str, table: str, index: UniqueIndex) -> str:
        """Return the statement that removes a unique index."""
        return f"ALTER TABLE {self.table_name(schema, table)} DROP INDEX {self.quote(index.name)}"

    def merge(self, merge: Merge) -> Sequence[str]:
        """Return a DELETE, and an INSERT that updates rows that exist.

        ON DUPLICATE KEY holds for every unique index. A row that is found by another one has another key: it would get
        no sequence, which is NOT NULL, so that the statement fails. Assignments are evaluated in their order.
        """
        names, seq, own = list(merge.columns), merge.sequence, merge.target
        changes = {
            Rule.LATER: f"VALUES({own}.{seq}) > {own}.{seq}",
            Rule.ALWAYS: "TRUE",
            Rule.NEW: "FALSE",
        }[merge.rule]
        same = " AND ".join(f"{own}.{name} = VALUES({own}.{name})" for name in merge.key)
        others = [] if merge.rule is Rule.NEW else [name for name in names if name not in merge.key]
        sets = [f"{own}.{name} = IF({changes}, VALUES({own}.{name}), {own}.{name})" for name in others]
        sets += [f"{own}.{name} = IF({changes}, NULL, {own}.{name})" for name in merge.cleared]
        sets.append(f"{own}.{seq} = IF({same}, IF({changes}, VALUES({own}.{seq}), {own}.{seq}), NULL)")
        # With an alias for the target the statement would need a current database.
        delete = (
            f"DELETE {merge.target} FROM {merge.target} JOIN {merge.stage} AS s ON {merge.match(merge.target, 's')} "
            f"WHERE s.{merge.deleted}" + (f" AND {own}.{seq} < s.{seq}" if merge.rule is Rule.LATER else "")
        )
        upsert = (
            f"INSERT INTO {merge.target} ({', '.join((*names, seq))}) "
            f"SELECT {', '.join(f's.{name}' for name in (*merge.columns.values(), seq))} "
            f"FROM {merge.stage} AS s WHERE NOT s.{merge.deleted} ON DUPLICATE KEY UPDATE {', '.join(sets)}"
        )
        return (upsert,) if merge.rule is Rule.NEW else (delete, upsert)


def _column(
    name: str | None, declared: str | None, charset: str | None, collation: str | None, *flags: str | None
) -> StoredColumn:
    nullable, has_default, generated = (flag == "1" for flag in flags)
    shown = (declared or "").lower()
    base = re.sub(r"\(\d+\)$", "", shown)
    kind = _WHOLE.get(shown) or decimal_type(shown) or _STORED.get(base)
    if base == "tinyint" and kind is None:
        kind = tp.ByteType()
    if charset is not None and charset != _UTF8:
        kind = None  # other character sets lack characters
    return StoredColumn(
        name or "",
        shown if collation is None else f"{shown} CHARACTER SET {charset} COLLATE {collation}",
        kind,
        nullable=nullable,
        required=not nullable and not has_default,
        generated=generated,
        json=base == "json",
        exact=collation is None or collation in _EXACT,
        pads=collation == _PADS,
    )
