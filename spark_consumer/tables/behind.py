"""A target that has applied less than the query has read: it was restored, or the position of the query is not its own.

The invariant: the ledger of a target reaches the start of each range that is written to it, and in partitions without
new records the offset up to which they are read. Otherwise nobody would read the records in between, and the commit of
the range would say that they are applied. A table whose target is behind
goes back: its position (parking.py) is set to the ledger, and its records are read again from there. If Kafka has
removed them, reading them parks the table.

Whether a partition that the ledger lacks was read is known only of a topic that has had all its records from the
beginning: of others, a query has started behind records that no target gets.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.spark_consumer.errors import SinkError

if TYPE_CHECKING:
    from tailrace.spark_consumer.source.ranges import TopicRange


class TargetBehindError(SinkError):
    """A target has not applied all records before a range."""

    def __init__(self, topic: str, starts: Mapping[int, int], behind: Mapping[int, int]) -> None:
        """``behind``: partition to the offset at which the records begin that the target has not applied."""
        self.starts = {str(number): offset for number, offset in behind.items()}
        super().__init__(
            f"the target has not applied all records of topic {topic} that are before those of the batch",
            hint="they are read again from Kafka",
            applied_up_to=dict(behind),
            batch_starts_at={number: starts[number] for number in behind},
        )


def require_reached(found: TopicRange, read: Mapping[int, int], applied: Mapping[int, int], *, is_whole: bool) -> None:
    """Raise TargetBehindError if a target has not applied all records before a range.

    ``read``: of all partitions, how far they are read after the range. ``is_whole``: whether an earlier batch has read
    the topic from its beginning.
    """
    starts = {**read, **{number: max(each.start, 0) for number, each in found.partitions.items()}}
    known = applied if not is_whole else {**dict.fromkeys(starts, 0), **applied}
    behind = {number: known[number] for number, start in starts.items() if number in known and known[number] < start}
    if behind:
        raise TargetBehindError(found.topic, starts, behind)
