"""How snapshots are taken."""

from __future__ import annotations

from functools import cached_property
from re import Pattern
from typing import Final, Literal

from tailrace.producer.config.filters import any_matches, compile_list
from tailrace.producer.config.value_types import EXPRESSIONS
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import BOOLEAN, decimal, integer, one_of

SnapshotMode = Literal[
    "initial",
    "initial_only",
    "no_data",
    "when_needed",
    "when_needed_no_data",
    "always",
    "recovery",
    "configuration_based",
]

_CONFIGURED: Final = (
    "Read the tables at each start; stream changes; read the tables when the binlog at the stored offset "
    "has been purged."
)
_NO_LOCK = "snapshots take no locks"
_JAVA_CLASS = "Java classes are not supported"
_WHOLE_TABLE = (
    "a table is read completely, in chunks by key, and the binlog contains all of its rows; filter rows in the "
    "consumer, and columns with column.exclude.list"
)


class SnapshotConfig(Section):
    """How snapshots are taken."""

    mode: SnapshotMode = supported(
        "snapshot.mode",
        one_of(
            SnapshotMode,
            rejected=("custom", "never"),
            renamed={"schema_only": "no_data", "schema_only_recovery": "recovery"},
        ),
        default="initial",
        doc="When tables are read: once, while changes are streamed (initial); once, then the producer ends "
        "(initial_only); never (no_data; recovery, with a warning); at each start (always); once, and when "
        "the binlog at the stored offset has been purged (when_needed); never, also then: changes are lost "
        "(when_needed_no_data); as the next three properties say (configuration_based).",
        rejected_values={"custom": _JAVA_CLASS, "never": "Debezium has removed it; use no_data"},
    )
    configured_data: bool = supported(
        "snapshot.mode.configuration.based.snapshot.data",
        BOOLEAN,
        default="false",
        doc=_CONFIGURED,
    )
    configured_stream: bool = supported(
        "snapshot.mode.configuration.based.start.stream",
        BOOLEAN,
        default="false",
        doc=_CONFIGURED,
    )
    configured_on_data_error: bool = supported(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        BOOLEAN,
        default="false",
        doc=_CONFIGURED,
    )
    include: str = supported(
        "snapshot.include.collection.list",
        EXPRESSIONS,
        default="",
        doc="Tables that the initial snapshot reads; of others only changes are captured. Empty: all.",
    )
    transaction_timeout_ms: int = supported(
        "tailrace.snapshot.transaction.timeout.ms",
        integer(1000),
        default="900000",
        doc="Longest Kafka transaction of a split; at most the broker's `transaction.max.timeout.ms`.",
    )
    max_threads: int = supported(
        "snapshot.max.threads",
        integer(1, 256),
        default="2",
        default_note="Debezium: `1`",
        doc="Number of snapshot readers.",
    )
    chunk_size: int = supported(
        "incremental.snapshot.chunk.size",
        integer(1),
        default="8192",
        default_note="Debezium: `1024`",
        doc="Rows of a split (chunk), also of an initial snapshot.",
        aliases=("scan.incremental.snapshot.chunk.size",),
    )
    max_split_bytes: int = supported(
        "tailrace.snapshot.max.split.bytes",
        integer(1),
        default="134217728",
        doc="Bytes of a split by the average row in the catalog: a table of wide rows is read in splits of fewer rows.",
    )
    max_rows_per_s: int = supported(
        "tailrace.snapshot.max.rows.per.second",
        integer(0),
        default="0",
        doc="Rows that all snapshot readers together read in a second. They wait between splits: lower "
        "`incremental.snapshot.chunk.size` for an even load. 0: no limit.",
    )
    max_bytes_per_s: int = supported(
        "tailrace.snapshot.max.bytes.per.second",
        integer(0),
        default="0",
        doc="The same in bytes as MySQL sends them.",
    )
    max_waiting_splits: int = supported(
        "tailrace.snapshot.max.waiting.splits",
        integer(1),
        default="256",
        doc="Splits that may wait in Kafka until the binlog reader passes their high watermark; then the readers "
        "pause.",
    )
    max_hold_ms: int = supported(
        "tailrace.snapshot.max.hold.ms",
        integer(1000),
        default="60000",
        doc="Longest time that a split that is being read may hold the changes of all tables; then it is [read "
        "later](operations.md#signals).",
    )
    after_alter: bool = supported(
        "tailrace.snapshot.altered.tables",
        BOOLEAN,
        default="false",
        doc="Whether a table is read again after an ALTER TABLE that changed values or removed rows with their "
        "partition, for which MySQL logs no rows.",
    )
    even_upper: float = supported(
        "chunk-key.even-distribution.factor.upper-bound",
        decimal(1),
        default="100.0",
        default_note="Flink CDC: `1000.0`",
        doc="Upper bound of (max(key) - min(key) + 1) / rows; within the bounds splits are ranges of equal width.",
        aliases=("split-key.even-distribution.factor.upper-bound",),
    )
    even_lower: float = supported(
        "chunk-key.even-distribution.factor.lower-bound",
        decimal(0),
        default="0.05",
        doc="Lower bound of that factor.",
        aliases=("split-key.even-distribution.factor.lower-bound",),
    )

    def should_snapshot(self, table: str) -> bool:
        """Return whether a table that has never been captured is read before its changes are streamed."""
        never = {"no_data", "when_needed_no_data", "recovery"}
        reads = self.configured_data if self.mode == "configuration_based" else self.mode not in never
        return reads and (not self.included or any_matches(self.included, table))

    @property
    def stop_after_snapshot(self) -> bool:
        """Whether the capture ends when all tables are read."""
        return self.mode == "initial_only" or (self.mode == "configuration_based" and not self.configured_stream)

    @property
    def resnapshot_on_start(self) -> bool:
        """Whether each start reads the tables again."""
        configured = self.configured_data and self.configured_stream
        return self.mode == "always" or (self.mode == "configuration_based" and configured)

    @property
    def on_missing_binlog(self) -> Literal["fail", "read", "continue"]:
        """What happens if the binlog at the stored offset has been purged; ``read``: all tables again."""
        if self.mode == "when_needed_no_data":
            return "continue"
        needed = self.mode == "when_needed" or (self.mode == "configuration_based" and self.configured_on_data_error)
        return "read" if needed else "fail"

    @cached_property
    def included(self) -> tuple[Pattern[str], ...]:
        """The regular expressions of ``include``."""
        return compile_list(self.include)


UNSUPPORTED: Final[tuple[Property, ...]] = (
    *rejected(_WHOLE_TABLE, "snapshot.select.statement.overrides", no_op_values=("",)),
    *rejected(_WHOLE_TABLE, "snapshot.select.statement.overrides.*"),
    *rejected(_JAVA_CLASS, "snapshot.query.mode", no_op_values=("select_all",)),
    *ignored(_JAVA_CLASS, "snapshot.query.mode.custom.name", "snapshot.mode.custom.name"),
    *ignored(_NO_LOCK, "snapshot.locking.mode", no_op_values=("none",)),
    *ignored(_NO_LOCK, "snapshot.locking.mode.custom.name", "snapshot.lock.timeout.ms"),
    *ignored("rows are streamed", "snapshot.fetch.size", "min.row.count.to.stream.results"),
    *ignored("the snapshot starts at once", "snapshot.delay.ms", no_op_values=("0",)),
    *ignored("incremental.snapshot.chunk.size decides the number of chunks", "snapshot.max.threads.multiplier"),
    *ignored("tables are read in chunks", "legacy.snapshot.max.threads", no_op_values=("false",)),
    *ignored(
        "tables are read in the order of their names", "snapshot.tables.order.by.row.count", no_op_values=("disabled",)
    ),
    *ignored(
        "the binlog describes each version of a table; there is no schema history",
        "snapshot.mode.configuration.based.snapshot.schema",
        "snapshot.mode.configuration.based.snapshot.on.schema.error",
    ),
    *ignored(
        "watermarks are binlog positions; nothing is written to the database",
        "incremental.snapshot.watermarking.strategy",
    ),
    *ignored(
        "schema changes are always allowed: the binlog describes each version of a table",
        "incremental.snapshot.allow.schema.changes",
    ),
    *rejected("the consumer needs these marks", "scan.incremental.snapshot.backfill.skip", no_op_values=("false",)),
)
