"""The stateful operators of the library in Spark, with their state in RocksDB."""

from __future__ import annotations

import random
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as fn

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.spark_consumer import JoinSide, join, materialize, to_changelog
from tests.support.changelogs import ARRIVALS, FileStream, cuts, last_row

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(900)

PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
SCHEMA: Final = "kind STRING, sequence STRUCT<file: BIGINT, pos: BIGINT>, row STRUCT<id: INT, level: INT, attr: STRING>"


@pytest.fixture(autouse=True)
def rocks_db(spark: SparkSession) -> Iterator[None]:
    """Keep state in RocksDB."""
    spark.conf.set(PROVIDER, ROCKS_DB)
    try:
        yield
    finally:
        spark.conf.unset(PROVIDER)


def entry(at: int, kind: str, row_id: int, level: int, attr: str) -> dict[str, Any]:
    """Return a changelog entry."""
    return {"kind": kind, "sequence": {"file": 1, "pos": at}, "row": {"id": row_id, "level": level, "attr": attr}}


def run(changes: DataFrame, work: Path) -> tuple[list[list[Row]], StreamingQuery]:
    """Run a stream over everything that is there; return the rows of each micro-batch and the query."""
    batches: list[list[Row]] = []
    writer = changes.writeStream.foreachBatch(lambda batch, _: batches.append(batch.collect()))
    query = writer.option("checkpointLocation", str(work / "checkpoint")).trigger(availableNow=True).start()
    query.awaitTermination()
    return batches, query


class Table:
    """A table to which the changes of a materializer are applied; each must fit what the table has."""

    def __init__(self) -> None:
        self.rows: dict[int, str] = {}

    def apply(self, batch: list[Row]) -> None:
        assert len({change["key"]["id"] for change in batch}) == len(batch), "one change per key"
        for change in batch:
            key, before, after = change["key"]["id"], change["before"], change["after"]
            assert self.rows.get(key) == (before and before["attr"]), change
            assert change["kind"] == ("+I" if before is None else "-D" if after is None else "+U")
            if after is None:
                del self.rows[key]
            else:
                self.rows[key] = after["attr"]


def scenarios() -> dict[int, list[list[dict[str, Any]]]]:
    """Return the three arrival orders in every cut, each for its own target key."""
    made: dict[int, list[list[dict[str, Any]]]] = {}
    for arrival in ARRIVALS.values():
        for cut in cuts(list(enumerate(arrival))):
            key = len(made)
            made[key] = [[entry(at, kind, key, level, attr) for at, (kind, _, level, attr) in part] for part in cut]
    return made


def randoms(keys: range, batches: int, seed: int) -> list[list[dict[str, Any]]]:
    """Return micro-batches of adds and retracts of few rows for each of many target keys; some retracts match none."""
    picks = random.Random(seed)
    numbers = count(100)
    kinds = ["+I", "+U", "-U", "-D"]
    return [
        [
            entry(next(numbers), picks.choice(kinds), key, level := picks.randrange(3), f"{level}/{picks.randrange(3)}")
            for key in keys
            for _ in range(picks.randrange(4))
        ]
        for _ in range(batches)
    ]


def test_materialize_and_restart(spark: SparkSession, tmp_path: Path) -> None:
    """Three arrival orders in every cut and 200 random target keys, two micro-batches before a restart and two after.

    A part of the changes of a micro-batch is written in another order than theirs: the order column decides.
    """
    cut = scenarios()
    mixed = randoms(range(1000, 1200), 4, seed=7)
    for number, batch in enumerate(mixed[:3]):
        batch += [each for parts in cut.values() if number < len(parts) for each in parts[number]]
    source, table = FileStream(tmp_path / "in", SCHEMA), Table()
    done: dict[int, list[tuple[bool, str, str]]] = defaultdict(list)

    for part in (mixed[:2], mixed[2:]):
        for batch in part:
            source.add(random.Random(1).sample(batch, len(batch)))
            for each in batch:
                row = each["row"]
                done[row["id"]].append((each["kind"] in {"+I", "+U"}, str(row["level"]), row["attr"]))
        batches, query = run(materialize(source.read(spark), ["id"], ["id", "level"]), tmp_path)
        assert len(batches) == 2
        for changes in batches:
            table.apply(changes)
        expected = {key: row for key, entries in done.items() if (row := last_row(entries)) is not None}
        assert table.rows == expected
        # The state is as large as the target.
        [operator] = query.recentProgress[-1].stateOperators
        assert operator.numRowsTotal == len(table.rows)
    assert {table.rows[key] for key in cut} == {"b1"}


def test_types_and_a_later_column_survive_the_state(spark: SparkSession, tmp_path: Path) -> None:
    """A row without upsert key, with a value of every type, is retracted after a column was added."""
    types = {
        "i": "BIGINT", "d": "DECIMAL(38,10)", "f": "FLOAT", "g": "DOUBLE", "b": "BINARY", "t": "TIMESTAMP",
        "n": "TIMESTAMP_NTZ", "y": "DATE", "o": "BOOLEAN", "s": "STRUCT<x: DOUBLE, y: ARRAY<BINARY>>", "e": "STRING",
    }  # fmt: skip
    literals = (
        "9223372036854775807L i, CAST('1234567890123456789012345678.0123456789' AS DECIMAL(38,10)) d, "
        "CAST(0.1 AS FLOAT) f, CAST('NaN' AS DOUBLE) g, X'00FF' b, TIMESTAMP '1969-12-31 23:59:59.000001Z' t, "
        "TIMESTAMP_NTZ '9999-12-31 23:59:59.999999' n, DATE '0001-01-01' y, TRUE o, "
        "NAMED_STRUCT('x', -0.5D, 'y', ARRAY(X'01', NULL)) s, 'é\\n\"\\u0000' e"
    )
    folder = tmp_path / "in"

    def add(kind: str, number: int, extra: str, listed: str) -> DataFrame:
        """Write one micro-batch and return the stream."""
        rows = spark.sql(f"SELECT '{kind}' kind, {number} sequence, struct(*) row FROM (SELECT {literals} {extra})")
        rows.coalesce(1).write.mode("append").parquet(str(folder))
        stream = spark.readStream.schema(f"kind STRING, sequence INT, row STRUCT<{listed}>").parquet(str(folder))
        return materialize(stream, ["i"])

    columns = ", ".join(f"{name}: {kind}" for name, kind in types.items())
    [[added]], _ = run(add("+I", 1, "", columns), tmp_path)
    [[removed]], query = run(add("-D", 2, ", CAST(NULL AS INT) z", f"{columns}, z: INT"), tmp_path)

    values = spark.sql(f"SELECT {literals}").collect()[0].asDict(recursive=True)
    assert str(added["after"].asDict(recursive=True)) == str(values)  # NaN is not equal to itself
    assert removed["kind"] == "-D"
    assert str(removed["before"].asDict(recursive=True)) == str({**values, "z": None})
    assert query.recentProgress[-1].stateOperators[0].numRowsTotal == 0


def test_join_and_materialize_in_one_query(spark: SparkSession, tmp_path: Path) -> None:
    """A row changes its level: the join retracts and adds in different tasks, and the target keeps one row per id."""
    users = FileStream(tmp_path / "users", SCHEMA)
    levels = FileStream(tmp_path / "levels", "kind STRING, sequence STRUCT<file: BIGINT, pos: BIGINT>, "
                        "row STRUCT<level: INT, title: STRING>")  # fmt: skip

    def title(at: int, kind: str, level: int, text: str) -> dict[str, Any]:
        return {"kind": kind, "sequence": {"file": 1, "pos": at}, "row": {"level": level, "title": text}}

    users.add([entry(1, "+I", 1, 10, "ada"), entry(2, "+I", 2, 10, "ben")])
    levels.add([title(3, "+I", 10, "a1"), title(4, "+I", 20, "b1")])
    users.add([entry(5, "-U", 1, 10, "ada"), entry(5, "+U", 1, 20, "ada"), entry(8, "-D", 2, 10, "ben")])
    levels.add([title(6, "-U", 10, "a1"), title(6, "+U", 10, "a2"), title(7, "-U", 20, "b1"), title(7, "+U", 20, "b2")])
    joined = join(JoinSide(users.read(spark), ["id"], ["level"]), JoinSide(levels.read(spark), ["level"], ["level"]))
    rows = joined.selectExpr(
        "kind", "sequence", "struct(left.id, left.level, concat(left.attr, '/', right.title) AS attr) AS row"
    )
    table = Table()

    batches, query = run(materialize(rows, ["id"], ["id", "level"]), tmp_path)
    for batch in batches:
        table.apply(batch)

    assert table.rows == {1: "ada/b2"}
    materializer, joiner = query.recentProgress[-1].stateOperators
    assert (materializer.numRowsTotal, joiner.numRowsTotal) == (1, 3)


def test_the_result_is_a_changelog(spark: SparkSession, tmp_path: Path) -> None:
    """The changes of a materializer give a changelog with both images of an update."""
    source = FileStream(tmp_path / "in", SCHEMA)
    source.add([entry(1, "+I", 1, 10, "old")])
    source.add([entry(2, "-U", 1, 10, "old"), entry(2, "+U", 1, 10, "new")])

    batches, _ = run(to_changelog(materialize(source.read(spark), ["id"], ["id"])), tmp_path)

    found = [sorted((row["kind"], row["_change_type"], row["row"]["attr"]) for row in batch) for batch in batches]
    assert found == [
        [("+I", "insert", "old")],
        [("+U", "update_postimage", "new"), ("-U", "update_preimage", "old")],
    ]


def test_wrong_use_is_reported(spark: SparkSession) -> None:
    rows = spark.createDataFrame([], SCHEMA)
    cases: list[tuple[Callable[[], DataFrame], str]] = [
        (lambda: materialize(rows, []), "no key column.*name at least one column"),
        (lambda: materialize(rows, ["nr"]), "no column 'nr'.*check the name"),
        (lambda: materialize(rows, ["id"], ["nr"]), "no column 'nr'.*check the name"),
        (lambda: materialize(rows.drop("kind"), ["id"]), "no column 'kind'.*use the result of to_changelog"),
        (
            lambda: materialize(rows.withColumn("row", fn.lit(1)), ["id"]),
            "'row' is not a struct.*result of to_changelog",
        ),
        (lambda: materialize(rows, ["id"], order=[]), "no order column.*name the column that orders the changes"),
        (lambda: materialize(rows, ["id"], order=["seq"]), "no column 'seq' for the order.*check the name"),
        (lambda: materialize(rows, ["id"], order=["kind"]), "the type string.*use numbers, timestamps or structs"),
        (
            lambda: join(JoinSide(rows, ["id"], ["id"]), JoinSide(rows, ["id"], ["attr"])),
            "different types.*cast the columns of one side",
        ),
    ]
    for wrong, message in cases:
        with pytest.raises(SchemaError, match=f"(?s){message}"):
            wrong()
    with pytest.raises(ConfigError, match="ignore_late needs an upsert_key"):
        materialize(rows, ["id"], ignore_late=True)
    spark.conf.unset(PROVIDER)
    with pytest.raises(ConfigError, match="RocksDBStateStoreProvider"):
        materialize(rows, ["id"])


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "+X"}, r"unknown row kind \+X"),
        ({"row": None}, r"\+I without a row"),
        ({"sequence": {"file": 1, "pos": None}}, "the order column 'sequence' has a NULL"),
    ],
)
def test_an_entry_that_means_nothing_fails_the_query(spark: SparkSession, change: dict[str, Any], message: str) -> None:
    """A batch instead of a stream: the operator is the same."""
    rows = spark.createDataFrame([{**entry(1, "+I", 1, 10, "a"), **change}], SCHEMA)

    with pytest.raises(Exception, match=message):
        materialize(rows, ["id"]).collect()
