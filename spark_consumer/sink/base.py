"""What every sink offers: prepare once, apply one table's part of a batch, close; and which guarantee it gives."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.normalize.summary import SplitStats
from tailrace.spark_consumer.source.json_decoder import Images
from tailrace.spark_consumer.source.runs import SnapshotRuns

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True, slots=True)
class SinkContext:
    """What stays the same while a query runs."""

    query_id: str
    """Of the checkpoint: a new checkpoint is a new query, with batch numbers from 0."""
    prefix: str
    runs: SnapshotRuns


@dataclass(frozen=True, slots=True)
class TableBatch:
    """One table's part of a micro-batch.

    ``records``: for a sink that takes UPSERT images, decoded records (source/json_decoder.py); for CHANGELOG images,
    changelog rows (changelog/rowkind.py). Both are cached while the sink works.
    """

    schema: TableSchema
    records: DataFrame
    facts: Sequence[SplitStats] = ()
    """Of the decoded records, per split; only for UPSERT images."""


class Sink(Protocol):
    """A target for all tables of a prefix.

    ``apply`` may be called again with the same batch after a failure; what that means is the sink's ``guarantee``.
    """

    name: str
    images: Images
    guarantee: str

    def prepare(self, spark: SparkSession, context: SinkContext) -> None:
        """Called once per query in the session of its first batch."""

    def make_ready(self, spark: SparkSession, schema: TableSchema) -> None:
        """Do for one table what needs no record of the batch; called while they are decoded, on another thread.

        Only for UPSERT images. ``apply`` may follow, or not.
        """

    def apply(self, batch: TableBatch, batch_id: int) -> None:
        """Apply one table's records; when it returns they are durable as far as the guarantee says."""

    def close(self) -> None:
        """Called once, after the last batch."""
