"""How far a table of a query is: in the batches, behind them, or unable to go on.

The position of a table is the offset per partition at which its unapplied records begin. A table that takes part in
each batch needs none. A batch and the background never have the same table at the same time. docs/architecture.md draws
the transitions.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from tailrace.schemas.known_fields import known_fields
from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange, TopicRange


class TableProgress(StrEnum):
    """What happens to the records of a table now."""

    FOLLOWING = "following"
    """It takes part in each batch that has records of it. It has no position."""
    IN_BATCH = "in batch"
    """A batch processes it; it has a position if it had one, or if a part of its range is stored."""
    BEHIND = "behind"
    """It has a position, at which the background or a batch goes on."""
    RESUMING = "resuming"
    """The background processes a chunk; a parked table keeps its reason until the chunk is applied."""
    PARKED = "parked"
    """It cannot go on. It is tried again after a time, at the next start, or on request."""
    LOST_END = "lost end"
    """The topic has lost its last records. Later ones take their offsets, so the table waits for another topic."""
    UNREADABLE = "unreadable"
    """Its position is there and cannot be read. Where it goes on is not known, so none of its records is applied. Each
    attempt reads the file again."""


TRANSITIONS: Final[Mapping[TableProgress, frozenset[TableProgress]]] = {
    TableProgress.FOLLOWING: frozenset({TableProgress.IN_BATCH, TableProgress.BEHIND}),
    TableProgress.IN_BATCH: frozenset(
        {TableProgress.FOLLOWING, TableProgress.BEHIND, TableProgress.PARKED, TableProgress.LOST_END}
    ),
    TableProgress.BEHIND: frozenset({TableProgress.FOLLOWING, TableProgress.IN_BATCH, TableProgress.RESUMING}),
    TableProgress.RESUMING: frozenset({TableProgress.BEHIND, TableProgress.PARKED, TableProgress.LOST_END}),
    TableProgress.PARKED: frozenset({TableProgress.BEHIND, TableProgress.RESUMING}),
    TableProgress.LOST_END: frozenset({TableProgress.PARKED}),
    TableProgress.UNREADABLE: frozenset({TableProgress.BEHIND, TableProgress.LOST_END}),
}
"""Progress of a table -> what may follow it."""
AT_WORK: Final = frozenset({TableProgress.IN_BATCH, TableProgress.RESUMING})


class IllegalTransitionError(RuntimeError):
    """The progress of a table cannot be followed by another one: a defect in the consumer."""

    def __init__(self, topic: str, before: TableProgress, after: TableProgress) -> None:
        super().__init__(f"{topic}: {before} cannot be followed by {after}")


@dataclass(frozen=True, slots=True)
class TablePosition:
    """Where the unapplied records of a table begin."""

    topic: str
    starts: Mapping[str, int]
    """Partition to offset. A partition that is missing begins at its earliest offset."""
    reason: str | None = None
    """Why the table cannot go on; None while it is taken up again."""
    hint: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    parked_at: float | None = None
    """Seconds since 1970."""
    until: Mapping[str, int] = field(default_factory=dict)
    """Partition to the end of the part that is processed now (work.py)."""
    topic_id: str = ""
    """Kafka's id of the topic that the offsets belong to; empty if it is not known."""
    cut_off: bool = False
    """Whether the table waits for another topic (LOST_END)."""

    @property
    def progress(self) -> TableProgress:
        """The progress of the table while nothing processes it."""
        if self.cut_off:
            return TableProgress.LOST_END
        return TableProgress.BEHIND if self.reason is None else TableProgress.PARKED

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> TablePosition:
        """Read what a document has; the table is taken up again, unless it waits for another topic."""
        known = known_fields(cls, body)
        position = replace(cls(**known), starts=dict(known["starts"]))
        return position if position.cut_off else replace(position, reason=None)

    def range_to(self, ends: Mapping[str, int]) -> TopicRange:
        """Return the records from the position up to some offsets."""
        found = {int(name): OffsetRange(self.starts.get(name, EARLIEST), end) for name, end in ends.items()}
        return TopicRange(self.topic, {n: each for n, each in found.items() if max(each.start, 0) < each.end})

    def cut_off_at(self, ends: Mapping[int, int]) -> TopicRange | None:
        """Return the partitions that end, at some offsets, before the position; None if there are none."""
        found = {int(name): offset for name, offset in self.starts.items() if offset > ends.get(int(name), offset)}
        ranges = {number: OffsetRange(EARLIEST, ends[number]) for number in found}
        return TopicRange(self.topic, ranges, found) if found else None

    def is_at(self, starts: Mapping[str, int]) -> bool:
        """Return whether the unapplied records begin at some offsets; a partition without one begins at 0."""
        own = {name: max(offset, 0) for name, offset in self.starts.items()}  # EARLIEST is no number of a record
        return all(own.get(name, 0) >= offset for name, offset in starts.items()) and all(
            starts.get(name, 0) == offset for name, offset in own.items()
        )

    def is_beyond(self, ends: Mapping[str, int]) -> bool:
        """Return whether the topic ended, at some offsets, before records that were read: it is another topic."""
        return bool(ends) and any(offset > ends.get(name, 0) for name, offset in self.starts.items())

    def at_beginning_of(self, topic_id: str, ends: Iterable[str]) -> TablePosition:
        """Return the position before all records of another topic of that name, with some partitions."""
        return replace(self, starts=dict.fromkeys(ends, EARLIEST), until={}, topic_id=topic_id, cut_off=False)


@dataclass(slots=True)
class TrackedTable:
    """A table of the query."""

    topic: str
    progress: TableProgress = TableProgress.FOLLOWING
    position: TablePosition | None = None
    begins: Mapping[str, int] = field(default_factory=dict)
    """The offsets of all partitions before the work that is done now."""
    topic_id: str = ""
    """That of the topic whose records were processed last."""
    is_requested: bool = False
    """Whether the parked table is to be tried now."""

    def move_to(self, after: TableProgress) -> None:
        """Raises IllegalTransitionError."""
        if after not in TRANSITIONS[self.progress]:
            raise IllegalTransitionError(self.topic, self.progress, after)
        self.progress = after

    def settle(self) -> None:
        """Move to what the position says: work has ended, or the position is another one."""
        after = TableProgress.FOLLOWING if self.position is None else self.position.progress
        if after is not self.progress:
            self.move_to(after)

    def begin(self, work: TableProgress, begins: Mapping[str, int]) -> None:
        """Move to some work; ``begins`` are the offsets of all partitions before it."""
        self.move_to(work)
        self.begins = begins
