"""How far the snapshot of a table has been read: counts of incomplete splits, and which splits are complete.

A split is complete when its END certificate is known and the number of rows and backfill events that were read equals
the counts in it. The checksum of the rows must then be that of the certificate. The progress adds up what each batch
has read, so no record is counted twice. It is small: complete splits are kept as ranges of their numbers and of their
bounds.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import functions as fn

from tailrace.runtime.errors import KafkaRequestError
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.monitor.table_result import SnapshotState, SnapshotStatus
from tailrace.spark_consumer.small_data import ColumnCache
from tailrace.spark_consumer.source.watermarks import SplitEnd

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_FILE: Final = 1 << 36
"""A binlog position as one number is file * 2^36 + pos: a file is smaller than 64 GiB, a server has fewer than 2^27."""


class SplitStats(NamedTuple):
    """Counts of the records of one split; ``split`` is None for the records without a split."""

    split: str | None
    rows: int
    """Snapshot rows (op r)."""
    changes: int
    """Change records (op c, u, d), without tombstones."""
    newest_ms: int | None
    """Greatest source.ts_ms."""
    earliest: Sequence = Sequence(0, 0, 0, 0, 0)
    """A lower bound of the sequences: the least epoch combined with the least position of any epoch."""
    truncates: int = 0
    """Truncate events (op t)."""
    updates: int = 0
    """Changes with op u."""
    deletes: int = 0
    """Changes with op d."""
    checksum: int | None = 0
    """Sum of the checksums of the rows; None if they are not known, because the records are not plain JSON."""

    @property
    def incremental(self) -> bool:
        """Whether rows of an incremental snapshot are among the records; those rows have no split header."""
        return self.split is None and self.rows > 0


def summarize(decoded: DataFrame) -> list[SplitStats]:
    """Return the counts of each split; the driver collects one row per split.

    Only numbers are aggregated. With text or structs Spark would sort all records first.
    """
    return [_stats(row) for row in decoded.groupBy("split").agg(*_COUNTS.get("", _counts)).collect()]


_COUNTS: Final = ColumnCache["list[Column]"]()


def _counts() -> list[Column]:
    return [
        fn.count_if(fn.col("op") == Op.READ.value).alias("rows"),
        fn.count_if(~fn.col("op").isin(Op.READ.value, Op.TRUNCATE.value)).alias("changes"),
        fn.count_if(fn.col("op") == Op.TRUNCATE.value).alias("truncates"),
        fn.count_if(fn.col("op") == Op.UPDATE.value).alias("updates"),
        fn.count_if(fn.col("op") == Op.DELETE.value).alias("deletes"),
        fn.max("ts_ms").alias("newest"),
        fn.sum("checksum").alias("checksum"),
        fn.min("seq.epoch").alias("epoch"),
        fn.min(fn.col("seq.file") * fn.lit(_FILE) + fn.col("seq.pos")).alias("position"),
    ]


def _stats(row: Row) -> SplitStats:
    file, pos = divmod(row["position"], _FILE)
    earliest = Sequence(row["epoch"], file, pos, 0, 0)
    return SplitStats(
        row["split"],
        row["rows"],
        row["changes"],
        row["newest"],
        earliest,
        row["truncates"],
        row["updates"],
        row["deletes"],
        row["checksum"] if row["rows"] else 0,
    )


_FIRST = ""
_LAST = "end"
_CLOSED = "closed"


class SplitCounts(NamedTuple):
    """What was read of a split."""

    rows: int = 0
    backfill: int = 0
    checksum: int | None = 0
    """Sum of the checksums of the rows; None if it is not known."""

    def adding(self, stat: SplitStats) -> SplitCounts:
        """Return the counts with those of a batch."""
        unknown = self.checksum is None or stat.checksum is None
        checksum = None if unknown else (self.checksum or 0) + (stat.checksum or 0)
        return SplitCounts(self.rows + stat.rows, self.backfill + stat.changes, checksum)


@dataclass(frozen=True, slots=True)
class RunProgress:
    """The complete splits of one snapshot run."""

    numbers: tuple[tuple[int, int], ...] = ()
    """Ranges of split numbers, both ends included."""
    bounds: Mapping[str, str] = field(default_factory=dict)
    """Lower bound to upper bound of the key ranges that are complete; neighbors are joined."""
    above: bool = False
    """The split above the greatest planned key is complete."""

    def has(self, number: int) -> bool:
        """Return whether a split is complete."""
        return any(first <= number <= last for first, last in self.numbers)

    @property
    def complete(self) -> bool:
        """Whether the complete splits cover the key from its start to its end."""
        end = self.bounds.get(_FIRST)
        return end == _LAST or (end == _CLOSED and self.above)

    def adding(self, end: SplitEnd) -> RunProgress:
        """Return the progress with one more split complete."""
        numbers = _joined(self.numbers, end.number)
        if end.above:
            return replace(self, numbers=numbers, above=True)
        bounds = dict(self.bounds)
        lower = _FIRST if end.lower is None else end.lower
        upper = _CLOSED if end.closed else _LAST if end.upper is None else end.upper
        start = next((first for first, last in bounds.items() if last == lower), lower)
        bounds[start] = bounds.pop(upper, upper)
        return replace(self, numbers=numbers, bounds=bounds)


@dataclass(frozen=True, slots=True)
class SplitProgress:
    """The progress of one topic after a batch."""

    open: Mapping[str, SplitCounts] = field(default_factory=dict)
    """Incomplete splits to what was read of them."""
    runs: Mapping[str, RunProgress] = field(default_factory=dict)

    def has(self, end: SplitEnd) -> bool:
        """Return whether a split is complete."""
        return end.run in self.runs and self.runs[end.run].has(end.number)

    @property
    def complete(self) -> bool:
        """Whether all splits of a run were read."""
        return any(run.complete for run in self.runs.values())

    @property
    def loading(self) -> bool:
        """Whether splits were read, but not all of a run."""
        return bool(self.open or self.runs) and not self.complete

    @property
    def snapshot(self) -> SnapshotState:
        """Whether the snapshot of the table has been read; none: no split of it was read."""
        return "complete" if self.complete else "loading" if self.loading else "none"

    def status(self, pending: Iterable[SplitEnd]) -> SnapshotStatus:
        """Return the numbers of splits; ``pending`` are END certificates that may be of splits that wait."""
        done = sum(last - first + 1 for run in self.runs.values() for first, last in run.numbers)
        waiting = self.open.keys() | {end.split for end in pending if not self.has(end)}
        return SnapshotStatus(self.snapshot, done, done + len(waiting), len(self.open))

    def advance(
        self, stats: Iterable[SplitStats], ends: Iterable[SplitEnd], *, accept: Iterable[str] = ()
    ) -> SplitStep:
        """Return the progress after a batch, and the splits that it completes.

        ``accept`` names splits that count as complete although records of them are missing or differ. Raises
        KafkaRequestError if a split has more records than its END certificate says.
        """
        counts = dict(self.open)
        for stat in stats:
            if stat.split is not None:
                counts[stat.split] = counts.get(stat.split, SplitCounts()).adding(stat)
        runs, completed, missing, different = dict(self.runs), {}, [], []
        accepted = frozenset(accept)
        for end in ends:
            if self.has(end):
                continue
            rows, backfill, checksum = counts.get(end.split, SplitCounts())
            if rows > end.rows or backfill > end.backfill:
                raise _too_many(end, rows, backfill)
            if (rows, backfill) != (end.rows, end.backfill) and end.split not in accepted:
                missing.append(MissingRecords(end, end.rows - rows, end.backfill - backfill))
                continue
            if checksum not in {None, end.checksum} and end.split not in accepted:
                different.append(end)
                continue
            counts.pop(end.split, None)
            completed[end.split] = end.high
            runs[end.run] = runs.get(end.run, RunProgress()).adding(end)
        return SplitStep(SplitProgress(counts, runs), completed, tuple(missing), tuple(different))

    def to_json(self) -> dict[str, Any]:
        """Return the progress for a file."""
        runs = {
            name: {"numbers": run.numbers, "bounds": dict(run.bounds), "above": run.above}
            for name, run in self.runs.items()
        }
        return {"open": dict(self.open), "runs": runs}

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> SplitProgress:
        """Read what ``to_json`` returned, also through JSON."""
        runs = {
            name: RunProgress(tuple((first, last) for first, last in run["numbers"]), run["bounds"], run["above"])
            for name, run in body["runs"].items()
        }
        return cls({split: SplitCounts(*counts) for split, counts in body["open"].items()}, runs)


@dataclass(frozen=True, slots=True)
class MissingRecords:
    """A split whose certificate is known, and the records that were not read yet."""

    end: SplitEnd
    rows: int
    backfill: int


@dataclass(frozen=True, slots=True)
class SplitStep:
    """What a batch changes."""

    progress: SplitProgress
    completed: Mapping[str, Sequence]
    """Splits that are complete now, to the sequence of their high watermark."""
    missing: tuple[MissingRecords, ...] = ()
    different: tuple[SplitEnd, ...] = ()
    """Certificates of splits that have as many records as they say, but other rows."""


def _joined(ranges: Iterable[tuple[int, int]], number: int) -> tuple[tuple[int, int], ...]:
    """Return sorted ranges with one more number; ranges that touch become one."""
    merged: list[tuple[int, int]] = []
    for first, last in sorted([*ranges, (number, number)]):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)


def _too_many(end: SplitEnd, rows: int, backfill: int) -> KafkaRequestError:
    return KafkaRequestError(
        f"split {end.split} has more records than its END watermark says",
        hint="check for another writer to the topic; a producer without transactions repeats records",
        topic=end.topic,
        rows=f"{rows} read, {end.rows} in END",
        backfill=f"{backfill} read, {end.backfill} in END",
    )
