"""Columns whose names move: in other letters, behind a column with a value, through a third name, to another type."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.schemas.alteration import ColumnChange
from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER
from tests.sinks.harness import BatchRunner
from tests.sinks.test_exception_mode import NUMBER, add, drop, records_of, rename
from tests.sinks.test_transforms import ProjectedDelta, ProjectedIceberg, ProjectedMySql, ProjectedPostgres
from tests.spark.records import Feed, Table, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.spark.records import Row

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

CASES: Final[dict[str, tuple[tuple[tuple[ColumnChange, ...], ...], dict[str, Any]]]] = {
    "other_letters": (((rename("n", "N"),),), {"n": 1, "k": 2}),
    "there_and_back": (((rename("n", "N"),), (rename("N", "n"),)), {"n": 1, "k": 2}),
    "behind_a_value": (((add("c", 5),), (rename("n", "m"),)), {"c": 5, "m": 1, "k": 2}),
    "taken_over": (((add("c", 5),), (rename("n", "m"),), (rename("c", "n"),)), {"n": 5, "m": 1, "k": 2}),
    "through_a_third": (((rename("n", "t"),), (rename("k", "n"),), (rename("t", "k"),)), {"n": 2, "k": 1}),
}
"""Statements for a table with the columns n and k, and what its row, in which they are 1 and 2, has then."""
RETYPED: Final = {
    "retyped": ((drop("k"), add("k", None)),),
    "renamed_to": ((drop("k"),), (rename("n", "k"),)),
}
"""The same, in the batch that creates the target; the column k is text before."""


@pytest.mark.parametrize(
    "backend",
    [ProjectedDelta, ProjectedIceberg, ProjectedPostgres, ProjectedMySql],
    indirect=True,
)
@pytest.mark.parametrize("mode", ["evolve", "lenient"])
def test_rows_follow_the_names_of_their_columns(
    backend: type[ProjectedDelta], mode: str, spark: SparkSession, kafka_broker: KafkaBroker, tmp_path: Path
) -> None:
    """With ``evolve`` no other column stays; a column that one batch retypes gets the type that its rows have."""
    prefix = f"moved{backend.__name__}{mode}"
    target, feed = backend(spark, kafka_broker, tmp_path), Feed(kafka_broker, prefix)
    tables = {name: feed.table(table_schema(prefix, name, INTEGER, ConnectField("k", NUMBER))) for name in CASES}
    texts = {name: feed.table(_with_text(prefix, name)) for name in RETYPED}
    run = BatchRunner(feed, tables["other_letters"], target, tmp_path, {"schema.change.behavior": mode})
    run.others = [*tables.values(), *texts.values()][1:]
    run.batch(*(_row(table, 1, n=1, k=2) for table in tables.values()))
    records: list[Any] = [_row(table, 1, n=1, k="text") for table in texts.values()]
    records += [[table.published(prefix, version=150)] for table in texts.values()]
    for name, table in (tables | texts).items():
        statements = CASES[name][0] if name in CASES else RETYPED[name]
        records.append(records_of(feed, table, statements))
        columns = [column.name for column in table.schema.columns if column.name not in {"id", "name"}]
        records.append(_row(table, 2, pos=300, **dict.fromkeys(columns, 9)))

    run.batch(*records)

    assert run.parked() == {}
    wanted: dict[str, dict[str, Any]] = {name: values for name, (_, values) in CASES.items()}
    wanted |= {"retyped": {"n": 1, "k": None}, "renamed_to": {"k": 1}}
    for name, values in wanted.items():
        first, second = sorted(target.read("shop", name), key=lambda stored: int(stored["id"]))
        expected = {"id": 1, "name": "name 1", **values}, {"id": 2, "name": "name 2", **dict.fromkeys(values, 9)}
        if mode == "evolve":
            assert (_lower(first), _lower(second)) == expected, name
        else:
            found = ({column: _lower(row)[column] for column in expected[0]} for row in (first, second))
            assert tuple(found) == expected, name


def _with_text(prefix: str, name: str) -> Any:
    return table_schema(prefix, name, INTEGER, ConnectField("k", connect("string")))


def _row(table: Table, key: int, *, pos: int = 100, **values: object) -> list[Any]:
    return table.change("c", None, {"id": key, "name": f"name {key}", **values}, pos=pos)


def _lower(row: Row) -> Row:
    return {name.lower(): value for name, value in row.items()}
