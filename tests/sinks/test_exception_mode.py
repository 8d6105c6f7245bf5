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
        ProjectedDelta,
        pytest.param(ProjectedPostgres, marks=pytest.mark.long),
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
