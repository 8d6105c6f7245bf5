"""The offsets that a target has applied, stored with each of its commits.

A commit names, per partition of the topic, the offset before which records are applied: one for appended rows and one
for merged records, because a batch can make both commits and a failure can separate them. So a batch is applied by the
records it holds and not by its number: after an older checkpoint is restored, or with a new checkpoint, records before
these offsets are skipped and all others are applied.

Other commits (OPTIMIZE, ALTER TABLE) have no entry; the newest entry in the table's history counts, without what was
undone.

Three invariants make the ledger the only thing that says what the target has:

- It reaches the start of every range that is written, and the step before it in a changelog (``require_reached``). So
  each batch stores its end, also without a row to write.
- A commit follows the ledger that its writer knows (``require_known``): of two writers, the later one fails.
- What is done to rows without records (a table that begins again, TRUNCATE) is in it too, not in properties of the
  table: with an older copy of the rows comes a ledger that does not have it, and it is done again.

In partitions without new records the ledger reaches the offset up to which they are read. Otherwise nobody would read
the records in between, and the commit of the range would say that they are applied. A table whose target is behind,
because it was restored, or the position of the query is not its own, goes back: its position (parking.py) is set to the
ledger, and its records are read again from there. If Kafka has removed them, reading them parks the table.

A target that does not tell what it has applied, such as a copy of the rows alone, has applied nothing: a query that has
read the topic reads all of it again. To rows that are there, that changes nothing.

A step of a changelog can have no record of its own: a certificate releases what was held, a table begins again. So the
ledger of a changelog reaches the step before too, and the state of the query (table_state.py) goes back with it. Then
rows that a truncation has removed can be read once more without the event, which is in another partition: the ledger
says which truncation the table has had.

A target gets no record from before the offset at which its table begins (table_state.py): that of the first batch of a
query that does not need all records of a topic, or of a reload (reload.py). Only of a state that an earlier release of
such a query has written this is not known. Then a partition that the ledger lacks is not compared.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.runtime.stored_format import require_known_format
from tailrace.runtime.versions import program_version
from tailrace.schemas.known_fields import known_fields
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.errors import NewTopicError, SinkError
from tailrace.spark_consumer.normalize.latest import later
from tailrace.spark_consumer.source.kafka import NEW_TOPIC_REMEDY
from tailrace.spark_consumer.source.ranges import EARLIEST

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.spark_consumer.sink.base import SinkContext, Write
    from tailrace.spark_consumer.source.ranges import TopicRange

AppliedOffsets = Mapping[int, int]
"""Partition to the offset before which records are applied."""

ENTRY: Final = "tailrace"
"""Where a text has the ledger."""
FORMAT: Final = 1
"""The version of an entry (runtime/stored_format.py)."""
LEAVE_OUT: Final = "leave the table out with --tables"
"""What to do about a target that cannot be compared with its source."""
_OF_THE_WHOLE: Final = frozenset({"format", "program"})
"""Fields that are not of one topic."""


@dataclass(frozen=True, slots=True)
class Changelog:
    """The last write to a table that takes a changelog."""

    query: str
    step: int
    """The greatest one of the query."""
    repeated: bool = False
    """Whether rows that are held can be in the table: the query had been set back when they were read."""


@dataclass(frozen=True, slots=True)
class Ledger:
    """What a table has applied. An empty ledger belongs to a table without rows."""

    topic: str
    append: AppliedOffsets = field(default_factory=dict)
    merge: AppliedOffsets = field(default_factory=dict)
    id: str = ""
    """Kafka's id of the topic; empty if it was not known. Offsets of another id belong to another topic."""
    changelog: Changelog | None = None
    """Only for tables that take a changelog. ``append`` is then what was read, written or held, and before
    ``merge`` no record was held."""
    others: Mapping[str, Mapping[str, object]] | None = None
    """What was applied of the other topics of a shared table, by topic; None: the table has one topic."""
    truncated: Sequence | None = None
    """All rows with a smaller sequence are gone. Of a database, only for tables that take a changelog."""
    writer: str = ""
    """Who has stored it: a name for each process; empty: an earlier release."""

    @classmethod
    def newest(cls, topic: str, metadata: Iterable[str | None]) -> Ledger | None:
        """Return the first entry for a topic in the user metadata of commits, newest first; None if there is none."""
        for text in metadata:
            found = _entry(text)
            if found is not None and (found.get("topic") == topic or "others" in found):
                return cls._of(topic, found)
        return None

    @classmethod
    def _of(cls, topic: str, entry: dict[str, object]) -> Ledger:
        """Return the ledger of a topic in an entry. A shared table has those of all topics that were written to it."""
        require_known_format(f"the ledger of the target of {topic}", entry, FORMAT)
        others = entry.pop("others", None)
        assert others is None or isinstance(others, dict)
        found = {**(others or {}), str(entry["topic"]): {n: v for n, v in entry.items() if n not in _OF_THE_WHOLE}}
        own = found.pop(topic, None)
        left = None if others is None else found
        if own is None:
            return cls(topic, others=left)
        offsets = _offsets(own["append"]), _offsets(own["merge"])
        truncated = Sequence.from_text(str(own["truncated"])) if own.get("truncated") else None
        changelog, writer = changelog_from_json(own.get("changelog")), str(own.get("writer", ""))
        return cls(topic, *offsets, str(own.get("id", "")), changelog, left, truncated, writer)

    @property
    def metadata(self) -> str:
        """The user metadata of a commit."""
        entry: dict[str, object] = {"topic": self.topic, "append": self.append, "merge": self.merge}
        entry |= {"format": FORMAT, "program": program_version()}
        if self.truncated is not None:
            entry["truncated"] = self.truncated.text
        if self.writer:
            entry["writer"] = self.writer
        if self.changelog is not None:
            entry["changelog"] = asdict(self.changelog)
        if self.others is not None:
            entry["others"] = self.others
        return json.dumps({ENTRY: {**entry, "id": self.id} if self.id else entry})

    def is_repeat(self, query: str, write: Write) -> bool:
        """Return whether rows of a write can be in the table.

        They cannot if the same query goes on from where it was: behind the offsets of that write, and with a later step
        if it has records that were held.
        """
        if self.changelog is None:
            return bool(self.append)
        if self.changelog.repeated or self.changelog.query != query:
            return True
        if write.step < self.changelog.step or (write.releases and write.step == self.changelog.step):
            return True
        return any(write.begins.get(number, 0) < offset for number, offset in self.append.items())

    def written(self, query: str, write: Write) -> Ledger:
        """Return the ledger after a write to a changelog."""
        step = write.step
        if self.changelog is not None and self.changelog.query == query:
            step = max(step, self.changelog.step)
        repeated = self.is_repeat(query, write) and not write.settled
        append = _advance(self.append, write.ends)
        # Behind the end of a write that reads records once more, some can be held in the copy of a target. A partition
        # that is missing had no record before this write.
        merge = _advance(self.merge, write.ends) if write.settled else {**write.begins, **self.merge}
        truncated = later(self.truncated, write.truncated)
        changelog = Changelog(query, step, repeated)
        return replace(self, append=append, merge=merge, changelog=changelog, truncated=truncated)

    def require_reached(self, query: str, write: Write) -> None:
        """Raise TargetBehindError if a changelog lacks rows before those of a write.

        What another query holds has not been written, and this one does not have it.
        """
        last = self.changelog
        step = last.step if last is not None and last.query == query else None
        require_reached(
            self.topic,
            write.begins,
            self.append if last is None or last.query == query else self.merge,
            self.merge,
            whole_from=write.whole_from,
            step=step,
            follows=write.follows,
            truncated=self.truncated,
        )

    @property
    def applied(self) -> AppliedOffsets:
        """The offsets before which records need not be read."""
        return {number: min(self.append[number], self.merge[number]) for number in self.append.keys() & self.merge}

    @property
    def reached(self) -> AppliedOffsets:
        """The offsets behind which no record is applied."""
        known = self.append.keys() | self.merge
        return {number: max(self.append.get(number, 0), self.merge.get(number, 0)) for number in known}

    def appended(self, found: TopicRange) -> Ledger:
        """Return the ledger after the rows of a range have been appended."""
        return replace(self, append=_advance(self.append, found.ends), changelog=None)

    def merged(self, found: TopicRange) -> Ledger:
        """Return the ledger after the records of a range have been merged."""
        return replace(self, merge=_advance(self.merge, found.ends), changelog=None)

    def is_same(self, other: Ledger) -> bool:
        """Return whether both say the same of the topic, and the same process has stored them."""
        return replace(self, id="", others=None) == replace(other, id="", others=None)

    def require_known(self, known: Ledger | None, target: str) -> None:
        """Raise SinkError if this one, which a commit would follow, is not the one that its writer knows."""
        if not self.is_same(known or Ledger(self.topic)):
            raise changed_meanwhile(target, expected=None if known is None else known.applied, found=self.applied)

    def is_of_another_topic(self, topic_id: str) -> bool:
        """Return whether the offsets are those of a topic that was deleted since; an unknown id does not count."""
        return bool(self.id and topic_id) and self.id != topic_id

    def require_same_topic(self, topic_id: str, target: str, *, hint: str, **context: object) -> None:
        """Raise NewTopicError if the offsets are those of another topic; ``target`` names what has applied them."""
        if self.is_of_another_topic(topic_id):
            raise NewTopicError(
                f"topic {self.topic} was deleted and created again: {target} has the records of the former one",
                hint=hint,
                **context,
                applied_topic_id=self.id,
                topic_id=topic_id,
            )


def changed_meanwhile(target: str, **context: object) -> SinkError:
    """Return the error for a target whose ledger is not the one that a commit would follow."""
    return SinkError(
        f"another process has written to {target}, or restored it",
        hint="run one query for a table; this one tries again with what the table has",
        **context,
    )


def was_replaced(found: Iterable[str], once: tuple[str, int]) -> bool:
    """Return whether a commit has replaced all rows under a name, with a number or a later one; '' is another."""
    named = (text.rpartition(" ") for text in found)
    return any(name == once[0] and int(number) >= once[1] for name, _, number in named)


def is_applied(applied: AppliedOffsets, found: TopicRange) -> bool:
    """Return whether all records of a range are applied."""
    return all(applied.get(number, 0) >= each.end for number, each in found.partitions.items())


def not_applied(records: DataFrame, applied: AppliedOffsets, found: TopicRange) -> DataFrame:
    """Return the records of a range without those that are applied."""
    within = overlaps(applied, found)
    if not within:
        return records
    skipped = [(fn.col("partition") == number) & (fn.col("offset") < offset) for number, offset in within.items()]
    return records.where(~reduce(or_, skipped))


def overlaps(applied: AppliedOffsets, found: TopicRange) -> AppliedOffsets:
    """Return the offsets that exclude records of a range."""
    starts = {number: each.start for number, each in found.partitions.items()}
    return {number: offset for number, offset in applied.items() if number in starts and offset > starts[number]}


def _advance(applied: AppliedOffsets, ends: AppliedOffsets) -> AppliedOffsets:
    return {**applied, **{number: max(offset, applied.get(number, 0)) for number, offset in ends.items()}}


def _entry(text: str | None) -> dict[str, object] | None:
    try:
        found = json.loads(text or "null")
    except json.JSONDecodeError:
        return None
    entry = found.get(ENTRY) if isinstance(found, dict) else None
    return entry if isinstance(entry, dict) else None


def changelog_from_json(found: object) -> Changelog | None:
    """Read what ``asdict`` returned, also through JSON; None if there is nothing."""
    return Changelog(**known_fields(Changelog, found)) if isinstance(found, dict) else None


def _offsets(found: object) -> AppliedOffsets:
    assert isinstance(found, dict)
    return {int(number): int(offset) for number, offset in found.items()}


class TargetBehindError(SinkError):
    """A target has not applied all records before a range."""

    def __init__(
        self,
        topic: str,
        applied: Mapping[int, int],
        begins: Mapping[int, int],
        *,
        step: int | None,
        truncated: Sequence | None,
        whole_from: Mapping[int, int],
    ) -> None:
        """``applied``: partition to the offset at which the records begin that are to be read again.

        ``step``: the last step of the query that a changelog has; None if it does not tell. ``truncated``: that of its
        ledger. ``whole_from``: where the table begins.
        """
        # Whether Kafka has removed records before the earliest offset is decided as for a new table (snapshot.py).
        self.starts = {str(number): offset or EARLIEST for number, offset in applied.items()}
        self.step, self.truncated = step, truncated
        self.from_beginning = {number: each for number, each in applied.items() if each == whole_from.get(number)}
        """Of ``applied``, where the table begins."""
        super().__init__(
            f"the target has not applied all records of topic {topic} that are before those of the batch",
            hint="wait: they are read again from Kafka",
            applied_up_to=dict(applied),
            batch_starts_at={number: begins[number] for number in applied},
        )


def require_reached(
    topic: str,
    begins: Mapping[int, int],
    reached: Mapping[int, int],
    applied: Mapping[int, int],
    *,
    whole_from: Mapping[int, int] | None,
    moved: bool = False,
    step: int | None = None,
    follows: int = -1,
    truncated: Sequence | None = None,
) -> None:
    """Raise TargetBehindError if a target does not have all records before those of a batch.

    ``begins``: partition to the offset before which the query has read all records. ``reached``: the same for those
    that were written or held when the target was written last. Before ``applied`` none was held.
    ``whole_from``: partition to the offset from which earlier batches have read it, 0 if it is missing; None: it is
    not known. ``moved``: whether several partitions can have records of one key (MovedKeys). Then a delete in one
    must be known when an older record in another is read again, so all of them are. ``step``: the last step that a
    changelog has, None if it does not tell; ``follows``: the one that it must have (Write). ``truncated``: that
    of its ledger.
    """
    nothing = {number: (whole_from or {}).get(number, 0) for number in begins}
    if whole_from is not None:
        reached, applied = {**nothing, **reached}, {**nothing, **applied}
    known = begins.keys() & reached.keys() & applied.keys()
    lacks_step = step is not None and step < follows
    if lacks_step or any(reached[number] < begins[number] for number in known):
        back = {number: applied[number] for number in sorted(known) if applied[number] < begins[number]}
        back = nothing if moved else back
        raise TargetBehindError(topic, back, begins, step=step, truncated=truncated, whole_from=nothing)


def missing_target(name: str, topic: str) -> SinkError:
    """Return the error for a target that does not exist."""
    return SinkError(f"there is no table {name}", hint="start the query that writes it", topic=topic)


def comparable(ledger: Ledger | None, context: SinkContext, topic: str, name: str) -> Ledger:
    """Return the ledger of a target. Raises SinkError if the rows cannot be compared by it."""
    if context.shard(topic) is not None or (ledger is not None and ledger.others is not None):
        raise SinkError(f"{name} has the rows of several tables, which are not compared yet", hint=LEAVE_OUT)
    if ledger is None:
        raise SinkError(
            f"{name} does not tell what it has applied, so its rows belong to no moment of the source",
            hint="let its query write to it once",
            topic=topic,
        )
    if ledger.topic != topic:
        raise SinkError(f"{name} belongs to another topic", hint=LEAVE_OUT, table_topic=ledger.topic, topic=topic)
    ledger.require_same_topic(context.topic_id(topic), name, hint=NEW_TOPIC_REMEDY, table=name)
    return ledger
