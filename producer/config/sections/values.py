"""How column values and change events are represented."""

from __future__ import annotations

from typing import Final

from tailrace.producer.config.value_types import OPERATIONS
from tailrace.producer.model.value_options import (
    BigintUnsignedHandling,
    BinaryHandling,
    ConversionFailureHandling,
    DecimalHandling,
    ProcessingFailureHandling,
    TimePrecision,
    ValueOptions,
)
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import BOOLEAN, one_of

_TRANSFORM = "records are written as Debezium envelopes; transform them in the consumer"
_JAVA_CLASS = "Java classes are not supported"


class ValuesConfig(Section):
    """How column values and change events are represented; the modes have Debezium's names."""

    decimal: DecimalHandling = supported(
        "decimal.handling.mode",
        one_of(DecimalHandling),
        default="precise",
        doc="DECIMAL and NUMERIC as bytes of the unscaled value (precise), double or string.",
    )
    time: TimePrecision = supported(
        "time.precision.mode",
        one_of(TimePrecision),
        default="adaptive_time_microseconds",
        doc="DATE, TIME and DATETIME as numbers of a unit that depends on the precision "
        "(adaptive_time_microseconds), as Kafka Connect's types (connect), strings in ISO 8601 (isostring), "
        "microseconds or nanoseconds.",
    )
    bigint_unsigned: BigintUnsignedHandling = supported(
        "bigint.unsigned.handling.mode",
        one_of(BigintUnsignedHandling),
        default="long",
        doc="BIGINT UNSIGNED as a signed number, negative above 2^63-1 (long), or a decimal (precise).",
    )
    binary: BinaryHandling = supported(
        "binary.handling.mode",
        one_of(BinaryHandling),
        default="bytes",
        doc="BINARY, VARBINARY and BLOB as bytes (base64 in JSON), or a string in base64, base64-url-safe or hex.",
    )
    time_adjuster: bool = supported(
        "enable.time.adjuster",
        BOOLEAN,
        default="true",
        doc="Whether years from 1 to 99 become 1970 to 2069.",
    )
    tinyint_as_int8: bool = supported(
        "tailrace.tinyint.as.int8",
        BOOLEAN,
        default="false",
        doc="Whether a signed TINYINT is INT8 in table schemas, as from Debezium 3.7, instead of INT16.",
    )
    conversion_failures: ConversionFailureHandling = supported(
        "event.converting.failure.handling.mode",
        one_of(ConversionFailureHandling),
        default="fail",
        default_note="Debezium: `warn`",
        doc="A [value that the modes cannot represent](guarantees.md#values-that-the-modes-cannot-represent) is a "
        "fault of its table (fail), or is written as by Debezium (warn).",
    )
    processing_failures: ProcessingFailureHandling = supported(
        "event.processing.failure.handling.mode",
        one_of(ProcessingFailureHandling),
        default="table",
        default_note="Debezium: `fail`",
        doc="A change that cannot be written puts its table [in error](guarantees.md#tables-in-error) (table), "
        "stops the producer (fail), or is [skipped](guarantees.md#skipped-changes) with a warning (warn) or "
        "without (skip).",
    )
    tombstones: bool = supported(
        "tombstones.on.delete",
        BOOLEAN,
        default="true",
        doc="Whether a tombstone follows each delete event.",
    )
    skipped_operations: frozenset[str] = supported(
        "skipped.operations",
        OPERATIONS,
        default="t",
        doc="Operations that are not streamed: c (inserts), u (updates), d (deletes), t (truncates), separated "
        "by commas, or none.",
    )
    context_headers: bool = supported(
        "extended.headers.enabled",
        BOOLEAN,
        default="true",
        doc="Whether change events have the headers `__debezium.context.*`.",
    )
    include_query: bool = supported(
        "include.query",
        BOOLEAN,
        default="false",
        doc="Whether `source.query` has the statement; needs `binlog_rows_query_log_events=ON`.",
    )
    transaction_metadata: bool = supported(
        "provide.transaction.metadata",
        BOOLEAN,
        default="false",
        doc="Whether events have a transaction block, and a topic BEGIN and END records.",
    )
    schema_changes: bool = supported(
        "include.schema.changes",
        BOOLEAN,
        default="true",
        doc="Whether DDL is written to the topic `<topic.prefix>`.",
    )
    schema_comments: bool = supported(
        "include.schema.comments",
        BOOLEAN,
        default="false",
        doc="Whether schemas and schema changes have the comments of columns and tables.",
    )

    @property
    def options(self) -> ValueOptions:
        """The modes of the type converters and codecs."""
        return ValueOptions(
            time_precision_mode=self.time,
            decimal_handling_mode=self.decimal,
            bigint_unsigned_handling_mode=self.bigint_unsigned,
            binary_handling_mode=self.binary,
            enable_time_adjuster=self.time_adjuster,
            tinyint_as_int8=self.tinyint_as_int8,
            conversion_failures=self.conversion_failures,
        )


UNSUPPORTED: Final[tuple[Property, ...]] = (
    *rejected(_JAVA_CLASS, "converters", in_environment=False, no_op_values=("",)),
    *rejected(_JAVA_CLASS, "post.processors", no_op_values=("",)),
    *rejected(_JAVA_CLASS, "sourceinfo.struct.maker", "transaction.metadata.factory"),
    *rejected("the source block has version 2", "source.struct.version", no_op_values=("v2",)),
    *ignored(
        "binlog_row_image=FULL is required, so that the binlog contains all values", "unavailable.value.placeholder"
    ),
    *rejected(_TRANSFORM, "transforms", "predicates", in_environment=False, no_op_values=("",)),
    *rejected(_TRANSFORM, "transforms.*", "predicates.*"),
)
