"""The named exceptions: every intended difference between Tailrace's records and Debezium's, with its reason.

Debezium's snapshot and its streaming write some values in two forms. Tailrace always writes the streaming form; the
exceptions whose names begin with ``snapshot`` cover this. While streaming, Debezium reads the text of CREATE and ALTER;
in a snapshot it reads SHOW CREATE TABLE. Tailrace always writes the form of SHOW CREATE TABLE; the exceptions whose
names begin with ``DDL`` cover this.
"""

from __future__ import annotations

from typing import Final

from tests.debezium_parity import ddl_exceptions as ddl
from tests.debezium_parity import record_exceptions as record
from tests.debezium_parity import value_exceptions as value
from tests.debezium_parity.difference import NamedException
from tests.debezium_parity.value_exceptions import DECODED_DIFFERENTLY_BY_JAVA

EXCEPTIONS: Final = (
    NamedException(
        "processing time",
        "`ts_ms`, `ts_us` and `ts_ns` of an envelope are of each connector's clock.",
        record.processing_time,
    ),
    NamedException("version", "`source.version` is that of the connector.", record.version),
    NamedException("prefix", "The topic prefixes differ.", record.prefix),
    NamedException("run id", "The header identifies one start of one connector.", record.run_id),
    NamedException(
        "own headers",
        "Headers that begin with `tailrace.`, which other consumers can ignore.",
        record.tailrace_headers,
    ),
    NamedException(
        "snapshot position",
        "A snapshot row has the position and the time at which its split was read.",
        record.snapshot_position,
    ),
    NamedException(
        "snapshot marker",
        "`source.snapshot` is `true` in every row: splits have no first or last row.",
        record.snapshot_marker,
    ),
    NamedException(
        "rows of a renamed table",
        "It is read under its new name. Debezium has only its later changes.",
        record.rows_of_renamed_table,
    ),
    NamedException(
        "table without key",
        "With `tailrace.tables.without.key=full-row` all columns are the key, and an update is a delete and "
        "an insert. Debezium writes no key.",
        record.table_without_key,
    ),
    NamedException(
        "null kept",
        "NULL in a column with a default stays null. Kafka Connect's converter writes the default.",
        value.null_kept,
    ),
    NamedException(
        "zero date",
        "In a NOT NULL column the epoch. Debezium writes the column's default if there is one.",
        value.zero_date,
    ),
    NamedException(
        "snapshot timestamp",
        "The fraction has all digits of the column. Debezium's snapshot removes trailing zeros.",
        value.snapshot_timestamp,
    ),
    NamedException("snapshot float", "FLOAT is exact. Debezium's snapshot has six digits.", value.snapshot_float),
    NamedException(
        "snapshot document",
        "JSON has no spaces between its parts. Debezium's snapshot copies the server's text.",
        value.snapshot_document,
    ),
    NamedException(
        "snapshot calendar",
        "Dates that the Julian calendar lacks stay. Debezium's snapshot moves them by ten days.",
        value.snapshot_calendar,
    ),
    NamedException(
        "character set",
        "Text is decoded as the server decodes it. While streaming, Debezium uses Java's decoders, which differ or are "
        f"missing for {', '.join(sorted(DECODED_DIFFERENTLY_BY_JAVA))}.",
        value.character_set,
    ),
    NamedException(
        "undefined byte",
        "Bytes that Windows-1252 does not define are as on the server. While streaming, Debezium loses them.",
        value.undefined_byte,
    ),
    NamedException(
        "enum escape",
        "Labels are the server's. While streaming, Debezium escapes comma and backslash.",
        value.enum_escape,
    ),
    NamedException(
        "document scalars",
        "Doubles are the server's, without an exponent, times have six fraction digits, and a binary value "
        "begins with `base64:type15:`.",
        value.document_scalars,
    ),
    NamedException(
        "negative time in JSON",
        "`-23:24:25.120000`. Debezium prints `24:0-25:0-26.00000-12`.",
        value.negative_time_in_json,
    ),
    NamedException(
        "year 0000",
        "A YEAR of 0000 is 1900, as in the binlog. Debezium's snapshot writes 2000.",
        value.year_zero,
    ),
    NamedException(
        "float digits",
        "The fewest that identify the float. Java before 19 prints one more for a few values.",
        value.float_digits,
    ),
    NamedException(
        "snapshot flag",
        "`source.snapshot` is always written. With `replace.null.with.default=false` Kafka Connect writes "
        "null for `false`.",
        record.snapshot_flag,
    ),
    NamedException(
        "key with schema",
        "It contains the topic prefix, which affects the partition.",
        record.key_with_schema,
    ),
    NamedException(
        "default of an altered table",
        "A column that the catalog no longer has as it was logged is published without default and comment.",
        value.default_of_changed_table,
    ),
    NamedException(
        "default literal",
        "What the server inserts. Debezium keeps the escapes of the literal, pads BINARY in two ways, loses "
        "the default of a BIT given as a number or in hex, and does not round to the digits of DOUBLE(M,D).",
        value.default_literal,
    ),
    NamedException(
        "truncate partition",
        "A truncate record has no key, so each producer chooses any partition.",
        record.truncate_partition,
    ),
    NamedException(
        "prepared transaction",
        "Rows of a prepared XA transaction are written at its XA COMMIT, with its GTID, position and time, "
        "and dropped at its XA ROLLBACK. Debezium writes them at XA PREPARE.",
        record.prepared_transaction,
    ),
    NamedException(
        "XA metadata",
        "Rows of XA transactions have the thread and, if configured, transaction metadata. Debezium writes neither.",
        record.xa_metadata,
    ),
    NamedException(
        "row of a statement",
        "`source.row` of a statement is 0. Debezium keeps the number of the last row before it.",
        record.statement_row,
    ),
    NamedException(
        "later definition",
        "The definition after a statement is that of the catalog when it is read, perhaps with later statements.",
        record.later_definition,
    ),
    NamedException(
        "server's definition",
        "Types, lengths and defaults in a schema change are those of SHOW CREATE TABLE. While streaming, "
        "Debezium takes them from the statement.",
        record.server_definition,
    ),
    NamedException(
        "DDL parameters",
        "Source types and lengths in schemas are those of SHOW CREATE TABLE.",
        ddl.column_parameters,
    ),
    NamedException(
        "DDL length",
        "`column.truncate` cuts the text of TIMESTAMP(0). While streaming, Debezium does not.",
        ddl.length_zero,
    ),
    NamedException(
        "doc of a field",
        "An Avro field has the `doc` of its schema, as in Confluent's converter. Apicurio's has `connect.doc` only.",
        record.field_doc,
    ),
    NamedException("DDL boolean", "The server stores BOOLEAN as TINYINT(1), a number.", ddl.boolean),
    NamedException("DDL real", "The server stores REAL as DOUBLE.", ddl.real),
    NamedException("DDL float4", "The server stores FLOAT4 as FLOAT. Debezium loses its values.", ddl.float4),
    NamedException("DDL binary", "The server stores CHAR BYTE and CHARACTER SET binary as BINARY.", ddl.binary),
)
"""The first exception that covers a difference counts."""

QUIET: Final = frozenset({"processing time", "version", "prefix", "run id", "own headers"})
"""The exceptions that every record has; a record with no others counts as equal."""
