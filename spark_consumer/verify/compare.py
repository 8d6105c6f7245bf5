"""Compares one target with its source while both are written.

First the sums of all buckets. Then, for the buckets that differ, the rows. A key is different only if its rows are
unequal and no record of it is between the beginning of the source's window and the end of the topic behind the reading
of the target: then the row of the source and that of the target are those of the same last record. Of the other unequal
keys nothing is known, and they are looked at again, with a new window.

The end of the topic, and not what the target has applied: a target commits a truncation before the offsets behind it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.verification import (
    BUCKETS,
    MAX_CHOSEN,
    MAX_CHOSEN_CHARS,
    BucketSum,
    ChosenKeys,
    ComparedTable,
    Keys,
    Window,
    is_canonical,
)
from tailrace.spark_consumer.errors import SinkError, as_tailrace_error
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.source.kafka_admin import end_offsets
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.verify.target import RowTexts, bucket_sums, compared_columns, is_in, row_contents

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.sink.base import ComparedSink, TargetRows
    from tailrace.spark_consumer.source.watermarks import SplitEnds
    from tailrace.spark_consumer.tables.reading import Reading
    from tailrace.spark_consumer.verify.command import SourceChecksums

_ROUNDS: Final = 6
"""How often keys are looked at that change all the time."""
_ROWS: Final = 500_000
"""Rows of each side that are in memory, as far as the buckets allow."""
_KEYS: Final = 20_000
"""Keys that one query has as literals."""
_SHOWN: Final = 1_000
"""Keys of a table that are told with their rows."""
MAX_REPAIRED: Final = 20_000
"""Keys of a table whose rows are read again."""
_POLL_S: Final = 1.0
_START: Final = Sequence(0, 0, 0, 0, 0)

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Topics:
    """The topics of a query."""

    reading: Reading
    ends: SplitEnds

    def created(self, spark: SparkSession, topic: str) -> Sequence | None:
        """Return where the table of a topic was created last, if the topic may have rows of a former one.

        A target removes those rows, and no record of the topic says so.
        """
        self.ends.refresh(spark)
        return self.ends.created(topic)


@dataclass(frozen=True, slots=True)
class Difference:
    """A key that differs."""

    key: str
    """The text of the key."""
    kind: str
    """missing, extra, different or twice."""
    rows: tuple[str | None, list[str]] | None = None
    """The texts of the row of the source and of those of the target; None: they are not known."""


Report = Callable[[ComparedTable, Collection[str], Difference], None]
"""Takes each key that differs, with the columns that are compared."""


@dataclass(slots=True)
class Outcome:
    """What is known of one table."""

    rows: int
    """Rows of the source."""
    excluded: Mapping[str, str]
    """The columns that are not compared, and why."""
    different: Counter[str] = field(default_factory=Counter)
    """Keys by what is wrong: missing, extra, different or twice."""
    undecided: int = 0
    """Keys that changed each time they were looked at."""
    repaired: int = 0
    """Keys that differed, and are equal since their rows were read again; they are in no other count."""


class TableComparison:
    """Compares one table."""

    def __init__(
        self,
        spark: SparkSession,
        source: SourceChecksums,
        sink: ComparedSink,
        schema: TableSchema,
        topics: Topics,
        *,
        wait_s: float,
    ) -> None:
        """``wait_s``: how long the target may take to apply what the source shows."""
        self._spark, self._source, self._sink, self._schema = spark, source, sink, schema
        self._topics, self._wait_s = topics, wait_s

    def run(self, report: Report, *, repair: bool = False, sample: int = BUCKETS) -> Outcome:
        """Return the result. Raises TailraceError if the table cannot be compared.

        ``repair``: the rows of keys that differ are read again. ``sample``: how many buckets are compared.
        """
        plan = self._source.plan()
        if repair:  # before the table is read
            self._source.repair(ChosenKeys(plan.key, ()))
        chosen = compared_columns(plan, self._sink.read_target(self._spark, self._schema).rows.schema)
        if missing := [name for name in plan.key if name not in chosen.names]:
            raise SinkError(
                f"the table cannot be compared: key column {missing[0]}: {chosen.excluded[missing[0]]}",
                hint="load the table again, so that it has the key of the source",
                topic=plan.topic,
            )
        texts = RowTexts(plan, chosen.names)
        sums, window = self._source.sums(chosen.names, sample)
        stored = bucket_sums(texts.checksums(self._target(window).rows).where(fn.col("bucket") < sample))
        result = Outcome(sum(each.rows for each in sums.values()), chosen.excluded)
        unequal: list[str] = []
        differences = self._differing(texts, chosen.names, list(_parts(sums, stored)), None, result)

        def with_rows(keys: Collection[str]) -> Mapping[str, Difference]:
            return self._look(texts, chosen.names, Keys.of_texts(keys), keys, with_rows=True)[0]

        for difference in with_reports(differences, with_rows, partial(report, plan, chosen.names)):
            if repair and len(unequal) <= MAX_REPAIRED and difference.kind != "twice":
                unequal.append(difference.key)
        if len(unequal) > MAX_REPAIRED:
            log.error(
                "not repaired: too many keys differ",
                hint=f"read or load the table again: more than {MAX_REPAIRED} keys are no repair",
                topic=plan.topic,
            )
        elif unequal:
            try:
                self._repair(plan, texts, chosen.names, unequal, result)
            except Exception as error:  # noqa: BLE001 - what differs is known
                reason = as_tailrace_error(error, "the rows cannot be compared again")
                log.error("not repaired, or not known to be", topic=plan.topic, error=str(reason))
        return result

    def _repair(
        self, plan: ComparedTable, texts: RowTexts, columns: Collection[str], keys: list[str], result: Outcome
    ) -> None:
        """Have rows read again, and look at their keys once more."""
        forms = {column.name: column.form for column in plan.columns}
        key_forms = [forms[name] for name in plan.key]
        known = [key for key in keys if all(map(is_canonical, key_forms, key.split(",")))]  # others no source has
        for chosen in _chosen(plan, known) if known else ():
            log.info("rows are read again", topic=plan.topic, keys=len(chosen.texts))
            self._source.repair(chosen)
        second = Outcome(result.rows, result.excluded)
        left = [each.key for each in self._differing(texts, columns, _parts_of(keys), set(keys), second)]
        result.repaired = len(keys) - len(left) - second.undecided
        result.undecided += second.undecided
        twice = result.different["twice"]
        result.different = second.different + Counter({"twice": twice} if twice else {})
        if left:
            log.warning(
                "keys still differ after their rows were read again",
                hint="look into the log of the producer; a row of the target without a sequence is not replaced",
                topic=plan.topic,
                keys=left[:10],
            )

    def _differing(
        self,
        texts: RowTexts,
        columns: Collection[str],
        parts: list[Keys],
        wanted: Collection[str] | None,
        result: Outcome,
    ) -> Iterator[Difference]:
        """Yield the keys that differ, and count them; those that change each time they are looked at are undecided."""
        changed: set[str] = set()
        for _ in range(_ROUNDS):
            changed = set()
            for part in parts:
                unequal, unknown = self._look(texts, columns, part, wanted)
                changed |= unknown
                for _, difference in sorted(unequal.items()):
                    result.different[difference.kind] += 1
                    yield difference
            if not changed:
                break
            parts, wanted = _parts_of(changed), changed
        result.undecided += len(changed)

    def _look(
        self,
        texts: RowTexts,
        columns: Collection[str],
        part: Keys,
        wanted: Collection[str] | None,
        *,
        with_rows: bool = False,
    ) -> tuple[dict[str, Difference], set[str]]:
        """Compare some rows; return how keys differ, and the unequal keys that have changed meanwhile."""
        created = self._topics.created(self._spark, self._schema.topic)
        rows, window = self._source.rows(columns, part, texts=with_rows)
        target = self._target(window)
        stored = row_contents(texts.checksums(target.rows), part, texts=with_rows)
        unequal = {
            key: _difference(key, rows.get(key), stored.get(key, []), with_rows=with_rows)
            for key in rows.keys() | stored.keys()
            if stored.get(key, []) != [rows.get(key)] and (wanted is None or key in wanted)
        }
        changed = unequal.keys() & self._changed(texts, window, target, part) if unequal else set()
        if unequal and self._topics.created(self._spark, self._schema.topic) != created:
            raise SinkError(
                "the table was created again while it was compared",
                hint="run the command again",
                topic=self._schema.topic,
            )
        log.info(
            "rows compared",
            topic=self._schema.topic,
            rows=len(rows),
            unequal=len(unequal),
            changed_meanwhile=len(changed),
        )
        return {key: how for key, how in unequal.items() if key not in changed}, changed

    def _target(self, window: Window) -> TargetRows:
        """Return the target when it has applied everything before the end of a window."""
        until = time.monotonic() + self._wait_s
        while True:
            found = self._sink.read_target(self._spark, self._schema)
            behind = {number: end for number, end in window.ends.items() if found.applied.get(number, 0) < end}
            if not behind:
                return found
            if time.monotonic() > until:
                raise SinkError(
                    "the target has not applied what the source shows",
                    hint="start the query of the target, look into its status, or raise --wait",
                    topic=self._schema.topic,
                    applied={number: found.applied.get(number, 0) for number in behind},
                    wanted=behind,
                )
            time.sleep(_POLL_S)

    def _changed(self, texts: RowTexts, window: Window, target: TargetRows, part: Keys) -> set[str]:
        """Return the keys of a part that have a record between the beginning of a window and the end of the topic."""
        topic, applied = self._schema.topic, target.applied_now()
        if any(applied.get(number, 0) < end for number, end in target.applied.items()):
            raise SinkError("the target went back while it was compared", hint="run the command again", topic=topic)
        reading = self._topics.reading
        ends = end_offsets(self._spark, reading.source, topic, applied.keys() | window.ends.keys())
        partitions = {
            number: OffsetRange(window.begins.get(number, 0), end)
            for number, end in ends.items()
            if window.begins.get(number, 0) < end
        }
        if not partitions:
            return set()
        read = TopicRange(topic, partitions)
        reading.schemas.refresh(self._spark)
        raw = reading.read(self._spark, read)
        schema, decoded = reading.decode(raw, topic, Images.UPSERT, ())
        # Of a delete that was compacted away only the tombstone is left. Its place does not matter here.
        decoded = reading.with_tombstones(raw, decoded, schema, read, dict.fromkeys(partitions, _START))
        is_truncation = fn.col("op") == Op.TRUNCATE.value
        names = (fn.coalesce(fn.col("after")[name], fn.col("before")[name]).alias(name) for name in schema.key)
        rows = decoded.select(is_truncation.alias("truncated"), *names)
        keys = rows.select("truncated", texts.key(rows).alias("key")).where(fn.col("truncated") | is_in(part))
        found = keys.distinct().collect()
        if any(row["truncated"] for row in found):
            raise SinkError("the table was truncated while it was compared", hint="run the command again", topic=topic)
        return {row["key"] for row in found}


def with_reports(
    differences: Iterable[Difference],
    with_rows: Callable[[Collection[str]], Mapping[str, Difference]],
    report: Callable[[Difference], None],
) -> Iterator[Difference]:
    """Yield differences, and report each: the first ones behind all of them, with their rows.

    If they cannot be read to the end, the first ones are reported without their rows. Those that are equal when their
    rows are read, or have changed since, have none either.
    """
    shown: dict[str, Difference] = {}
    found: Mapping[str, Difference] = {}
    try:
        for difference in differences:
            if len(shown) < _SHOWN:
                shown[difference.key] = difference
            else:
                report(difference)
            yield difference
        if shown:
            found = with_rows(shown.keys())
    finally:
        for key, difference in shown.items():
            report(found.get(key, difference))


def _difference(key: str, row: str | None, found: list[str], *, with_rows: bool) -> Difference:
    kind = "extra" if row is None else "missing" if not found else "different" if len(found) == 1 else "twice"
    return Difference(key, kind, (row, found) if with_rows else None)


def _parts_of(keys: Collection[str]) -> list[Keys]:
    ordered = sorted(keys)
    return [Keys.of_texts(ordered[at : at + _KEYS]) for at in range(0, len(ordered), _KEYS)]


def _chosen(plan: ComparedTable, keys: Collection[str]) -> Iterator[ChosenKeys]:
    """Yield keys in groups that a signal can have."""
    group: list[str] = []
    size = 0
    for key in sorted(keys):
        size += len(key)
        if len(group) == MAX_CHOSEN or size > MAX_CHOSEN_CHARS:
            yield ChosenKeys(plan.key, tuple(group))
            group, size = [], len(key)
        group.append(key)
    yield ChosenKeys(plan.key, tuple(group))


def _parts(sums: Mapping[int, BucketSum], stored: Mapping[int, BucketSum]) -> Iterator[Keys]:
    """Yield the buckets that differ, in groups whose rows are in memory together."""
    group: set[int] = set()
    rows = 0
    for number in range(BUCKETS):
        sides = [each[number] for each in (sums, stored) if number in each]
        if sums.get(number) == stored.get(number):
            continue
        size = max(each.rows for each in sides)
        if group and rows + size > _ROWS:
            yield Keys.of_buckets(group)
            group, rows = set(), 0
        group.add(number)
        rows += size
    if group:
        yield Keys.of_buckets(group)
