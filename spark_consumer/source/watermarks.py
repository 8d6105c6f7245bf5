"""Reads the watermarks topic, independent of the stream: END certificates of splits, and where tables and runs begin.

The certificates that no table has used yet are kept. The rows of a former table of a name are gone where the new one
begins. A table waits for that until a batch of it, with or without records, is written: not while it is behind, nor if
its work has failed. LOW watermarks tell the snapshot run of a split, so that a sink can recognize rows of the initial
snapshot, and how many partitions a topic had (schemas/watermark.py).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import POSITIONS, WatermarkKind
from tailrace.spark_consumer.source.control import ControlTopic

if TYPE_CHECKING:
    from pyspark.sql import Row, SparkSession

_FIELDS: Final = (
    "kind string, split string, snapshot string, topic string, number bigint, lower string, upper string, "
    "closed boolean, rows bigint, backfill bigint, checksum string, incremental boolean, lower_open boolean, "
    "partitions int, "
    "position struct<kind: string, epoch: bigint, file: string, pos: bigint>"
)
"""Fields of a watermark; the GTID sets of the positions do not leave the executors."""
_NONE: Final = Sequence(-1, 0, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class SplitEnd:
    """The END certificate of a split, as far as a reader needs it."""

    topic: str
    split: str
    run: str
    number: int
    """Number of the split; unique in its run."""
    rows: int
    backfill: int
    high: Sequence
    lower: str | None
    """Lower bound as JSON; None where open."""
    upper: str | None
    """Upper bound as JSON; None where open, or where it is the greatest key of the plan (``closed``)."""
    closed: bool = False
    above: bool = False
    """The split of the keys above the greatest planned one."""
    checksum: int = 0
    """Sum of the checksums of the rows (``row_checksum`` of json_decoder.py)."""
    incremental: bool = False


class SplitEnds:
    """The certificates that were read and not taken, by topic; those of incremental snapshots are ignored.

    No record waits for a certificate of an incremental snapshot. The topic is read committed: an aborted certificate
    may have other counts than the one that follows.
    """

    def __init__(self, watermarks: ControlTopic) -> None:
        self._watermarks = watermarks
        self._reading = threading.Lock()
        self._lock = threading.Lock()
        self._pending: dict[str, dict[str, SplitEnd]] = {}
        self._created: dict[str, Sequence] = {}
        self._written: dict[str, Sequence] = {}
        """By topic, up to where the target has no rows of a former table."""
        self._limits: dict[str, Mapping[int, int]] = {}

    def refresh(self, spark: SparkSession) -> None:
        """Read the records that were appended since the last call."""
        kinds = (WatermarkKind.END.value, WatermarkKind.CREATED.value)
        wanted = fn.col("kind").isin(*kinds) & ~fn.coalesce("incremental", fn.lit(False))
        with self._reading:
            rows = self._watermarks.poll_fields(spark, _FIELDS, wanted)
        with self._lock:
            for row in rows:
                if row["kind"] == WatermarkKind.CREATED:
                    sequence = _sequence(row)
                    self._created[row["topic"]] = max(sequence, self._created.get(row["topic"], sequence))
        self.add(_end(row) for row in rows if row["kind"] == WatermarkKind.END)

    def reread(self, spark: SparkSession, topics: Iterable[str]) -> None:
        """Read all records again: tables that go back need certificates that they have released."""
        with self._reading:
            self._watermarks.rewind()
        self.refresh(spark)
        with self._lock:
            for topic in topics:
                self._written.pop(topic, None)

    def created(self, topic: str) -> Sequence | None:
        """Return where the table of a topic begins, if the topic may have rows of a former one: the last place."""
        with self._lock:
            return self._created.get(topic)

    def written(self, topic: str, truncated: Sequence | None) -> None:
        """Note that the target has no rows before a place, if there is one."""
        if truncated is not None:
            with self._lock:
                self._written[topic] = truncated

    def begun(self) -> set[str]:
        """Return the topics of tables that begin where their targets can have rows of a former table."""
        with self._lock:
            return {topic for topic, begin in self._created.items() if self._written.get(topic, _NONE) < begin}

    def add(self, ends: Iterable[SplitEnd]) -> None:
        """Add certificates."""
        with self._lock:
            for end in ends:
                self._pending.setdefault(end.topic, {})[end.split] = end
                self._limits.pop(end.topic, None)

    def pending(self, topic: str) -> Mapping[str, SplitEnd]:
        """Return the certificates of a topic by split."""
        with self._lock:
            return dict(self._pending.get(topic, {}))

    def topics(self) -> set[str]:
        """Return the topics with certificates."""
        with self._lock:
            return set(self._pending)

    def passed(self, topic: str, read: Mapping[int, int], ends: Callable[[], Mapping[int, int]]) -> bool:
        """Return whether a topic is read so far that every record which its certificates count is read.

        ``ends`` returns where the partitions end now; it is called once for the last certificates that were read.
        """
        with self._lock:
            limits = self._limits.get(topic)
        if limits is None:
            limits = ends()
            with self._lock:
                self._limits[topic] = limits
        return all(read.get(partition, 0) >= end for partition, end in limits.items())

    def release(self, topic: str, splits: Iterable[str]) -> None:
        """Forget the certificates of splits that are complete."""
        with self._lock:
            pending = self._pending.get(topic, {})
            for split in splits:
                pending.pop(split, None)
            if not pending:
                self._pending.pop(topic, None)
                self._limits.pop(topic, None)


def _end(row: Row) -> SplitEnd:
    return SplitEnd(
        topic=row["topic"],
        split=row["split"],
        run=row["snapshot"],
        number=row["number"],
        rows=row["rows"],
        backfill=row["backfill"],
        high=_sequence(row),
        lower=row["lower"],
        upper=row["upper"],
        closed=row["closed"],
        above=bool(row["lower_open"]),
        checksum=int(row["checksum"], 16),
        incremental=bool(row["incremental"]),
    )


def _sequence(row: Row) -> Sequence:
    position = row["position"]
    if position["kind"] not in POSITIONS:
        raise ValueError(f"a position of kind {position['kind']!r} cannot be read")
    return Sequence.at(position["epoch"], position["file"], position["pos"])


@dataclass(frozen=True, slots=True)
class Certificates:
    """All END certificates of a prefix, those of incremental snapshots too, and where tables begin."""

    ends: Mapping[str, list[SplitEnd]]
    """By topic, in the order in which they were written."""
    created: Mapping[str, Sequence]
    """By topic, the last place at which its table begins: its rows from before are gone for readers."""


def read_certificates(spark: SparkSession, watermarks: ControlTopic) -> Certificates:
    """Read the watermarks topic from where it was read last; it is to be read committed."""
    kinds = (WatermarkKind.END.value, WatermarkKind.CREATED.value)
    ends: dict[str, dict[str, SplitEnd]] = {}
    created: dict[str, Sequence] = {}
    for row in watermarks.poll_fields(spark, _FIELDS, fn.col("kind").isin(*kinds)):
        if row["kind"] == WatermarkKind.END:
            end = _end(row)
            ends.setdefault(end.topic, {})[end.split] = end
        else:
            begin = _sequence(row)
            created[row["topic"]] = max(begin, created.get(row["topic"], begin))
    return Certificates({topic: list(each.values()) for topic, each in ends.items()}, created)


def splits_begun(spark: SparkSession, watermarks: ControlTopic) -> set[str]:
    """Return the splits that have a LOW watermark; the topic is to be read uncommitted (control.py)."""
    rows = watermarks.poll_fields(spark, _FIELDS, fn.col("kind") == WatermarkKind.LOW.value)
    return {row["split"] for row in rows}


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
                    self.add(row["topic"], row["split"], row["snapshot"], _sequence(row))
            self._read_for = batches

    def add(self, topic: str, split: str, run: str, start: Sequence) -> None:
        """Add the LOW watermark of a split; that of an incremental snapshot does not matter here."""
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
