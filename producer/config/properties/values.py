"""Properties that decide how values, keys and envelopes are written."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.property import (
    BOOLEAN,
    EXPRESSIONS,
    OPERATIONS,
    Property,
    ignored,
    one_of,
    rejected,
    supported,
)

_SMT = "records are written as Debezium's envelope; change them in the consumer"

PROPERTIES: Final[tuple[Property, ...]] = (
    supported(
        "decimal.handling.mode",
        "values.decimal",
        one_of("precise", "double", "string"),
        "precise",
        "DECIMAL and NUMERIC as unscaled bytes (precise), as a double, or as text.",
    ),
    supported(
        "time.precision.mode",
        "values.time",
        one_of("adaptive_time_microseconds", "connect", "isostring", "microseconds", "nanoseconds"),
        "adaptive_time_microseconds",
        "Form of DATE, TIME and DATETIME.",
    ),
    supported(
        "bigint.unsigned.handling.mode",
        "values.bigint_unsigned",
        one_of("long", "precise"),
        "long",
        "BIGINT UNSIGNED as a signed 64-bit number, negative above 2^63-1, or as a decimal.",
    ),
    supported(
        "binary.handling.mode",
        "values.binary",
        one_of("bytes", "base64", "base64-url-safe", "hex"),
        "bytes",
        "BINARY, VARBINARY and BLOB as bytes (base64 in JSON) or as text in one of three codes.",
    ),
    supported("enable.time.adjuster", "values.time_adjuster", BOOLEAN, "true", "Years 0 to 99 become 1970 to 2069."),
    supported(
        "tombstones.on.delete", "values.tombstones", BOOLEAN, "true", "A record without value after each delete."
    ),
    supported(
        "skipped.operations",
        "values.skipped_operations",
        OPERATIONS,
        "t",
        "Operations of the log that are not written: c, u, d, t, or none.",
    ),
    supported(
        "extended.headers.enabled",
        "values.context_headers",
        BOOLEAN,
        "true",
        "Headers `__debezium.context.*` on each row record.",
    ),
    supported(
        "include.query",
        "values.include_query",
        BOOLEAN,
        "false",
        "The original SQL in `source.query`; the server must have binlog_rows_query_log_events=ON.",
    ),
    supported(
        "provide.transaction.metadata",
        "values.transaction_metadata",
        BOOLEAN,
        "false",
        "The transaction block in each envelope, and BEGIN and END records in a topic.",
    ),
    supported(
        "include.schema.changes",
        "values.schema_changes",
        BOOLEAN,
        "false",
        "DDL statements as records in the topic named as the prefix.",
        debezium="true",
    ),
    supported(
        "include.schema.comments",
        "values.schema_comments",
        BOOLEAN,
        "false",
        "Comments of columns in the schemas of rows (`doc`), those of tables and columns in schema change records.",
    ),
    supported(
        "column.propagate.source.type",
        "filters.source_types",
        EXPRESSIONS,
        "",
        "Columns, as `db.table.column`, whose schemas tell the type, length and scale at the source, and the name.",
    ),
    supported(
        "datatype.propagate.source.type",
        "filters.source_types_by_type",
        EXPRESSIONS,
        "",
        "The same by type, as `db.table.TYPE`, e.g. `.*\\.VARCHAR` or `shop\\..*\\.INT UNSIGNED`.",
    ),
    rejected(
        "converters", "Converters of single columns.", "custom converters are Java classes", "", in_environment=False
    ),
    rejected("post.processors", "Steps after the envelope is built.", "post processors are Java classes", ""),
    rejected(
        "event.converting.failure.handling.mode",
        "What to do with a value that cannot be converted: Debezium's default writes null in its place.",
        "such a value stops the producer; none is replaced silently",
        "fail",
    ),
    rejected(
        "sourceinfo.struct.maker", "Java class that builds the source block.", "the source block is Debezium's default"
    ),
    rejected("source.struct.version", "Version of the source block.", "the source block is version 2", "v2"),
    ignored("unavailable.value.placeholder", "Text for values the log lacks.", "full row images lack no value"),
    rejected(
        "transaction.metadata.factory", "Java class that builds transaction records.", "there are no custom classes"
    ),
    rejected("transforms", "Single message transforms.", _SMT, "", in_environment=False),
    rejected("predicates", "Conditions of transforms.", _SMT, "", in_environment=False),
    rejected("transforms.*", "Settings of a transform.", _SMT),
    rejected("predicates.*", "Settings of a condition.", _SMT),
)
