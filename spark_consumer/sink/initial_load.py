"""Decides which snapshot rows can be appended to a Delta table without a look-up of their keys: the initial load.

MERGE reads the target to find keys. That is wasted for a snapshot row whose key cannot be in the table. Consider a
table whose ledger (ledger.py) covers everything that was applied to it, and let X be the snapshot run whose LOW
watermark is the first one known for the topic. The producer guarantees, per partition and therefore per key: within a
run each split is read once, splits are disjoint, and no record of a key of a split is written between the start of the
run and the ``r`` record of that key.

A topic that has got more partitions does not keep this guarantee per key: the later change of a key can be read, and
merged, before its ``r``. It has more than when a LOW of it was written, or than in the first batch (MovedKeys), and
a batch with such a change knows that: its records are later than the LOW, and the partition is one of the batch. So the
load closes before that batch is written. The rows before were appended when no other partition had records.

Two more kinds of records are outside the guarantee:

- A row of another run: it has a split of another run, or is an ``r`` record without a split (a row of an incremental
  snapshot). It closes the initial load permanently: from then on every row goes through MERGE.
- An early record: it has no split, and its sequence is before the start of X. The start is the least LOW position of X
  that was known when the table was created. Rows that are inserted above the greatest planned key while the run starts
  are early; there are usually few. A table property stores hashes of the early keys, and these keys go through MERGE.
  More than MAX_EARLY_KEYS early keys close the initial load.

So an appended key had no record before its ``r`` that this query could have read, and it is not in the table. The table
properties change before any row of the batch is written.

Within a batch, a key whose only record is its ``r`` of X is appended. Every other key goes through MERGE with its last
change: by the guarantee a change that is not early comes after the ``r`` of its key. This choice depends only on the
batch and on the properties, and the properties only ever move keys from append to MERGE. So a batch that runs again
makes the same choice, or uses MERGE, which compares sequences and then changes nothing. After an older checkpoint is
restored the batches have other bounds; the ledger then excludes the rows that are appended already.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.normalize.split_progress import SplitStats
from tailrace.spark_consumer.sink.state import TargetState
from tailrace.spark_consumer.source.types import sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


MAX_EARLY_KEYS: Final = 1000
_CHANGES: Final = (Op.CREATE.value, Op.UPDATE.value, Op.DELETE.value)
BROADCAST_KEYS: Final = 1_000_000
"""Above this number the changed keys are too many to broadcast."""


@dataclass(frozen=True, slots=True)
class InitialLoad:
    """An open initial load: its run, the start of the run, and hashes of the early keys."""

    run: str
    start: Sequence
    early_keys: frozenset[int] = frozenset()

    @classmethod
    def of(cls, state: TargetState) -> InitialLoad | None:
        """Return the open initial load of a table, or None if it is closed."""
        if not state.load_run:
            return None
        hashes = (int(number) for number in state.early_keys.split(",") if number)
        return cls(state.load_run, Sequence.from_text(state.load_start), frozenset(hashes))

    def noted(self, state: TargetState) -> TargetState:
        """Return the state of a table with this initial load."""
        hashes = ",".join(str(number) for number in sorted(self.early_keys))
        return replace(state, load_run=self.run, load_start=self.start.text, early_keys=hashes)

    def closes_for(self, stats: Iterable[SplitStats], own_splits: Collection[str]) -> bool:
        """Return whether a batch has rows of another run; ``own_splits`` are the splits of this run in the batch."""
        return any(stat.incremental or (stat.split is not None and stat.split not in own_splits) for stat in stats)

    def with_early_keys(self, decoded: DataFrame, stats: Iterable[SplitStats]) -> InitialLoad | None:
        """Return the initial load with the early keys of the batch added, or None if there are too many."""
        if all(stat.split is not None or stat.earliest >= self.start for stat in stats):
            return self
        early = fn.col("split").isNull() & (fn.col("seq") < sequence_literal(self.start))
        found = decoded.where(early).select(key_hash().alias("hash")).distinct().limit(MAX_EARLY_KEYS + 1).collect()
        early_keys = self.early_keys | {row["hash"] for row in found}
        return None if len(early_keys) > MAX_EARLY_KEYS else replace(self, early_keys=frozenset(early_keys))


def append_or_merge(decoded: DataFrame, early_keys: Collection[int], *, changes: int) -> tuple[DataFrame, DataFrame]:
    """Return the records to append and the records to merge; every ``r`` record is of the run of the initial load.

    ``early_keys`` are hashes of keys whose ``r`` is merged. ``changes`` is the number of changes in the batch. For any
    other key with a change the ``r`` is in neither part: the change comes later and contains the whole row.
    """
    # Spark keeps the least and the greatest op of each cached block, so these filters skip whole blocks.
    is_row, is_change = fn.col("op") == Op.READ.value, fn.col("op").isin(*_CHANGES)
    is_early = key_hash().isin(list(early_keys)) if early_keys else fn.lit(False)
    rows = decoded.where(is_row & ~is_early)
    if changes:
        changed = decoded.where(is_change).select("key")
        rows = rows.join(fn.broadcast(changed) if changes <= BROADCAST_KEYS else changed, "key", "left_anti")
    return rows.select(*decoded.columns), decoded.where(is_change | (is_row & is_early))


def key_hash() -> Column:
    """Return a 64-bit hash of the key."""
    return fn.xxhash64("key")
