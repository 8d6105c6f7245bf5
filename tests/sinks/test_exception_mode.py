"""schema.change.behavior=exception: the statements of the reason are enough, whatever was altered in one go."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.schemas.alteration import AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_transforms import (
    ProjectedDelta,
    ProjectedIceberg,
    ProjectedMySql,
    ProjectedPostgres,
    alteration,
    shards,
)
from tests.spark.records import Feed, Table, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

NUMBER: Final = connect("int32")


def add(column: str, value: object) -> ColumnChange:
    """Return ADD COLUMN with the value of existing rows."""
    return ColumnChange(AlterationKind.ADD, column, schema=NUMBER, value=value)


def drop(column: str) -> ColumnChange:
    """Return DROP COLUMN."""
    return ColumnChange(AlterationKind.DROP, column)


def rename(old: str, new: str) -> ColumnChange:
    """Return RENAME COLUMN."""
    return ColumnChange(AlterationKind.RENAME, new, old=old)


CASES: Final[dict[str, tuple[tuple[tuple[ColumnChange, ...], ...], dict[str, Any]]]] = {
    "added_and_dropped": (((add("m", 5), drop("n")), (drop("m"),)), {}),
    "added_and_renamed": (((add("m", 5),), (rename("m", "k"),)), {"n": 1, "k": 5}),
    "replaced": (((drop("n"), add("n", 5)),), {"n": 5}),
    "replaced_in_two": (((drop("n"),), (add("n", 5),)), {"n": 5}),
    "name_reused": (((rename("n", "m"), add("n", 5)),), {"n": 5, "m": 1}),
}
"""Statements for a table with the column n, and what its row, in which n is 1, has besides id and name then."""


def records_of(feed: Feed, table: Table, statements: tuple[tuple[ColumnChange, ...], ...]) -> list[Any]:
    """Return the records of statements, after which the table has other columns."""
    columns = {column.name: column for column in table.schema.columns}
    messages: list[Any] = []
    for number, changes in enumerate(statements):
        messages.append(alteration(table, 200 + 10 * number, *changes))
        for change in changes:
            columns.pop(change.old or (change.column if change.kind is AlterationKind.DROP else ""), None)
        for change in changes:
            if change.kind is not AlterationKind.DROP:
                columns[change.column] = ConnectField(change.column, NUMBER)
    table.schema = replace(table.schema, columns=tuple(columns.values()))
    return [*messages, table.published(feed.prefix, version=250)]


@pytest.mark.parametrize(
    "backend",
    [
        ProjectedPostgres,
        pytest.param(ProjectedDelta, marks=pytest.mark.long),
        pytest.param(ProjectedMySql, marks=pytest.mark.long),
        pytest.param(ProjectedIceberg, marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_named_statements_are_enough(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    target = backend(spark, kafka_broker, tmp_path)
    tables = {name: feed.table(table_schema(prefix, name, INTEGER)) for name in CASES}
    other = feed.table(table_schema(prefix, "other", INTEGER))
    run = BatchRunner(feed, other, target, tmp_path, {"schema.change.behavior": "exception"})
    run.others = list(tables.values())
    run.batch(*(table.change("c", None, row(1, 1), pos=100) for table in (other, *tables.values())))
    rows = {}
    records = []
    for name, table in tables.items():
        records.append(records_of(feed, table, CASES[name][0]))
        rows[name] = {"id": 2, "name": "name 2"} | dict.fromkeys(CASES[name][1], 9)
        records.append(table.change("c", None, rows[name], pos=300))
    run.batch(*records)

    parked = run.parked()
    assert parked.keys() == {table.schema.topic for table in tables.values()}
    for position in parked.values():
        assert "exception allows no change" in position["reason"]
        for statement in position["details"]["statement"].split("; "):
            target.execute(statement)
    run.restart()
    run.retry()

    assert run.parked() == {}
    found = {name: target.read("shop", name) for name in CASES}
    assert {name: sorted(each, key=lambda stored: stored["id"]) for name, each in found.items()} == {
        name: [{"id": 1, "name": "name 1", **CASES[name][1]}, rows[name]] for name in CASES
    }


@pytest.mark.parametrize(
    "backend",
    [
        ProjectedPostgres,
        pytest.param(ProjectedDelta, marks=pytest.mark.long),
        pytest.param(ProjectedMySql, marks=pytest.mark.long),
        pytest.param(ProjectedIceberg, marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_statements_for_a_shard_leave_the_columns_of_the_others(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The shards rename a column one after the other: the first one gets a new column, the second one finds it."""
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix, schema__change__behavior="exception")
    run.batch(*(table.change("c", None, row(1, number), pos=100) for number, table in enumerate((one, other), 1)))
    run.batch(
        records_of(run.feed, one, ((rename("n", "m"),),)),
        one.change("c", None, {"id": 2, "name": "name 2", "m": 9}, pos=300),
        other.change("c", None, row(2, 7), pos=300),
    )

    [statement, _mark] = statements_of(run, one)
    assert "ADD COLUMN" in statement
    target.execute(statement)
    run.batch(other.change("u", row(1, 2), row(1, 3), pos=310))
    assert values_of(target) == {(1, 1): (1, None), (2, 1): (3, None), (2, 2): (7, None)}
    [mark] = statements_of(run, one)
    target.execute(mark)
    run.restart()
    run.retry()
    assert run.parked() == {}
    expected = {(1, 1): (1, 1), (1, 2): (None, 9), (2, 1): (3, None), (2, 2): (7, None)}
    assert values_of(target) == expected

    run.batch(
        records_of(run.feed, other, ((rename("n", "m"),),)),
        one.change("u", {"id": 2, "name": "name 2", "m": 9}, {"id": 2, "name": "name 2", "m": 8}, pos=400),
        other.change("c", None, {"id": 3, "name": "name 3", "m": 6}, pos=400),
    )
    [mark] = statements_of(run, other)
    target.execute(mark)
    run.restart()
    run.retry()

    assert run.parked() == {}
    assert values_of(target) == expected | {(1, 2): (None, 8), (2, 1): (3, 3), (2, 2): (7, 7), (2, 3): (None, 6)}


def statements_of(run: BatchRunner, table: Table) -> list[str]:
    """Return the statements of the reason of the only parked table, which is tried now."""
    run.restart()
    run.retry()
    [(topic, position)] = run.parked().items()
    assert topic == table.schema.topic
    assert "exception allows no change" in position["reason"]
    found: str = position["details"]["statement"]
    return found.split("; ")


def values_of(target: ProjectedDelta) -> dict[tuple[int, int], tuple[int | None, int | None]]:
    """Return n and m by shard and key."""
    rows = target.read("shop", "t")
    return {(int(each["shard"]), each["id"]): (each["n"], each.get("m")) for each in rows}
