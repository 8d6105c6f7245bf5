"""Maps splits to snapshot runs, from LOW watermarks, so that a sink can recognize rows of the initial snapshot.

The same records tell how many partitions a topic had (schemas/watermark.py).
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.sequence import position_sequence

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


_FIELDS: Final = (
    "kind string, split string, snapshot string, topic string, incremental boolean, partitions int, "
    "position struct<epoch: bigint, file: string, pos: bigint>"
)
"""Fields of a watermark; the GTID sets of the positions do not leave the executors."""


@dataclass(frozen=True, slots=True)
class SnapshotRun:
    """One snapshot run of one table; ``start`` is the least LOW position of its splits read so far."""

    topic: str
    id: str
    start: Sequence


class SnapshotRuns:
    """The run of each split, and the first run of each topic. Incremental snapshots are ignored."""

    def __init__(self, watermarks: ControlTopic) -> None:
        self._watermarks = watermarks
        self._lock = threading.Lock()
        self._batches = 0
        self._read_for = -1
        self._run_of: dict[str, str] = {}
        self._first: dict[str, SnapshotRun] = {}
        self._fewest: dict[str, int] = {}

    def next_batch(self) -> None:
        """Make the next call of ``refresh`` read the topic; others of the same batch find what it needs then.

        The LOW watermark of a split is in the topic before its rows, and thus when a batch with them is planned.
        """
        self._batches += 1

    def refresh_for(self, spark: SparkSession, splits: Iterable[str]) -> None:
        """Read the watermarks topic if the run of one of these splits is unknown."""
        if any(split not in self._run_of for split in splits):
            self.refresh(spark)

    def refresh(self, spark: SparkSession) -> None:
        """Read the watermarks that were appended since the last call; waits for a call of another thread.

        After ``next_batch`` only the first call reads.
        """
        with self._lock:
            if self._read_for == self._batches > 0:
                return
            batches = self._batches
            is_low = fn.col("kind") == WatermarkKind.LOW.value
            wanted = (is_low & ~fn.coalesce("incremental", fn.lit(False))) | fn.col("partitions").isNotNull()
            for row in self._watermarks.poll_fields(spark, _FIELDS, wanted):
                if row["partitions"] is not None:
                    self._fewest[row["topic"]] = min(
                        row["partitions"], self._fewest.get(row["topic"], row["partitions"])
                    )
                if row["kind"] == WatermarkKind.LOW and not row["incremental"]:
                    position = row["position"]
                    start = Sequence.at(position["epoch"], position["file"], position["pos"])
                    self._add(row["topic"], row["split"], row["snapshot"], start)
            self._read_for = batches

    def add(self, watermark: Watermark) -> None:
        """Add one watermark; only the LOW watermarks of ordinary snapshots matter here."""
        if watermark.kind is not WatermarkKind.LOW or watermark.incremental:
            return
        self._add(watermark.topic, watermark.split, watermark.snapshot, position_sequence(watermark.position))

    def _add(self, topic: str, split: str, run: str, start: Sequence) -> None:
        self._run_of[split] = run
        first = self._first.get(topic)
        if first is None or (first.id == run and start < first.start):
            self._first[topic] = SnapshotRun(topic, run, start)

    def first(self, topic: str) -> SnapshotRun | None:
        """Return the earliest run in the watermarks topic, or None."""
        return self._first.get(topic)

    def fewest_partitions(self, topic: str) -> int | None:
        """Return the least number of partitions of a topic in its watermarks; None if none has one."""
        return self._fewest.get(topic)

    def splits_of(self, run: str, splits: Iterable[str]) -> list[str]:
        """Return the splits that belong to the run."""
        return [split for split in splits if self._run_of.get(split) == run]
