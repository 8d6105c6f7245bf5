"""The databases, tables and columns that are captured, and how column values are transformed."""

from __future__ import annotations

from functools import cached_property
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.producer.config.column_transforms import read_rule
from tailrace.producer.config.filters import MessageKeys, TableFilter
from tailrace.producer.config.value_types import EXPRESSIONS, MESSAGE_KEYS
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, patterns, supported
from tailrace.runtime.config.value_types import BOOLEAN, one_of

TablesWithoutKey = Literal["refuse", "full-row"]

_DATABASES: Final = "Databases to capture (empty: all), and those that are not captured."
_TABLES: Final = "The same for tables, as `db.table`."
_COLUMNS: Final = "The same for columns, as `db.table.column`; key columns must be captured."
_NO_SCHEMAS = "MySQL has databases, not schemas; use database.{}.list"
_NO_LIMIT = "the number of tables is not limited"


def _transform(name: str, doc: str) -> Property:
    return Property(name, doc, EXPRESSIONS, check=read_rule)


class FiltersConfig(Section):
    """Regular expressions as given, and the filters that are built from them."""

    database_include: str = supported(
        "database.include.list",
        EXPRESSIONS,
        default="",
        doc=_DATABASES,
    )
    database_exclude: str = supported(
        "database.exclude.list",
        EXPRESSIONS,
        default="",
        doc=_DATABASES,
    )
    table_include: str = supported("table.include.list", EXPRESSIONS, default="", doc=_TABLES)
    table_exclude: str = supported("table.exclude.list", EXPRESSIONS, default="", doc=_TABLES)
    ignore_built_in: bool = supported(
        "table.ignore.builtin",
        BOOLEAN,
        default="true",
        doc="Whether the system databases are excluded.",
    )
    tables_without_key: TablesWithoutKey = supported(
        "tailrace.tables.without.key",
        one_of(TablesWithoutKey),
        default="refuse",
        doc="A table with neither a primary key nor a unique key on NOT NULL columns is an error (refuse), or all "
        "columns are its key (full-row).",
    )
    message_key_columns: str = supported(
        "message.key.columns",
        MESSAGE_KEYS,
        default="",
        doc="Key columns in place of the primary key, as `db.table:column,column;db.other:column` (regular "
        "expressions of tables).",
    )
    column_include: str = supported(
        "column.include.list",
        EXPRESSIONS,
        default="",
        doc=_COLUMNS,
    )
    column_exclude: str = supported(
        "column.exclude.list",
        EXPRESSIONS,
        default="",
        doc=_COLUMNS,
    )
    transform_rules: tuple[tuple[SecretStr, str], ...] = patterns(
        _transform(
            "column.mask.with.*.chars",
            "Columns whose values, also NULL, become that number of asterisks.",
        ),
        _transform(
            "column.mask.hash.v2.*.with.salt.*",
            "Columns whose values become a hash of salt and value; algorithm and salt are parts of the name.",
        ),
        _transform(
            "column.mask.hash.*.with.salt.*",
            "As `column.mask.hash.v2`, of the value as Java serializes it (version 1 of Debezium).",
        ),
        _transform(
            "column.truncate.to.*.chars",
            "Columns whose text or bytes are cut to that length.",
        ),
    )
    """Names, which may contain a salt, and regular expressions."""
    source_types: str = supported(
        "column.propagate.source.type",
        EXPRESSIONS,
        default="",
        doc="Columns whose schemas have their type, length, scale and name in the database.",
    )
    source_types_by_type: str = supported(
        "datatype.propagate.source.type",
        EXPRESSIONS,
        default="",
        doc="The same for columns chosen by `db.table.TYPE`, e.g. `.*\\.VARCHAR` or `shop\\..*\\.INT UNSIGNED`.",
    )
    skip_unchanged: bool = supported(
        "skip.messages.without.change",
        BOOLEAN,
        default="false",
        doc="Whether an update that changes no captured column is skipped.",
    )

    @cached_property
    def tables(self) -> TableFilter:
        """The filter of databases and tables."""
        return TableFilter(
            database_include=self.database_include,
            database_exclude=self.database_exclude,
            table_include=self.table_include,
            table_exclude=self.table_exclude,
            ignore_built_in=self.ignore_built_in,
        )

    @cached_property
    def message_keys(self) -> MessageKeys:
        """The columns that replace primary keys."""
        return MessageKeys.parse(self.message_key_columns)


UNSUPPORTED: Final[tuple[Property, ...]] = (
    *ignored(_NO_SCHEMAS.format("include"), "schema.include.list"),
    *ignored(_NO_SCHEMAS.format("exclude"), "schema.exclude.list"),
    *rejected(_NO_LIMIT, "guardrail.collections.max", no_op_values=("0",)),
    *ignored(_NO_LIMIT, "guardrail.collections.limit.action"),
)
