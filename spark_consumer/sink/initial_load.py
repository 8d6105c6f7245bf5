"""When a row may be appended to a Delta table without looking whether its key is there: the first load.

MERGE reads the target to find keys. For a snapshot row that is wasted where the key cannot be in the table. Let the
table have been created by this very query, and let X be the snapshot run whose LOW watermark is the first one known
for the topic. The producer promises, per partition and so per key: within a run each split is read once, splits are
disjoint, and no record of a key of a split is written between the start of the run and the key's ``r`` row.

A record that the promise does not cover is *foreign*. There are two kinds. One that carries a split of another run, or
a row without any (the table was read again beside its log), closes the load for good: from then on every row goes
through MERGE. One without a split that lies before the start of
X (the least LOW position of X known when the table was created) is *early*: rows inserted above the greatest planned
key while the run begins are such, few as a rule. Hashes of their keys are kept in a property of the table, and those
keys take MERGE; beyond MAX_EARLY of them the load is closed. So a key that is appended had no record before its ``r``
that this query could have read, and is not in the table. The properties change before any row of the batch is written.

Within a batch, a key that has no record but its ``r`` of X is appended; every other key goes through MERGE, by its last
change alone: by the promise a change that is not early stands behind the ``r`` of its key. Which keys those are depends
on the batch and the properties alone, and these only ever move keys from append to MERGE. So a batch that is run again
takes the same path, or MERGE, whose guard on the sequence makes the repetition change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence as LogSequence
from tailrace.spark_consumer.normalize.sequence import sequence_literal
from tailrace.spark_consumer.normalize.summary import SplitStats
from tailrace.spark_consumer.sink.delta_table import FIRST_LOAD, FIRST_LOAD_EARLY, FIRST_LOAD_START, QUERY
from tailrace.spark_consumer.source.runs import SnapshotRun

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


MAX_EARLY: Final = 1000
_CHANGES: Final = (Op.CREATE.value, Op.UPDATE.value, Op.DELETE.value)
_BROADCAST_KEYS: Final = 1_000_000
"""More keys than this are too many to have in every process at once."""


@dataclass(frozen=True, slots=True)
class InitialLoad:
    """An open first load: the run, the position before which a record without split is early, hashes of early keys."""

    run: str
    start: LogSequence
    early: frozenset[int] = frozenset()

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], query_id: str) -> InitialLoad | None:
        """Return the open load of a table, None where it is closed or another query made the table."""
        if properties.get(QUERY) != query_id or FIRST_LOAD not in properties:
            return None
        numbers = [int(append_or_merge) for append_or_merge in properties[FIRST_LOAD_START].split(".")]
        early = [
            int(append_or_merge)
            for append_or_merge in properties.get(FIRST_LOAD_EARLY, "").split(",")
            if append_or_merge
        ]
        return cls(properties[FIRST_LOAD], LogSequence(*numbers), frozenset(early))

    @staticmethod
    def properties(run: SnapshotRun | None) -> dict[str, str]:
        """Return the properties of a table that is about to be created."""
        if run is None:
            return {}
        return {FIRST_LOAD: run.id, FIRST_LOAD_START: ".".join(str(append_or_merge) for append_or_merge in run.start)}

    def meets_other_run(self, facts: Iterable[SplitStats], splits: Collection[str]) -> bool:
        """Tell whether a batch has rows of another run; ``splits`` are those of this run in the batch."""
        return any(fact.incremental or (fact.split is not None and fact.split not in splits) for fact in facts)

    def with_early(self, decoded: DataFrame, facts: Iterable[SplitStats]) -> InitialLoad | None:
        """Return the load with the batch's early keys added, None where they are too many."""
        if all(fact.split is not None or fact.earliest >= self.start for fact in facts):
            return self
        early = fn.col("split").isNull() & (fn.col("seq") < sequence_literal(self.start))
        rows = decoded.where(early).select(key_hash().alias("hash")).distinct().limit(MAX_EARLY + 1).collect()
        known = self.early | {row["hash"] for row in rows}
        return None if len(known) > MAX_EARLY else replace(self, early=frozenset(known))

    @property
    def early_property(self) -> dict[str, str]:
        """The property that keeps the early keys."""
        return {FIRST_LOAD_EARLY: ",".join(str(number) for number in sorted(self.early))}


def append_or_merge(decoded: DataFrame, early: Collection[int], *, changes: int) -> tuple[DataFrame, DataFrame]:
    """Return records to append, and records to merge, of a batch with so many changes; every ``r`` is of the run.

    ``early`` holds hashes of keys whose ``r`` is merged. Of any other key with a change in the batch the ``r`` is in
    neither part: the change stands behind it, and shows the row as it is since.
    """
    # Cached rows come in blocks that know the least and the greatest op in them: such filters pass whole ones over.
    row, change = fn.col("op") == Op.READ.value, fn.col("op").isin(*_CHANGES)
    kept = key_hash().isin(list(early)) if early else fn.lit(False)
    alone = decoded.where(row & ~kept)
    if changes:
        changed = decoded.where(change).select("key")
        alone = alone.join(fn.broadcast(changed) if changes <= _BROADCAST_KEYS else changed, "key", "left_anti")
    return alone.select(*decoded.columns), decoded.where(change | (row & kept))


def key_hash() -> Column:
    """Return a 64-bit hash of the key."""
    return fn.xxhash64("key")
