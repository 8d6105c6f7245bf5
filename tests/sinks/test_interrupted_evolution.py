"""schema.change.behavior=evolve: a process that ends after each commit of a schema change loses no value of a row."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.sink.delta_table import DeltaTable
from tailrace.spark_consumer.sink.iceberg_table import IcebergTable
from tailrace.spark_consumer.sink.jdbc_session import Session
from tailrace.spark_consumer.sink.target_table import TargetTable
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner, CutOffError
from tests.sinks.test_exception_mode import NUMBER, add, drop, records_of, rename
from tests.sinks.test_transforms import ProjectedDelta, ProjectedIceberg, ProjectedMySql
from tests.spark.records import Feed, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]

CASES: Final[dict[str, tuple[Any, dict[str, int | None]]]] = {
    "name_reused": (((rename("n", "m"), add("n", 5)),), {"n": 5, "m": 1, "k": 2}),
    "name_taken_over": (((drop("n"), rename("k", "n")),), {"n": 2}),
    "moved": (((rename("n", "m"),), (rename("k", "n"),)), {"n": 2, "m": 1}),
    "replaced": (((drop("n"), add("n", 5)),), {"n": 5, "k": 2}),
    "behind_a_value": (((add("c", 5),), (rename("n", "m"),), (rename("c", "n"),)), {"n": 5, "m": 1, "k": 2}),
}
"""Statements for a table with the columns n and k, and what its row, in which they are 1 and 2, has then."""
_MOST_COMMITS: Final = 12


on_each_target: Final = pytest.mark.parametrize(
    "backend", [ProjectedDelta, ProjectedIceberg, ProjectedMySql], indirect=True
)
"""PostgreSQL changes a table in one transaction."""


def end_after(patches: pytest.MonkeyPatch, owner: type, name: str, part: str = "") -> None:
    """Let a method be the last act of a process, if ``part`` is in the text of its first argument.

    A rewrite that is made once more makes no commit, and ends nothing.
    """
    method, rewrites = getattr(owner, name), set[object]()

    def run(self: Any, first: Any, *arguments: Any, **options: Any) -> None:
        method(self, first, *arguments, **options)
        rewrite = options.get("once")
        if part in str(first) and rewrite not in rewrites:
            rewrites.update({rewrite} - {None})
            raise CutOffError(f"after {name}")

    patches.setattr(owner, name, run)


@on_each_target
def test_rows_keep_their_values(
    backend: type[ProjectedDelta],
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
) -> None:
    target, feed = backend(spark, kafka_broker, tmp_path), Feed(kafka_broker, prefix)
    other = feed.table(table_schema(prefix, "other", INTEGER))
    tables = {name: feed.table(table_schema(prefix, name, INTEGER, ConnectField("k", NUMBER))) for name in CASES}
    run = BatchRunner(feed, other, target, tmp_path, {"schema.change.behavior": "evolve"})
    run.others = list(tables.values())
    run.batch(*(table.change("c", None, {**row(1, 1), "k": 2}, pos=100) for table in tables.values()))
    records, rows = [], {}
    for name, table in tables.items():
        records.append(records_of(feed, table, CASES[name][0]))
        rows[name] = {"id": 2, "name": "name 2"} | dict.fromkeys(CASES[name][1], 9)
        records.append(table.change("c", None, rows[name], pos=300))

    with pytest.MonkeyPatch.context() as patches:
        end_after(patches, TargetTable, "alter")
        end_after(patches, DeltaTable, "replace")
        end_after(patches, IcebergTable, "replace")
        end_after(patches, Session, "execute", "ALTER TABLE")
        with pytest.raises(CutOffError):
            run.batch(*records)
        commits = 1
        while commits < _MOST_COMMITS and not _complete(run):
            commits += 1

    assert 1 < commits < _MOST_COMMITS
    found = {name: target.read("shop", name) for name in CASES}
    assert {name: sorted(each, key=lambda stored: stored["id"]) for name, each in found.items()} == {
        name: [{"id": 1, "name": "name 1", **CASES[name][1]}, rows[name]] for name in tables
    }


def _complete(run: BatchRunner) -> bool:
    """Go on in a new process; return whether all tables have the batch. If some have it, the others are parked."""
    try:
        if run.parked():
            run.restart()
            run.retry()
        else:
            run.repeat()
    except CutOffError:
        return False
    return not run.parked()
