"""Advances the progress of a table's snapshot, and decides about splits whose records are missing in the topic."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.spark_consumer.errors import DamagedTopicError, IncompleteTopicError
from tailrace.spark_consumer.monitor.table_result import SnapshotStatus
from tailrace.spark_consumer.normalize.split_progress import MissingRecords, SplitProgress, SplitStats, SplitStep
from tailrace.spark_consumer.normalize.stored_records import MovedKeys
from tailrace.spark_consumer.source.kafka_admin import beginning_offsets, end_offsets
from tailrace.spark_consumer.source.watermarks import SnapshotRuns, SplitEnds
from tailrace.spark_consumer.tables.reading import Reading

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.normalize.table_state import TableState
    from tailrace.spark_consumer.source.ranges import TopicRange
    from tailrace.spark_consumer.source.watermarks import SplitEnd

_HINT: Final = (
    "set tailrace.incomplete.topic.handling.mode=warn and send a signal for an incremental snapshot of the table; keep "
    "its topic for longer (retention.ms), and do not compact it"
)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Snapshots:
    """The snapshots of the tables of a query; every member is safe to use from several threads."""

    reading: Reading
    ends: SplitEnds
    runs: SnapshotRuns
    accept_incomplete: bool = False
    """Whether a table goes on if its topic lacks records of its snapshot."""

    def status(self, topic: str, progress: SplitProgress) -> SnapshotStatus:
        """Return how far the snapshot of a topic has been read."""
        return progress.status(self.ends.pending(topic).values())

    def whole_from(self, topic: str, before: TableState) -> Mapping[int, int] | None:
        """Return from which offsets earlier batches have read the topic (``check_start``); None: it is not known."""
        if before.step < 0:
            return None
        begins = before.begins_in(self.reading.topic_id(topic))
        return {} if begins is None and not self.accept_incomplete else begins

    def begins(self, topic: str, before: TableState, begins: Mapping[int, int]) -> Mapping[int, int] | None:
        """Return where a table begins, for the state after a batch that begins at some offsets.

        The first batch says it. A table that must have all records of its topic begins at 0, also if the target has
        applied those before the batch.
        """
        if before.step >= 0:
            return before.begins_in(self.reading.topic_id(topic))
        return begins if self.accept_incomplete else {}

    def known_keys(self, spark: SparkSession, topic: str, before: TableState, partitions: int) -> MovedKeys:
        """Return what is known of the partitions of a topic, of which there are so many now, before a batch."""
        known = before.moved_keys_in(self.reading.topic_id(topic))
        if known.partitions:
            return known
        if partitions == 1:
            return MovedKeys(partitions)
        self.runs.refresh(spark)
        return MovedKeys(min(partitions, self.runs.fewest_partitions(topic) or partitions))

    def advance(
        self,
        spark: SparkSession,
        topic: str,
        before: TableState,
        stats: Iterable[SplitStats],
        *,
        read: Mapping[int, int],
    ) -> SplitStep:
        """Return the progress of a topic after a batch; ``read`` are the offsets up to which the topic is read then.

        The records of a split are in the topic before its END certificate. If the topic is read up to where it ended
        when the certificate was seen, records that are missing will not come: Kafka has removed them. Raises
        IncompleteTopicError, or DamagedTopicError for other rows, unless the configuration accepts that.
        """
        progress = before.progress
        pending = self.ends.pending(topic).values()
        # What an earlier batch completed is certain only now: that batch was written.
        self.ends.release(topic, [end.split for end in pending if progress.has(end)])
        ends = [end for end in pending if not progress.has(end)]
        step = progress.advance(stats, ends)
        accepted = [end.split for end in step.different]
        if step.different:
            self._accept_different(topic, step.different)
        if step.missing and self._will_not_come(spark, topic, before, step.missing, read=read):
            accepted += [missing.end.split for missing in step.missing]
        return progress.advance(stats, ends, accept=accepted) if accepted else step

    def _will_not_come(
        self,
        spark: SparkSession,
        topic: str,
        before: TableState,
        missing: tuple[MissingRecords, ...],
        *,
        read: Mapping[int, int],
    ) -> bool:
        """Return whether Kafka has removed the records. Raises IncompleteTopicError unless that is accepted."""
        if not self.ends.passed(topic, read, lambda: end_offsets(spark, self.reading.source, topic, read)):
            return False
        if before.unverified:
            # Nothing is missing: what a range begins with is there, or its read fails.
            log.info(
                "splits are not compared: the target has applied records of them", topic=topic, splits=len(missing)
            )
            return True
        # Bad records are not counted.
        if not (self.accept_incomplete or self.reading.dead_letters):
            raise _incomplete(topic, missing)
        log.warning(
            "records of a snapshot are missing in a topic; the table may lack rows",
            topic=topic,
            splits=len(missing),
            rows=sum(each.rows for each in missing),
            changes=sum(each.backfill for each in missing),
        )
        return True

    def _accept_different(self, topic: str, different: tuple[SplitEnd, ...]) -> None:
        """Raise DamagedTopicError for rows that are not those of their certificates, unless that is accepted."""
        first = different[0]
        if not self.accept_incomplete:
            raise DamagedTopicError(
                f"rows of split {first.split} in topic {topic} are not those that the producer wrote: the checksum "
                "differs",
                hint="allow only the producer to write to the topic, then set "
                "tailrace.incomplete.topic.handling.mode=warn and send a signal for an incremental snapshot of the "
                "table",
                split=first.split,
                keys=f"from {first.lower or 'the first'} to {first.upper or 'the last'}",
                rows=first.rows,
                splits=len(different),
            )
        splits = [end.split for end in different]
        log.warning("rows of a snapshot are not those that the producer wrote", topic=topic, splits=splits)

    def check_start(self, topic: str, before: TableState, found: TopicRange, applied: Collection[int] = ()) -> None:
        """Look for records that Kafka removed before the first batch of a query, which begins at numbers.

        They are not missing in a partition that the target has ``applied``. Raises IncompleteTopicError as
        ``check_beginning``.
        """
        if before.step < 0:
            begins = {number: each.start for number, each in found.partitions.items() if number not in applied}
            self._require_whole(topic, begins)

    def check_beginning(self, spark: SparkSession, topic: str, found: TopicRange | None) -> None:
        """Look for records that Kafka removed before a topic or partition was found; called when the range was read.

        Its range begins at the earliest offset, which is 0 in a partition that is read whole. Raises
        IncompleteTopicError unless the configuration accepts that.
        """
        unknown = [number for number, each in found.partitions.items() if each.start < 0] if found else []
        if unknown:
            self._require_whole(topic, beginning_offsets(spark, self.reading.source, topic, unknown))

    def _require_whole(self, topic: str, begins: Mapping[int, int]) -> None:
        removed = {number: offset for number, offset in begins.items() if offset > 0}
        if not removed:
            return
        if not self.accept_incomplete:
            raise IncompleteTopicError(
                f"topic {topic} has lost its beginning: the table would lack rows",
                hint=_HINT,
                first_offsets=", ".join(f"partition {partition}: {offset}" for partition, offset in removed.items()),
            )
        log.warning("a topic has lost its beginning; the table may lack rows", topic=topic, first_offsets=removed)


def _incomplete(topic: str, missing: tuple[MissingRecords, ...]) -> IncompleteTopicError:
    first = missing[0]
    return IncompleteTopicError(
        f"topic {topic} lacks records of a snapshot: the table would lack rows",
        hint=_HINT,
        splits=len(missing),
        first_split=first.end.split,
        rows=f"{first.rows} of {first.end.rows} missing",
        changes=f"{first.backfill} of {first.end.backfill} missing",
    )
