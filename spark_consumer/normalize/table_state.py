"""What the consumer knows of a table between two batches: the progress of its snapshot, and what it holds.

A file per topic and step, ``<checkpoint>/tables/<topic>/<step>.json``, is written before the sink gets the records of a
batch, and only if something changed. A batch that runs again finds its file and decides as in the first attempt:
certificates that arrived meanwhile do not count. The file names the offsets up to which it counts. So a table whose
batch failed after the file was written, and that goes on in a later batch, uses the file before it. A batch without
records of the table does not move the offsets: its file is removed when the table is parked.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from tailrace.runtime.stored_format import NewerFormatError
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.errors import StoredFileError
from tailrace.spark_consumer.files import delete_document, document_names, read_document, write_document
from tailrace.spark_consumer.normalize.latest import later
from tailrace.spark_consumer.normalize.split_progress import SplitProgress
from tailrace.spark_consumer.normalize.stored_records import HeldFolder, MovedKeys

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange


@dataclass(frozen=True, slots=True, kw_only=True)
class TableState:
    """The state of one topic after a batch."""

    step: int = -1
    """Number of the state; -1: nothing of the topic is known."""
    written: int = -1
    """Images.CHANGELOG: the last such step whose effect was written to the target; -1: not known."""
    batch: int = -1
    """The batch that it was written in."""
    idle: bool = False
    """Whether the batch had no records of the topic."""
    unverified: bool = False
    """Whether records were skipped that the target had applied: they are not counted."""
    starts: Mapping[int, int] | None = None
    """Partition to the offset at which the range of the batch begins; None: written by an earlier release."""
    ends: Mapping[int, int] = field(default_factory=dict)
    """Partition to the offset up to which the records are counted."""
    progress: SplitProgress = field(default_factory=SplitProgress)
    completed: Mapping[str, Sequence] = field(default_factory=dict)
    """Splits that this batch completed, or that are complete and have records under another split that is not, to
    their high watermark."""
    held: Mapping[HeldFolder, tuple[str, ...]] = field(default_factory=dict)
    """Folders with held records, to the splits that these records belong to."""
    released: tuple[HeldFolder, ...] = ()
    """Folders whose records this batch writes."""
    truncated: Sequence | None = None
    """The sequence of the last truncate event."""
    moved_keys: MovedKeys = field(default_factory=MovedKeys)
    """Only for upserts."""
    topic_id: str = ""
    """Kafka's id of the topic that was read; empty if it was not known."""
    begins: Mapping[int, int] | None = None
    """Partition to the offset at which the table begins: that of its first range, or of a reload (reload.py). One that
    is missing begins at 0. None: written by an earlier release."""

    def begins_in(self, topic_id: str) -> Mapping[int, int] | None:
        """Return where the table begins in a topic, '' if its id is not known: in another one at 0."""
        return self.begins if self._is_of(topic_id) else {}

    def moved_keys_in(self, topic_id: str) -> MovedKeys:
        """Return what is known of the partitions of a topic: nothing if it is another one."""
        return self.moved_keys if self._is_of(topic_id) else MovedKeys()

    def _is_of(self, topic_id: str) -> bool:
        """Return whether the state is not known to be that of another topic."""
        return "" in {topic_id, self.topic_id} or topic_id == self.topic_id

    def counts_before(self, found: TopicRange | None) -> bool:
        """Return whether none of the records of a range is counted."""
        return found is None or all(self.ends.get(p, 0) <= begin for p, begin in found.begins.items())

    def written_for(self, batch: int, found: TopicRange | None) -> bool:
        """Return whether an attempt of a batch has written the state, with exactly the records of a range."""
        if (self.batch, self.idle) != (batch, found is None):
            return False
        if found is None:
            return True
        # A table that goes back reads more, up to the same ends.
        is_start = self.starts is None or self.starts == found.begins
        return is_start and all(self.ends.get(p) == end for p, end in found.ends.items())

    def uncounted(self) -> TableState:
        """Return the state when records are read a second time, or of another topic: nothing is counted."""
        moved = MovedKeys(self.moved_keys.partitions)
        return TableState(step=self.step, unverified=True, topic_id=self.topic_id, begins=self.begins, moved_keys=moved)

    def differs(self, other: TableState) -> bool:
        """Return whether a reader needs this state after the other."""
        if other.step < 0 or (self.unverified, self.topic_id) != (other.unverified, other.topic_id):
            return True  # where a table begins changes only with its topic
        own, others = ((state.progress, state.held, state.truncated, state.moved_keys) for state in (self, other))
        return own != others or bool(self.released or self.completed)

    def to_json(self) -> dict[str, Any]:
        """Return the content of the file."""
        return {
            "batch": self.batch,
            "written": self.written,
            "idle": self.idle,
            "unverified": self.unverified,
            "starts": None if self.starts is None else {str(p): offset for p, offset in self.starts.items()},
            "ends": {str(partition): offset for partition, offset in self.ends.items()},
            "progress": self.progress.to_json(),
            "completed": {split: sequence.text for split, sequence in self.completed.items()},
            "held": [[*folder, splits] for folder, splits in self.held.items()],
            "released": self.released,
            "movedKeys": self.moved_keys.to_json(),
            "truncated": None if self.truncated is None else self.truncated.text,
            "topicId": self.topic_id,
            "begins": None if self.begins is None else {str(p): offset for p, offset in self.begins.items()},
        }

    @classmethod
    def from_json(cls, step: int, body: Mapping[str, Any]) -> TableState:
        """Read what ``to_json`` returned."""
        begins = body.get("begins")
        if not begins and "written" not in body:
            begins = None  # an earlier release stored nothing else
        return cls(
            step=step,
            batch=body["batch"],
            written=body.get("written", -1),
            idle=body["idle"],
            unverified=body["unverified"],
            starts=None if (starts := body.get("starts")) is None else {int(p): each for p, each in starts.items()},
            ends={int(partition): offset for partition, offset in body["ends"].items()},
            progress=SplitProgress.from_json(body["progress"]),
            completed={split: Sequence.from_text(sequence) for split, sequence in body["completed"].items()},
            # An earlier release stored the number of the step.
            held={HeldFolder(holder, str(folder)): tuple(splits) for holder, folder, splits in body["held"]},
            released=tuple(HeldFolder(holder, str(folder)) for holder, folder in body["released"]),
            moved_keys=MovedKeys.from_json(body["movedKeys"]),
            truncated=None if body["truncated"] is None else Sequence.from_text(body["truncated"]),
            topic_id=body.get("topicId", ""),
            begins=None if begins is None else {int(p): each for p, each in begins.items()},
        )


class TableStates:
    """The states of all topics of a query; the last two of each topic are kept."""

    def __init__(self, checkpoint: str) -> None:
        self._root = f"{checkpoint.rstrip('/')}/tables"
        self._known: dict[str, list[TableState]] = {}

    def load(
        self, spark: SparkSession, topic: str, batch: int, found: TopicRange | None
    ) -> tuple[TableState, TableState | None]:
        """Return the state before a batch of a topic, and the state after it if an earlier attempt wrote one."""
        known = self._known.get(topic)
        if known is None:
            known = self._known[topic] = self._read(spark, topic)
        after = next((state for state in known[-1:] if state.written_for(batch, found)), None)
        before = [state for state in known if state.counts_before(found)]
        if after is not None:
            before = [state for state in before if state.step < after.step]
        if not before and known:
            return known[-1].uncounted(), after  # what is counted does not precede the records
        return (before[-1] if before else TableState()), after

    def topic_id(self, spark: SparkSession, topic: str) -> str:
        """Return Kafka's id of the topic that was read last, also by an earlier run; '' if it is not known."""
        try:
            known = self._known.get(topic) or self._read(spark, topic)
        except (StoredFileError, NewerFormatError):
            return ""  # the table has the error when it is read
        return known[-1].topic_id if known else ""

    def save(self, spark: SparkSession, topic: str, state: TableState, before: TableState) -> None:
        """Store the state after a batch; only the state before it is kept besides."""
        write_document(spark, self._path(topic, state.step), state.to_json())
        for old in self._known.get(topic, ()):
            if old.step not in {before.step, state.step}:
                delete_document(spark, self._path(topic, old.step))
        self._known[topic] = [each for each in (before, state) if each.step >= 0]

    def discard_idle(self, spark: SparkSession, topic: str, batch: int) -> None:
        """Remove the state that a batch without records of a topic has written; the batch goes on without the topic."""
        known = self._known.get(topic, [])
        if known and known[-1].idle and known[-1].batch == batch:
            delete_document(spark, self._path(topic, known.pop().step))

    def go_back(self, spark: SparkSession, topic: str, step: int, truncated: Sequence | None) -> None:
        """Forget what a target does not have that has the steps up to one: the position of the table goes back too.

        Offsets do not tell: a step without records of its own is behind the same ones. ``truncated``: the truncation
        that the target has had, whose event is not read again.
        """
        known = self._known[topic]
        kept = [state for state in known if state.step <= step] or [known[-1].uncounted()]
        truncated = later(kept[-1].truncated, truncated)
        state = replace(kept[-1], step=known[-1].step + 1, batch=-1, idle=False, truncated=truncated)
        self.save(spark, topic, state, TableState())

    def _read(self, spark: SparkSession, topic: str) -> list[TableState]:
        steps = sorted(int(name) for name in document_names(spark, f"{self._root}/{topic}") if name.isdigit())
        read = (read_document(spark, self._path(topic, step), partial(TableState.from_json, step)) for step in steps)
        return [state for state in read if state is not None]

    def _path(self, topic: str, step: int) -> str:
        return f"{self._root}/{topic}/{step}.json"
