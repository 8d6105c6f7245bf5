"""Properties that say which databases, tables and columns are captured, and what is left of their values."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import (
    BOOLEAN,
    COLUMN_RULE,
    EXPRESSIONS,
    MESSAGE_KEYS,
    Property,
    ignored,
    rejected,
    supported,
)


def _rule(name: str, meaning: str) -> Property:
    return supported(name, "filters.column_rules", COLUMN_RULE, None, meaning)


PROPERTIES: Final[tuple[Property, ...]] = (
    supported(
        "database.include.list", "filters.database_include", EXPRESSIONS, "", "Databases that are captured; empty: all."
    ),
    supported("database.exclude.list", "filters.database_exclude", EXPRESSIONS, "", "Databases that are not captured."),
    supported("table.include.list", "filters.table_include", EXPRESSIONS, "", "Tables, as `db.table`; empty: all."),
    supported("table.exclude.list", "filters.table_exclude", EXPRESSIONS, "", "Tables, as `db.table`, not captured."),
    supported(
        "table.ignore.builtin", "filters.ignore_built_in", BOOLEAN, "true", "Leave the server's own databases out."
    ),
    supported(
        "message.key.columns",
        "filters.message_key_columns",
        MESSAGE_KEYS,
        "",
        "Key columns in place of the primary key, e.g. `shop.orders:customer,number`; the table part is an expression.",
    ),
    supported(
        "column.include.list",
        "filters.column_include",
        EXPRESSIONS,
        "",
        "Columns, as `db.table.column`; empty: all. Key columns must be among them.",
    ),
    supported(
        "column.exclude.list",
        "filters.column_exclude",
        EXPRESSIONS,
        "",
        "Columns, as `db.table.column`, that no record has; no key column may be among them.",
    ),
    _rule("column.mask.with.*.chars", "Columns whose text is so many asterisks in rows, NULL too."),
    _rule(
        "column.mask.hash.v2.*.with.salt.*",
        "Columns whose text is hashed in rows: the digest named first, of the salt and the text in UTF-8, in hex.",
    ),
    _rule(
        "column.mask.hash.*.with.salt.*",
        "The same with the text as Java serializes it, as the first version of Debezium's hash has it.",
    ),
    _rule("column.truncate.to.*.chars", "Columns whose text or bytes are cut in rows to so many characters."),
    supported(
        "skip.messages.without.change",
        "filters.skip_unchanged",
        BOOLEAN,
        "false",
        "Leave out updates in which nothing changed of what is written.",
    ),
    ignored("schema.include.list", "Schemas.", "MySQL has databases, no schemas: use database.include.list"),
    ignored("schema.exclude.list", "Schemas left out.", "MySQL has databases, no schemas: use database.exclude.list"),
    rejected(
        "guardrail.collections.max",
        "Greatest number of tables that may be captured.",
        "the number of tables is not limited",
        "0",
    ),
    ignored("guardrail.collections.limit.action", "What to do above it.", "the number of tables is not limited"),
)
