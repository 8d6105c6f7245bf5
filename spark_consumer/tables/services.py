"""What the tables of a query share."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from tailrace.spark_consumer.metadata_fields import MetadataField
from tailrace.spark_consumer.monitor.phases import Phases
from tailrace.spark_consumer.normalize.carry_over import CarryOver
from tailrace.spark_consumer.normalize.moved_keys import RememberedDeletes
from tailrace.spark_consumer.normalize.table_state import TableStates
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.tables.driver_decoder import DriverTables
from tailrace.spark_consumer.tables.reading import Reading
from tailrace.spark_consumer.tables.snapshot import Snapshots
from tailrace.spark_consumer.transform.transforms import Transforms

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


class StoredTables:
    """What the checkpoint has of tables, besides the positions of those that are parked."""

    def __init__(self, checkpoint: str) -> None:
        self.states = TableStates(checkpoint)
        self.carry_over = CarryOver(checkpoint)
        self.deletes = RememberedDeletes(checkpoint)


@dataclass(frozen=True, slots=True)
class Writing:
    """A sink, and what is done with rows before it gets them."""

    sink: Sink
    transforms: Transforms
    fields: tuple[MetadataField, ...] = ()
    """Fields of the envelope that the sink stores as metadata columns."""
    in_driver: DriverTables = field(default_factory=DriverTables)


@dataclass(frozen=True, slots=True)
class TableServices:
    """What the tables of one sink share; every member is safe to use from several threads."""

    reading: Reading
    snapshots: Snapshots
    stored: StoredTables
    writing: Writing
    phases: Phases

    @contextmanager
    def phase(self, spark: SparkSession, topic: str, name: str) -> Iterator[None]:
        """Measure the block, and name its jobs in Spark's user interface."""
        spark.sparkContext.setJobDescription(f"{topic}: {name}")
        with self.phases.measure(f"table.{name}"):
            yield
