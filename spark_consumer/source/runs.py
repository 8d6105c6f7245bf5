"""Which snapshot run a split belongs to, from LOW watermarks: what tells a first load from any other row."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tailrace.spark_consumer.normalize.sequence import position_sequence
from tailrace.spark_consumer.source.control import ControlTopic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class SnapshotRun:
    """One snapshot run of one table; ``start`` is the least LOW position of its splits read so far."""

    topic: str
    id: str
    start: Sequence


class SnapshotRuns:
    """Splits by run, and each topic's first run."""

    def __init__(self, watermarks: ControlTopic) -> None:
        self._watermarks = watermarks
        self._run_of: dict[str, str] = {}
        self._first: dict[str, SnapshotRun] = {}

    def learn(self, spark: SparkSession, splits: Iterable[str]) -> None:
        """Make sure that the runs of these splits are known, as far as the topic still tells them."""
        if any(split not in self._run_of for split in splits):
            self.refresh(spark)

    def refresh(self, spark: SparkSession) -> None:
        """Take in what was appended to the watermarks topic since the last call."""
        for record in self._watermarks.news(spark):
            self.add(Watermark.from_json(record.value))

    def add(self, mark: Watermark) -> None:
        """Take in one watermark record; only LOW tells something new. A table that is read again starts no load."""
        if mark.kind is not WatermarkKind.LOW or mark.incremental:
            return
        self._run_of[mark.split] = mark.snapshot
        start = position_sequence(mark.position)
        first = self._first.get(mark.topic)
        if first is None or (first.id == mark.snapshot and start < first.start):
            self._first[mark.topic] = SnapshotRun(mark.topic, mark.snapshot, start)

    def first(self, topic: str) -> SnapshotRun | None:
        """Return the earliest run that the watermarks topic still tells of, None where it tells of none."""
        return self._first.get(topic)

    def splits_of(self, run: str, splits: Iterable[str]) -> list[str]:
        """Return those of ``splits`` that belong to the run."""
        return [split for split in splits if self._run_of.get(split) == run]
