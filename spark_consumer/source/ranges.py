"""The offset range of each topic in a batch, from the offset log that Spark keeps in the checkpoint.

A batch ends at the offsets of ``offsets/<n>`` and starts at those of ``offsets/<n-1>``. The first batch starts at the
offsets that the source found when the query was new (``sources/0/0``).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from math import ceil
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.files import children, read_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

EARLIEST: Final = -2
"""The start of a partition that is new in a batch, in the notation of Spark's Kafka source."""

Offsets = Mapping[str, Mapping[str, int]]
"""Topic to partition to offset."""


class OffsetRange(NamedTuple):
    """Offsets of one partition; ``end`` is exclusive."""

    start: int
    end: int


@dataclass(frozen=True, slots=True)
class TopicRange:
    """The offsets of one topic in a batch, without partitions that have none."""

    topic: str
    partitions: Mapping[int, OffsetRange]
    cut_off: Mapping[int, int] = field(default_factory=dict)
    """Partitions that end before offsets that were read, to these offsets: another topic, or records are lost. Their
    ranges start at the beginning."""

    @property
    def offsets(self) -> int:
        """The number of offsets; markers of transactions count too."""
        return sum(found.end - max(found.start, 0) for found in self.partitions.values())

    @property
    def begins(self) -> dict[int, int]:
        """Partition to the offset at which it begins; the earliest one counts as 0."""
        return {number: max(found.start, 0) for number, found in self.partitions.items()}

    @property
    def ends(self) -> dict[int, int]:
        """Partition to the offset at which it ends."""
        return {number: found.end for number, found in self.partitions.items()}

    def first(self, limit: int) -> TopicRange:
        """Return the beginning of the range, with about ``limit`` offsets, an equal part of each partition."""
        share = min(1.0, limit / max(1, self.offsets))
        cut = {
            number: OffsetRange(each.start, max(each.start, 0) + ceil((each.end - max(each.start, 0)) * share))
            for number, each in self.partitions.items()
        }
        return TopicRange(self.topic, cut)

    def after(self, applied: Mapping[int, int]) -> TopicRange:
        """Return the range without the offsets before ``applied``."""
        starts = {number: max(each.start, applied.get(number, EARLIEST)) for number, each in self.partitions.items()}
        left = {n: OffsetRange(starts[n], each.end) for n, each in self.partitions.items() if starts[n] < each.end}
        return TopicRange(self.topic, left)

    def until(self, ends: Mapping[str, int]) -> TopicRange | None:
        """Return the part of the range before some offsets; None if it has none."""
        cut = {n: OffsetRange(each.start, min(each.end, ends.get(str(n), 0))) for n, each in self.partitions.items()}
        cut = {n: each for n, each in cut.items() if max(each.start, 0) < each.end}
        return replace(self, partitions=cut) if cut else None


@dataclass(frozen=True, slots=True)
class BatchRanges:
    """The offsets of all topics at the start and at the end of a batch."""

    start: Offsets
    end: Offsets

    @property
    def ranges(self) -> dict[str, TopicRange]:
        """The ranges of the topics whose offsets advance."""
        return ranges_between(self.start, self.end)


def ranges_of_batch(spark: SparkSession, checkpoint: str, batch_id: int) -> BatchRanges:
    """Return the ranges of a batch that Spark has planned."""
    root = checkpoint.rstrip("/")
    start = f"{root}/offsets/{batch_id - 1}" if batch_id else f"{root}/sources/0/0"
    return BatchRanges(_offsets(spark, start), _offsets(spark, f"{root}/offsets/{batch_id}"))


def committed(spark: SparkSession, checkpoint: str) -> tuple[int, Offsets]:
    """Return the number and the end of the last batch that Spark has committed; -1 if there is none."""
    root = checkpoint.rstrip("/")
    batches = [int(name) for name in children(spark, f"{root}/commits") if name.isdigit()]
    return (max(batches), _offsets(spark, f"{root}/offsets/{max(batches)}")) if batches else (-1, {})


def require_offsets(spark: SparkSession, checkpoint: str) -> None:
    """Raise an error that names the file if the last offsets of a checkpoint cannot be read: that of Spark does not."""
    folder = f"{checkpoint.rstrip('/')}/offsets"
    for number in sorted(int(name) for name in children(spark, folder) if name.isdigit())[-2:]:
        _offsets(spark, f"{folder}/{number}")


def ranges_between(start: Offsets, end: Offsets) -> dict[str, TopicRange]:
    """Return the range of each topic that has offsets between two positions."""
    found = {}
    for topic, ends in end.items():
        starts = start.get(topic, {})
        cut_off = {int(name): starts[name] for name, offset in ends.items() if offset < starts.get(name, EARLIEST)}
        own = {int(name): OffsetRange(starts.get(name, EARLIEST), offset) for name, offset in ends.items()}
        own = {n: OffsetRange(EARLIEST, each.end) if n in cut_off else each for n, each in own.items()}
        own = {n: each for n, each in own.items() if n in cut_off or max(each.start, 0) < each.end}
        if own:
            found[topic] = TopicRange(topic, own, cut_off)
    return found


def _offsets(spark: SparkSession, path: str) -> Offsets:
    text = read_text(spark, path)
    found = None if text is None else parse_offsets(text)
    if found is None:
        raise SinkError(
            "the offsets of a batch cannot be read from the checkpoint",
            hint="restore the whole checkpoint directory, and use a Spark version that this release supports; without "
            "a copy start with an empty checkpoint: the targets tell what they have applied, except kafka and parquet, "
            "which need new ones",
            path=path,
            content=None if text is None else text[:200],
        )
    return found


def parse_offsets(text: str) -> Offsets | None:
    """Return the offsets in an entry of the offset log, or in the file of the initial offsets; None if there are none.

    The offsets of the only source are the last line. A zero byte precedes the initial offsets.
    """
    lines = text.strip("\0\n").splitlines()
    if len(lines) not in {2, 3} or lines[0] != "v1":
        return None
    try:
        offsets = json.loads(lines[-1])
    except json.JSONDecodeError:
        return None
    valid = isinstance(offsets, dict) and all(isinstance(partitions, dict) for partitions in offsets.values())
    return offsets if valid else None
