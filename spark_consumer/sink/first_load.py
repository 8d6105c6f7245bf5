"""When a row may be appended to a Delta table without looking whether its key is there: the first load.

MERGE reads the target to find keys. For a snapshot row that is wasted where the key cannot be in the table. Let the
table have been created by this very query, and let X be the snapshot run whose LOW watermark is the first one known
for the topic. The producer promises, per partition and so per key: within a run each split is read once, splits are
disjoint, and no record of a key of a split is written between the start of the run and the key's ``r`` row.

A *foreign* record is one that the promise does not cover: it carries a split of another run, or none and lies before
the start of X (the least LOW position of X known when the table was created). As long as no foreign record was seen,
a key's ``r`` of X is the first record of the key that this query ever reads, so the key is not in the table. When one
is seen, the load is closed for good: before any row of that batch is written, the property is removed, and from then
on every row goes through MERGE.

Within a batch, a key with a single record, an ``r`` of X, is appended; every other key goes through MERGE. Which keys
those are depends on the batch alone, and a load only ever goes from open to closed, so a batch that is run again takes
the same path, or MERGE, whose guard on the sequence makes the repetition change nothing.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from schemas.rowkind import Op
from schemas.sequence import Sequence as LogSequence
from spark_consumer.normalize.summary import SplitFacts
from spark_consumer.sink.delta_table import FIRST_LOAD, FIRST_LOAD_START, QUERY
from spark_consumer.source.runs import SnapshotRun

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


@dataclass(frozen=True, slots=True)
class FirstLoad:
    """An open first load: the run, and the position before which an untagged record is foreign."""

    run: str
    start: LogSequence

    @classmethod
    def from_properties(cls, properties: Mapping[str, str], query_id: str) -> FirstLoad | None:
        """Return the open load of a table, None where it is closed or another query made the table."""
        if properties.get(QUERY) != query_id or FIRST_LOAD not in properties:
            return None
        numbers = [int(part) for part in properties[FIRST_LOAD_START].split(".")]
        return cls(properties[FIRST_LOAD], LogSequence(*numbers))

    @staticmethod
    def properties(run: SnapshotRun | None) -> dict[str, str]:
        """Return the properties of a table that is about to be created."""
        if run is None:
            return {}
        return {FIRST_LOAD: run.id, FIRST_LOAD_START: ".".join(str(part) for part in run.start)}

    def meets_foreign(self, facts: Iterable[SplitFacts], splits: Collection[str]) -> bool:
        """Tell whether a batch has a foreign record; ``splits`` are those of the run in this batch."""
        return any(fact.first < self.start if fact.split is None else fact.split not in splits for fact in facts)


def part(decoded: DataFrame, splits: Sequence[str], repeated: DataFrame | None) -> tuple[DataFrame, DataFrame]:
    """Return records to append, and records to merge; ``repeated`` holds the hashes of keys with several records."""
    of_run = fn.col("split").isNotNull() & fn.col("split").isin(list(splits))
    loads = (fn.col("op") == Op.READ.value) & of_run
    if repeated is None:
        return decoded.where(loads), decoded.where(~loads)
    marked = decoded.withColumn("_hash", key_hash()).join(fn.broadcast(repeated), "_hash", "left")
    alone = loads & fn.col("_repeated").isNull()
    columns = decoded.columns
    return marked.where(alone).select(*columns), marked.where(~alone).select(*columns)


def repeated_keys(decoded: DataFrame) -> DataFrame:
    """Return hashes of keys that may have more than one record. Two keys with one hash only take the slower way."""
    return (
        decoded.select(key_hash().alias("_hash"))
        .groupBy("_hash")
        .count()
        .where(fn.col("count") > 1)
        .select("_hash", fn.lit(1).alias("_repeated"))
    )


def key_hash() -> Column:
    """Return a 64-bit hash of the key."""
    return fn.xxhash64("key")
