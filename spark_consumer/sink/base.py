"""The protocol of a sink: prepare one table, write one table's part of a batch, close."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from tailrace.spark_consumer.sink.state import Shard
from tailrace.spark_consumer.source.kafka_admin import unknown_id

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as tp

    from tailrace.schemas import sequence
    from tailrace.schemas.alteration import Alteration
    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.normalize.split_progress import SplitStats
    from tailrace.spark_consumer.source.ranges import TopicRange
    from tailrace.spark_consumer.source.watermarks import SnapshotRuns


@dataclass(frozen=True, slots=True)
class SinkContext:
    """The query that a sink is opened for; it does not change while the query runs."""

    query_id: str
    """Belongs to the checkpoint: a new checkpoint is a new query, whose batches are numbered from 0."""
    prefix: str
    """The topic prefix."""
    client: Mapping[str, str]
    """Kafka client options of the source, with their ``kafka.`` prefix."""
    runs: SnapshotRuns
    """The snapshot runs of the prefix."""
    alterations: Callable[[str], Sequence[Alteration]] = lambda _topic: ()
    """What ALTER TABLE statements did to the table of a topic, up to its latest schema, in order."""
    shard: Callable[[str], Shard | None] = lambda _topic: None
    """The shard that the table of a topic is, if its target is shared by several tables."""
    topic_id: Callable[[str], str] = unknown_id
    """Kafka's id of a topic, '' if it is not known: another one under the same name is another topic."""


@dataclass(frozen=True, slots=True)
class Write:
    """The place of a write among those of a query to a changelog."""

    step: int
    """Not less than those of the writes before it, and greater than that of a write that ``releases``, unless the query
    has been set back, or the write failed."""
    begins: Mapping[int, int]
    """Partition to the offset before which all records were read before; one that is missing begins with 0."""
    ends: Mapping[int, int]
    """The same after the write."""
    settled: bool
    """Whether no record is held after the write."""
    whole_from: Mapping[int, int] | None = None
    """Partition to the offset from which earlier batches have read it, 0 if it is missing; None: not known."""
    releases: bool = False
    """Whether it has records that earlier batches held."""
    truncated: sequence.Sequence | None = None
    """That of the batch."""
    truncated_ms: int | None = None
    """The time of ``truncated`` at the source; None if it is not known."""
    follows: int = -1
    """The last step before whose effect no offsets tell: it released or removed rows. -1: none is known."""

    @property
    def offsets(self) -> int:
        """How many offsets were read."""
        return sum(end - self.begins.get(number, 0) for number, end in self.ends.items())


@dataclass(frozen=True, slots=True)
class TableBatch:
    """The records of one table in a micro-batch; they are cached during ``write_batch``."""

    schema: TableSchema
    records: DataFrame
    """Images.UPSERT: decoded records (source/json_decoder.py). Images.CHANGELOG: rows of normalize/rowkind.py."""
    stats: Collection[SplitStats] = ()
    """Counts per split; only for Images.UPSERT."""
    range: TopicRange | None = None
    """The offsets of the records; only for Images.UPSERT."""
    truncated: sequence.Sequence | None = None
    """The sequence of a truncate event, or of the creation of the table. Rows that the target has with a smaller
    sequence are removed before the records are written. Images.CHANGELOG: set once. Images.UPSERT: the last one, in
    every batch, because only the target knows whether it was undone; older records, and the truncate events (op t), are
    among the records and must stay out."""
    name: str = ""
    """Images.CHANGELOG: names the rows. An attempt to write them again after a failure has the same name, and no other
    write of the query to the table has it."""
    write: Write | None = None
    """Images.CHANGELOG: what the records have that are written."""
    loaded: bool = False
    """Images.UPSERT: whether the snapshot of the table is complete."""
    moved: bool = False
    """Images.UPSERT: whether records of one key can be in several partitions (normalize/stored_records.py)."""


class NotStagedError(Exception):
    """A way to write in the driver failed before a commit; its cause is the reason. Another way can be tried."""


@contextmanager
def before_commit(unless: Callable[[BaseException], bool] = lambda _: False) -> Iterator[None]:
    """Raise NotStagedError for every error of the block, ``unless`` it tells that no other way would help."""
    try:
        yield
    except Exception as error:
        if unless(error):
            raise
        raise NotStagedError from error


@dataclass(frozen=True, slots=True)
class DriverBatch:
    """The last change of each key of one table in a micro-batch, in the driver.

    No change has a split, and none is a truncate event, or a row of an incremental snapshot.
    """

    spark: SparkSession
    schema: TableSchema
    type: tp.StructType
    """That of decoded records (source/json_decoder.py)."""
    rows: Any
    """A sequence of Scala with internal rows."""
    range: TopicRange
    earliest: sequence.Sequence
    """No change is before it."""
    truncated: sequence.Sequence | None = None
    """The last truncation; None: there was none."""


class Sink(Protocol):
    """A target for all tables of a prefix, opened by its plug-in in the session of the first batch.

    Several threads call it at the same time, but only one per table. The session of a batch's records belongs to the
    table for the time of the call.

    After a failure the same batch is written again, by a new sink with the same query id. The guarantee of the plug-in
    says what the target then contains.
    """

    def applied(self, schema: TableSchema) -> Mapping[int, int] | None:
        """Return, per partition, the offset before which the target has applied all records.

        None: targets of the sink do not tell. A target that does not tell, where others do, has applied none.

        Images.UPSERT: called before the records of a batch are read. Such records are not read again. Records before
        the batch that the target has not applied are read again: of a partition that is missing, it has applied none.
        So each ``write_batch`` moves the offsets to the end of ``TableBatch.range``.

        Images.CHANGELOG: only whether it is None is asked. Otherwise ``write_batch`` is called for batches without rows
        too, and raises TargetBehindError if the target lacks rows before those of the batch (ledger.py).
        """

    def prepare_table(self, schema: TableSchema) -> None:
        """Create or change the target table; needs no record of the batch.

        Called when the records are decoded, and only for Images.UPSERT. ``write_batch`` does not always follow.
        """

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:
        """Write the records of one table; on return they are durable, as far as the guarantee says."""

    def close(self) -> None:
        """Release resources after the last batch."""


@runtime_checkable
class TendedSink(Protocol):
    """A sink whose tables need background upkeep."""

    def tend(self, spark: SparkSession) -> bool:
        """Tend one table that is due; return whether there was one.

        Called on a thread of its own between and during the batches, with a session that nothing else uses.
        """


@dataclass(frozen=True, slots=True)
class TargetRows:
    """The rows of a target that the source has, and what was applied to it."""

    rows: DataFrame
    """Columns of the source have their names in records, in whatever case."""
    applied: Mapping[int, int]
    """Partition to the offset before which the rows have all records."""
    applied_now: Callable[[], Mapping[int, int]]
    """Called when the rows are read: the offsets behind which they have no record."""


@runtime_checkable
class ComparedSink(Protocol):
    """A sink whose targets can be compared with their sources."""

    def read_target(self, spark: SparkSession, schema: TableSchema) -> TargetRows:
        """Return the target of a table as it is now; it is not changed.

        Raises SinkError if there is none, or if it does not have one row for each row of the source.
        """


@runtime_checkable
class WaySink(Protocol):
    """A sink that writes a batch in one of several ways."""

    def way_of(self, topic: str) -> str:
        """Return how the last batch of a table was written; '' if there was none."""


@runtime_checkable
class DriverSink(Protocol):
    """A sink that can write a few changes without a query of the records."""

    def takes_from_driver(self, schema: TableSchema, offsets: int) -> bool:
        """Return whether ``write_in_driver`` would probably write a batch of so many offsets."""

    def write_in_driver(self, batch: DriverBatch, batch_id: int) -> bool:
        """Write the changes of one table like ``write_batch``; return False if nothing was done.

        Called after ``prepare_table``. Raises NotStagedError if something fails before the commit.
        """
