"""One table in a batch of a changelog sink: resolve complete splits, hold the others, write the changes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import RowKind
from tailrace.spark_consumer.errors import NewTopicError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.monitor.table_result import TableResult
from tailrace.spark_consumer.normalize.latest import (
    last_truncate,
    later,
    resolve_splits,
    truncate_time,
    with_contained_sequence,
    with_holder,
    without_truncated,
)
from tailrace.spark_consumer.normalize.rowkind import to_changelog
from tailrace.spark_consumer.normalize.split_progress import SplitStats, summarize
from tailrace.spark_consumer.normalize.stored_records import HeldFolder
from tailrace.spark_consumer.normalize.table_state import TableState
from tailrace.spark_consumer.sink.base import TableBatch, Write
from tailrace.spark_consumer.small_data import SMALL_OFFSETS, interpreted
from tailrace.spark_consumer.source.kafka import new_changelog_remedy
from tailrace.spark_consumer.tables.work import CACHE, TablePart
from tailrace.spark_consumer.transform.table_transform import failures_named

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from tailrace.schemas.sequence import Sequence
    from tailrace.schemas.table import TableSchema

_STEPS: Final = 2
"""From one stored state to the next. Writes between them have the number between them: a ledger tells which states the
target has."""


@dataclass(frozen=True, slots=True)
class _Records:
    """The records of a step, cached: those of the range, and those that are not held any more."""

    schema: TableSchema
    decoded: DataFrame
    raw: DataFrame


class ChangelogTable(TablePart):
    """The work of one table for ``Images.CHANGELOG``."""

    def run(self, spark: SparkSession) -> TableResult:
        """Write the range, and what is not held any more, to the sink."""
        before, after = self._load(spark)
        self._require_same_topic(before)
        self._require_end(before)
        self._stored.carry_over.remove(spark, self._topic, before.released, before.held, before.step)
        if self._range is None:
            return self._run(spark, before, after, None, ())
        raw = self._reading.read(spark, self._range)
        # While splits wait, held records are written as they were read.
        cached = bool(before.progress.open or self._snapshots.ends.pending(self._topic))
        raw = raw.persist(CACHE) if cached else raw
        schema, rows = self._decode(raw)
        self._transform(schema)  # a rule that does not fit stops the table before its state is stored
        small = self._range.offsets <= SMALL_OFFSETS
        with interpreted(spark, when=small):
            decoded = rows.persist(CACHE)
        try:
            with self._phase(spark, "decode"), interpreted(spark, when=small):
                stats = summarize(decoded)
            return self._run(spark, before, after, _Records(schema, decoded, raw), stats)
        finally:
            decoded.unpersist()
            raw.unpersist()

    def _run(
        self,
        spark: SparkSession,
        before: TableState,
        after: TableState | None,
        new: _Records | None,
        stats: Iterable[SplitStats],
    ) -> TableResult:
        if self._range is not None:
            self._snapshots.check_start(self._topic, before, self._range)
            self._snapshots.check_beginning(spark, self._topic, self._range)
        found_truncate = None if new is None else last_truncate(new.decoded, stats)
        created = self._snapshots.ends.created(self._topic)
        with self._phase(spark, "state"):
            state = after or self._next(spark, before, stats, later(later(before.truncated, found_truncate), created))
        truncated = state.truncated if state.truncated != before.truncated else None
        records = self._with_released(spark, new, state, empty=truncated is not None)
        if records is None:
            if after is None:
                self._store(spark, before, state, {})
            return self._result(state, 0, None, {})
        state = replace(state, written=state.step)
        folders = [folder for folder in before.held if folder not in state.released]
        keys = self._stored.carry_over.keys(spark, self._topic, folders) if folders else None
        found = with_holder(records.decoded, state.progress.open, keys)
        waiting = keys is not None or bool(state.progress.open)
        # Records that were held are decoded once.
        found = found.persist(CACHE) if waiting or state.released else found
        try:
            if after is None:
                with self._phase(spark, "hold"):
                    held = self._hold(records.raw, found, state.step) if waiting else {}
                    state = self._store(spark, before, state, held)
            ready = without_truncated(found.where(fn.col("holder").isNull()), state.truncated)
            with self._phase(spark, "write"):
                return self._write(records.schema, ready, state, self._write_of(before, state, new, truncated), stats)
        finally:
            found.unpersist()

    def _next(
        self, spark: SparkSession, before: TableState, stats: Iterable[SplitStats], truncated: Sequence | None
    ) -> TableState:
        """Return the state after the batch, without the records that it holds newly."""
        step = self._snapshots.advance(spark, self._topic, before, stats, read=self._ends)
        completed = dict(step.completed)
        released = tuple(folder for folder in before.held if folder.holder in completed)
        still_held = {split for folder, splits in before.held.items() if folder not in released for split in splits}
        members = {split for folder in released for split in before.held[folder]}
        late = {split: high for split, high in before.completed.items() if split in still_held | members}
        return replace(
            self._after(before, step.progress),
            step=before.step + _STEPS,
            completed={**late, **completed},
            held={folder: splits for folder, splits in before.held.items() if folder not in released},
            released=released,
            truncated=truncated,
        )

    def _require_same_topic(self, before: TableState) -> None:
        topic_id = self._reading.topic_id(self._topic)
        if before.topic_id and topic_id and before.topic_id != topic_id:
            raise NewTopicError(
                f"topic {self._topic} was deleted and created again: the changelog has the records of the former one",
                hint=new_changelog_remedy(self._topic),
                read_topic_id=before.topic_id,
                topic_id=topic_id,
            )

    def _with_released(
        self, spark: SparkSession, new: _Records | None, state: TableState, *, empty: bool
    ) -> _Records | None:
        """Add the records that were held and are not any more; their schemas may be others than those of the range.

        ``empty``: no records instead of None.
        """
        if not state.released and (new is not None or not empty):
            return new
        raw = self._stored.carry_over.read(spark, self._topic, state.released)
        raw = self._reading.without_bad(raw, self._topic)
        schema, decoded = self._decode(raw)
        if new is None:
            return _Records(schema, decoded, raw)
        raw = new.raw.unionByName(raw)
        if schema == new.schema:
            return _Records(schema, new.decoded.unionByName(decoded), raw)
        return _Records(*self._decode(raw), raw)

    def _hold(self, raw: DataFrame, found: DataFrame, step: int) -> dict[HeldFolder, tuple[str, ...]]:
        """Store the raw records that are held newly; return their folders, with the splits of the records."""
        held = found.where(fn.col("holder").isNotNull())
        rows = held.groupBy("holder").agg(fn.collect_set("split").alias("splits")).collect()
        if not rows:
            return {}
        identity = held.select("partition", "offset", "holder")
        records = raw.where(fn.col("value").isNotNull()).join(identity, ["partition", "offset"])
        folder = self._stored.carry_over.write(records, self._topic, step)
        return {HeldFolder(row["holder"], folder): tuple(sorted(row["splits"])) for row in rows}

    def _store(
        self, spark: SparkSession, before: TableState, state: TableState, held: Mapping[HeldFolder, tuple[str, ...]]
    ) -> TableState:
        state = replace(state, held={**state.held, **held})
        if not state.differs(before):
            return replace(state, step=before.step + 1)
        self._stored.states.save(spark, self._topic, state, before)
        return state

    def _write(
        self,
        schema: TableSchema,
        ready: DataFrame,
        state: TableState,
        write: Write,
        stats: Iterable[SplitStats],
    ) -> TableResult:
        resolved = resolve_splits(ready, state.completed)
        if state.released or any(stat.incremental for stat in stats):
            resolved = with_contained_sequence(resolved)
        transform = self._transform(schema)
        rows = to_changelog(transform.apply(resolved, Images.CHANGELOG)).persist(CACHE)
        try:
            with failures_named(resolved, transform, Images.CHANGELOG):
                kinds = [fn.count_if(fn.col("kind") == kind.value).alias(kind.name.lower()) for kind in RowKind]
                totals = rows.agg(fn.count("*"), fn.max("ts_ms"), *kinds).collect()[0]
                if totals[0] or write.truncated is not None or self._has_ledger(transform.schema):
                    name = self._write_name(state)
                    batch = TableBatch(transform.schema, rows, truncated=write.truncated, name=name, write=write)
                    self._sink.write_batch(batch, self._batch_id)
            counts = {kind.name.lower(): totals[kind.name.lower()] for kind in RowKind}
            return self._result(state, totals[0], totals[1], counts)
        finally:
            rows.unpersist()

    def _has_ledger(self, schema: TableSchema) -> bool:
        """Return whether the sink stores the end of the range, and the step, also without a row."""
        return bool(schema.columns) and self._sink.applied(schema) is not None

    def _write_of(
        self, before: TableState, state: TableState, new: _Records | None, truncated: Sequence | None
    ) -> Write:
        event = None if new is None or truncated is None else truncate_time(new.decoded, truncated)
        return Write(
            step=state.step,
            # The state before can be older than the last batch, which changed nothing of it but the ends.
            begins=self._begins,
            ends={**self._begins, **(self._range.ends if self._range else {})},
            settled=not (state.held or state.progress.open),
            whole_from=self._snapshots.whole_from(self._topic, before),
            releases=bool(state.released),
            truncated=truncated,
            truncated_ms=event,
            follows=before.written,
        )

    def _write_name(self, state: TableState) -> str:
        """Return a name for the rows: that of the records that they begin with, or of the step that released them."""
        if self._range is None:
            return f"step {state.step}"
        return " ".join(f"{number}:{start}" for number, start in sorted(self._range.begins.items()))
