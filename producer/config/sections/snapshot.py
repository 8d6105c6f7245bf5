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

SnapshotMode = Literal["initial", "initial_only", "no_data", "when_needed", "always", "recovery", "configuration_based"]

_NO_LOCK = "snapshots take no locks"
_JAVA_CLASS = "Java classes are not supported"
_WHOLE_TABLE = (
    "a table is read completely, in chunks by key, and the binlog contains all of its rows; filter rows in the "
    "consumer, and columns with column.exclude.list"
)
_NO_HISTORY = "the binlog describes each version of a table; there is no schema history"
_STREAMED = "rows are streamed"


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
        doc="When snapshots are taken: once, before changes are streamed (initial); once, then the producer ends "
        "(initial_only); never (no_data, and recovery with a warning); at each start, while changes are streamed "
        "(always); at the first start and when the binlog at the stored offset has been purged (when_needed); or as "
        "`snapshot.mode.configuration.based.*` says.",
        rejected_values={"custom": _JAVA_CLASS, "never": "Debezium has removed it; use no_data"},
    )
    configured_data: bool = supported(
        "snapshot.mode.configuration.based.snapshot.data",
        BOOLEAN,
        default="false",
        doc="For `snapshot.mode=configuration_based`: take a snapshot, at each start.",
    )
    configured_stream: bool = supported(
        "snapshot.mode.configuration.based.start.stream",
        BOOLEAN,
        default="false",
        doc="For `snapshot.mode=configuration_based`: stream changes.",
    )
    configured_on_data_error: bool = supported(
        "snapshot.mode.configuration.based.snapshot.on.data.error",
        BOOLEAN,
        default="false",
        doc="For `snapshot.mode=configuration_based`: take a snapshot when the binlog at the stored offset has been "
        "purged.",
    )
    include: str = supported(
        "snapshot.include.collection.list",
        EXPRESSIONS,
        default="",
        doc="Tables to include in the initial snapshot. For other tables only changes are captured. Empty: all "
        "captured tables.",
    )
    transaction_timeout_ms: int = supported(
        "tailrace.snapshot.transaction.timeout.ms",
        integer(1000),
        default="900000",
        doc="Longest time that the Kafka transaction of a snapshot reader may last, in ms. A split is one transaction, "
        "and a table whose key cannot be split is one split. Brokers allow at most their "
        "`transaction.max.timeout.ms`; with a lower one the readers use what the broker allows.",
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
        doc="Number of rows in a chunk of a snapshot, initial or incremental.",
        aliases=("scan.incremental.snapshot.chunk.size",),
    )
    max_waiting_splits: int = supported(
        "tailrace.snapshot.max.waiting.splits",
        integer(1),
        default="256",
        doc="Number of chunks that may be in Kafka while the binlog reader has not passed their high watermark. "
        "Snapshot readers pause above it: each such chunk costs memory and a state record until then.",
    )
    max_hold_ms: int = supported(
        "tailrace.snapshot.max.hold.ms",
        integer(1000),
        default="60000",
        doc="Longest time that the changes of all tables wait for a chunk that is being read, in ms. Then the chunk is "
        "given up: its table is read later, when changes have been written for nine times as long.",
    )
    after_alter: bool = supported(
        "tailrace.snapshot.altered.tables",
        BOOLEAN,
        default="false",
        doc="Whether an incremental snapshot reads a table after an ALTER TABLE that changed the values of rows, or "
        "removed rows with their partition: MySQL writes no row events for them. A column that is added with a literal "
        "default needs no snapshot.",
    )
    even_upper: float = supported(
        "chunk-key.even-distribution.factor.upper-bound",
        decimal(1),
        default="100.0",
        default_note="Flink CDC: `1000.0`",
        doc="Upper bound of the distribution factor, (max(key) - min(key) + 1) / rows. If the factor of a table is "
        "within the bounds, its chunks are ranges of equal width.",
        aliases=("split-key.even-distribution.factor.upper-bound",),
    )
    even_lower: float = supported(
        "chunk-key.even-distribution.factor.lower-bound",
        decimal(0),
        default="0.05",
        doc="Lower bound of the distribution factor.",
        aliases=("split-key.even-distribution.factor.lower-bound",),
    )

    def should_snapshot(self, table: str) -> bool:
        """Return whether a table that has never been captured is read before its changes are streamed."""
        reads = self.configured_data if self.mode == "configuration_based" else self.mode not in {"no_data", "recovery"}
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
    def resnapshot_on_missing_binlog(self) -> bool:
        """Whether tables are read again if the binlog at the stored offset has been purged."""
        return self.mode == "when_needed" or (self.mode == "configuration_based" and self.configured_on_data_error)

    @cached_property
    def included(self) -> tuple[Pattern[str], ...]:
        """The regular expressions of ``include``."""
        return compile_list(self.include)


UNSUPPORTED: Final[tuple[Property, ...]] = (
    rejected("snapshot.select.statement.overrides", "Tables that are read with their own SELECT.", _WHOLE_TABLE, ""),
    rejected("snapshot.select.statement.overrides.*", "SELECT statement of a table.", _WHOLE_TABLE),
    rejected("snapshot.query.mode", "How the SELECT statements are built.", _JAVA_CLASS, "select_all"),
    ignored("snapshot.query.mode.custom.name", "Java class that builds SELECT statements.", _JAVA_CLASS),
    ignored("snapshot.mode.custom.name", "Java class of a custom snapshot mode.", _JAVA_CLASS),
    ignored("snapshot.locking.mode", "Locks that a snapshot takes.", _NO_LOCK, no_op_values=("none",)),
    ignored("snapshot.locking.mode.custom.name", "Java class of a custom locking mode.", _NO_LOCK),
    ignored("snapshot.lock.timeout.ms", "Maximum time to wait for a lock.", _NO_LOCK),
    ignored("snapshot.fetch.size", "Number of rows fetched at once.", _STREAMED),
    ignored("snapshot.delay.ms", "Delay before a snapshot.", "the snapshot starts at once", no_op_values=("0",)),
    ignored(
        "snapshot.max.threads.multiplier",
        "Number of chunks for each thread.",
        "incremental.snapshot.chunk.size decides the number of chunks",
    ),
    ignored(
        "legacy.snapshot.max.threads",
        "Read each table with one thread.",
        "tables are read in chunks",
        no_op_values=("false",),
    ),
    ignored(
        "snapshot.tables.order.by.row.count",
        "Order in which tables are read.",
        "tables are read in the order of their names",
        no_op_values=("disabled",),
    ),
    ignored("min.row.count.to.stream.results", "Number of rows from which results are streamed.", _STREAMED),
    ignored("snapshot.mode.configuration.based.snapshot.schema", "Read table definitions.", _NO_HISTORY),
    ignored("snapshot.mode.configuration.based.snapshot.on.schema.error", "Read table definitions again.", _NO_HISTORY),
    ignored(
        "incremental.snapshot.watermarking.strategy",
        "How watermarks are written to the signaling table.",
        "watermarks are binlog positions; nothing is written to the database",
    ),
    ignored(
        "incremental.snapshot.allow.schema.changes",
        "Allow schema changes during an incremental snapshot.",
        "schema changes are always allowed: the binlog describes each version of a table",
    ),
    rejected(
        "scan.incremental.snapshot.backfill.skip",
        "Do not mark the changes between the watermarks of a chunk.",
        "the consumer needs these marks",
        "false",
    ),
)
