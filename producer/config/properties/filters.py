"""Properties that say which databases, tables and columns are captured, and what is left of their values."""

from __future__ import annotations

from typing import Final

from producer.config.property import BOOLEAN, EXPRESSIONS, MESSAGE_KEYS, Property, accepted, honoured, refused

_COLUMNS = "every column of a captured table is written; filters and masks of columns are not there yet"

PROPERTIES: Final[tuple[Property, ...]] = (
    honoured(
        "database.include.list", "filters.database_include", EXPRESSIONS, "", "Databases that are captured; empty: all."
    ),
    honoured("database.exclude.list", "filters.database_exclude", EXPRESSIONS, "", "Databases that are not captured."),
    honoured("table.include.list", "filters.table_include", EXPRESSIONS, "", "Tables, as `db.table`; empty: all."),
    honoured("table.exclude.list", "filters.table_exclude", EXPRESSIONS, "", "Tables, as `db.table`, not captured."),
    honoured(
        "table.ignore.builtin", "filters.ignore_built_in", BOOLEAN, "true", "Leave the server's own databases out."
    ),
    honoured(
        "message.key.columns",
        "filters.message_key_columns",
        MESSAGE_KEYS,
        "",
        "Key columns in place of the primary key, e.g. `shop.orders:customer,number`; the table part is an expression.",
    ),
    refused("column.include.list", "Columns, as `db.table.column`.", _COLUMNS, "", place="filters.column_include"),
    refused(
        "column.exclude.list", "Columns, as `db.table.column`, left out.", _COLUMNS, "", place="filters.column_exclude"
    ),
    refused("column.mask.with.*.chars", "Columns whose text is masked with so many asterisks.", _COLUMNS, ""),
    refused("column.mask.hash.*.with.salt.*", "Columns whose text is hashed.", _COLUMNS, ""),
    refused("column.mask.hash.v2.*.with.salt.*", "Columns whose text is hashed.", _COLUMNS, ""),
    refused("column.truncate.to.*.chars", "Columns whose text is cut.", _COLUMNS, ""),
    refused(
        "skip.messages.without.change",
        "Leave out updates in which no captured column changed.",
        "every update in the log is written",
        "false",
    ),
    accepted("schema.include.list", "Schemas.", "MySQL has databases, no schemas: use database.include.list"),
    accepted("schema.exclude.list", "Schemas left out.", "MySQL has databases, no schemas: use database.exclude.list"),
    refused(
        "guardrail.collections.max",
        "Greatest number of tables that may be captured.",
        "the number of tables is not limited",
        "0",
    ),
    accepted("guardrail.collections.limit.action", "What to do above it.", "the number of tables is not limited"),
)
