"""PostgreSQL as a target of the JDBC sink; also the example for other dialects."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, ClassVar, Final

import orjson
from pyspark.sql import types as tp

from tailrace.spark_consumer.sink.jdbc_dialect import (
    Dialect,
    Merge,
    Rule,
    StoredColumn,
    StoredTable,
    UniqueIndex,
    decimal_type,
)

if TYPE_CHECKING:
    from tailrace.spark_consumer.sink.jdbc_session import Session

_STORED: Final[Mapping[str, tp.DataType]] = {
    "boolean": tp.BooleanType(),
    "smallint": tp.ShortType(),
    "integer": tp.IntegerType(),
    "bigint": tp.LongType(),
    "real": tp.FloatType(),
    "double precision": tp.DoubleType(),
    "text": tp.StringType(),
    "character varying": tp.StringType(),
    "json": tp.StringType(),
    "jsonb": tp.StringType(),
    "bytea": tp.BinaryType(),
    "date": tp.DateType(),
    "timestamp without time zone": tp.TimestampNTZType(),
    "timestamp(6) without time zone": tp.TimestampNTZType(),
    "timestamp with time zone": tp.TimestampType(),
    "timestamp(6) with time zone": tp.TimestampType(),
}

_TABLE: Final = """
SELECT c.oid, c.relkind IN ('r', 'p') FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
WHERE n.nspname = ? AND c.relname = ? AND c.relkind IN ('r', 'p', 'v', 'm', 'f')"""
_COLUMNS: Final = """
SELECT a.attname, format_type(a.atttypid, a.atttypmod), NOT a.attnotnull, a.atthasdef OR a.attidentity <> '',
  a.attgenerated <> '' OR a.attidentity = 'a',
  COALESCE((SELECT collisdeterministic FROM pg_collation WHERE oid = a.attcollation), true)
FROM pg_attribute a WHERE a.attrelid = CAST(? AS oid) AND a.attnum > 0 AND NOT a.attisdropped ORDER BY a.attnum"""
_INDEXES: Final = """
SELECT r.relname, i.indisprimary, NOT i.indimmediate, EXISTS (SELECT 1 FROM pg_constraint WHERE conindid = r.oid),
  CASE WHEN i.indpred IS NULL AND i.indexprs IS NULL AND i.indisvalid THEN (
    SELECT json_agg(a.attname) FROM pg_attribute a
    WHERE a.attrelid = i.indrelid AND a.attnum = ANY (i.indkey[0 : i.indnkeyatts - 1])) ELSE '[]' END
FROM pg_index i JOIN pg_class r ON r.oid = i.indexrelid WHERE i.indrelid = CAST(? AS oid) AND i.indisunique"""


class PostgresDialect(Dialect):
    """PostgreSQL 12 and later."""

    driver = "org.postgresql.Driver"
    jars = ("org.postgresql:postgresql:42.7.8",)
    properties: ClassVar = {
        # Texts become values of the column's type: dates, times and JSON are written as texts.
        "stringtype": "unspecified",
        "reWriteBatchedInserts": "true",
        "ApplicationName": "tailrace",
    }
    verified: ClassVar = {"sslmode": "verify-full"}
    holds_nul = False
    session: ClassVar = ("SET DateStyle TO ISO", "SET standard_conforming_strings TO on")
    transaction: ClassVar = ("SET CONSTRAINTS ALL DEFERRED",)
    types: ClassVar = {
        tp.BooleanType: "BOOLEAN",
        tp.ByteType: "SMALLINT",
        tp.ShortType: "SMALLINT",
        tp.IntegerType: "INTEGER",
        tp.LongType: "BIGINT",
        tp.FloatType: "REAL",
        tp.DoubleType: "DOUBLE PRECISION",
        tp.StringType: "TEXT",
        tp.BinaryType: "BYTEA",
        tp.DateType: "DATE",
        tp.TimestampNTZType: "TIMESTAMP(6)",
        tp.TimestampType: "TIMESTAMP(6) WITH TIME ZONE",
    }
    # JSONB has no \u0000, and its texts are not those of the source.
    json_type = "JSON"
    sequence_type = "BYTEA"
    zone = "+00"
    max_name = 63

    def name_length(self, name: str) -> int:
        """Return the number of bytes: a longer name would be cut off."""
        return len(name.encode())

    def binary(self, content: bytes) -> str:
        """Return a literal."""
        return f"'\\x{content.hex()}'::bytea"

    def text_value(self, kind: tp.DataType) -> str:
        """Return a parameter in the type of a column."""
        if isinstance(kind, tp.BinaryType):
            return "decode(CAST(? AS text), 'hex')"
        declared = self.types.get(type(kind), "NUMERIC")
        return f"CAST(? AS {declared})"

    def text_of(self, column: str, kind: tp.DataType) -> str:
        """Return a value as text, however the session shows it."""
        if isinstance(kind, tp.BinaryType):
            return f"encode({column}, 'hex')"
        if isinstance(kind, tp.TimestampType):
            column = f"{column} AT TIME ZONE 'UTC'"
        return f"CAST({column} AS text)"

    def has_schema(self, session: Session, schema: str) -> bool:
        """Return whether a schema exists."""
        return bool(session.query("SELECT 1 FROM pg_namespace WHERE nspname = ?", schema))

    def read_table(self, session: Session, schema: str, table: str) -> StoredTable | None:
        """Return a table or view; None if it does not exist."""
        found = session.query(_TABLE, schema, table)
        if not found:
            return None
        [(oid, is_table)] = found
        columns = tuple(
            _column(str(name), str(declared), [flag == "t" for flag in flags])
            for name, declared, *flags in session.query(_COLUMNS, str(oid))
        )
        unique = tuple(
            UniqueIndex(str(name), frozenset(orjson.loads(names or "[]")), *(flag == "t" for flag in flags))
            for name, *flags, names in session.query(_INDEXES, str(oid))
        )
        return StoredTable(table, is_table == "t", columns, unique)

    def tables_like(self, session: Session, schema: str, start: str) -> list[str]:
        """Return the tables of a schema whose names start with a text."""
        statement = "SELECT tablename FROM pg_tables WHERE schemaname = ? AND starts_with(tablename, CAST(? AS text))"
        return [str(name) for (name,) in session.query(statement, schema, start)]

    def change_type(self, table: str, column: str, declared: str, *, nullable: bool) -> str:
        """Return the statement that gives a column another type."""
        null = f"ALTER COLUMN {column} {'DROP' if nullable else 'SET'} NOT NULL"
        return f"ALTER TABLE {table} ALTER COLUMN {column} TYPE {declared} USING {column}::{declared}, {null}"

    def drop_unique(self, schema: str, table: str, index: UniqueIndex) -> str:
        """Return the statement that removes a unique index; one of a constraint is removed with the constraint."""
        if index.constraint:
            return f"ALTER TABLE {self.table_name(schema, table)} DROP CONSTRAINT {self.quote(index.name)}"
        return f"DROP INDEX {self.table_name(schema, index.name)}"

    def merge(self, merge: Merge) -> Sequence[str]:
        """Return a DELETE, and an INSERT that updates rows that exist."""
        names, seq = list(merge.columns), merge.sequence
        sets = [f"{name} = EXCLUDED.{name}" for name in (*names, seq)] + [f"{name} = NULL" for name in merge.cleared]
        distinct = ", ".join(map(merge.staged, merge.key))
        is_later = merge.rule is Rule.LATER
        delete = (
            f"DELETE FROM {merge.target} AS t USING {merge.stage} AS s "
            f"WHERE s.{merge.deleted} AND {merge.match('t', 's')}" + (f" AND t.{seq} < s.{seq}" if is_later else "")
        )
        change = f"DO UPDATE SET {', '.join(sets)}" + (f" WHERE t.{seq} < EXCLUDED.{seq}" if is_later else "")
        upsert = (
            f"INSERT INTO {merge.target} AS t ({', '.join((*names, seq))}) "
            f"SELECT DISTINCT ON ({distinct}) {', '.join((*merge.columns.values(), seq))} "
            f"FROM {merge.stage} WHERE NOT {merge.deleted} "
            f"ON CONFLICT ({', '.join(merge.key)}) {'DO NOTHING' if merge.rule is Rule.NEW else change}"
        )
        return (upsert,) if merge.rule is Rule.NEW else (delete, upsert)


def _column(name: str, declared: str, flags: Sequence[bool]) -> StoredColumn:
    nullable, has_default, generated, exact = flags
    base = re.sub(r"^character varying\(\d+\)$", "character varying", declared)
    return StoredColumn(
        name,
        declared,
        decimal_type(declared) or _STORED.get(base),
        nullable=nullable,
        required=not nullable and not has_default,
        generated=generated,
        json=declared in {"json", "jsonb"},
        any_number=declared == "numeric",
        exact=exact,
    )
