"""Order of the records of a key: by sequence, with the rule for rows of an incremental snapshot."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tailrace.spark_consumer.normalize.latest import last_per_key, with_contained_sequence
from tailrace.spark_consumer.normalize.rowkind import ORDER, to_changelog

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COLUMNS = (
    "key binary, partition int, offset bigint, op string, split string, incremental boolean, before string, "
    "after string, ts_ms bigint, seq struct<epoch: bigint, file: bigint, pos: bigint, event: bigint, row: bigint>"
)
Change = tuple[str, int, int, str, int, str]
"""Key, partition, offset, op, binlog position, value."""


def decoded(spark: SparkSession, *changes: Change, incremental: tuple[str, ...] = ()) -> DataFrame:
    """Return decoded records; those with a value in ``incremental`` belong to an incremental snapshot."""
    rows = [
        (key.encode(), part, offset, op, None, value in incremental, "old", value, 1, (1, 1, pos, 0, 0))
        for key, part, offset, op, pos, value in changes
    ]
    return spark.createDataFrame(rows, COLUMNS)


def last(records: DataFrame) -> dict[str, tuple[str, int]]:
    """Return value and position by key."""
    return {bytes(row["key"]).decode(): (row["after"], row["seq"]["pos"]) for row in records.collect()}


def test_the_later_change_wins_whatever_its_partition(spark: SparkSession) -> None:
    """A topic got more partitions, and the key ``a`` moved from partition 1 to partition 0."""
    records = decoded(
        spark,
        ("a", 1, 500, "u", 10, "old"),
        ("a", 0, 3, "u", 99, "new"),
        ("b", 0, 4, "c", 7, "one"),
        ("b", 0, 5, "u", 7, "two"),
    )

    assert last(last_per_key(records)) == {"a": ("new", 99), "b": ("two", 7)}
    assert last(last_per_key(records, incremental=True)) == {"a": ("new", 99), "b": ("two", 7)}


def test_row_of_an_incremental_snapshot_has_the_sequence_of_what_it_contains(spark: SparkSession) -> None:
    records = decoded(
        spark,
        ("a", 0, 1, "u", 305, "change"),
        ("a", 0, 2, "r", 300, "read"),  # contains the change, and was read at a barrier before it
        ("b", 0, 3, "r", 300, "read"),
        ("b", 0, 4, "u", 310, "change"),
        ("c", 1, 900, "u", 400, "moved"),  # later, in the former partition of the key
        ("c", 0, 5, "r", 300, "read"),
        incremental=("read",),
    )

    assert last(last_per_key(records, incremental=True)) == {
        "a": ("read", 305),
        "b": ("change", 310),
        "c": ("moved", 400),
    }
    kinds = to_changelog(with_contained_sequence(records)).orderBy("key", *ORDER).select("key", "kind", "row").collect()
    assert [(bytes(row["key"]).decode(), row["kind"], row["row"]) for row in kinds if row["key"] != b"c"] == [
        ("a", "-U", "old"),
        ("a", "+U", "change"),
        ("a", "+U", "read"),
        ("b", "+U", "read"),
        ("b", "-U", "old"),
        ("b", "+U", "change"),
    ]


def test_changes_of_an_incremental_snapshot_give_no_update_before(spark: SparkSession) -> None:
    """They may be in the row that was read, so their ``before`` is not what a reader has."""
    records = decoded(
        spark,
        ("a", 0, 1, "u", 10, "x"),
        ("b", 0, 2, "c", 10, "x"),
        ("c", 0, 3, "d", 10, "x"),
        ("d", 0, 4, "u", 10, "plain"),
        incremental=("x",),
    )

    kinds = to_changelog(records).orderBy("key", *ORDER).select("key", "kind").collect()

    assert [(bytes(row["key"]).decode(), row["kind"]) for row in kinds] == [
        ("a", "+U"),
        ("b", "+U"),
        ("c", "-D"),
        ("d", "-U"),
        ("d", "+U"),
    ]
