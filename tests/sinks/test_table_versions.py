"""Tables with versions (SCD type 2) in each table format."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.table import TableSchema
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import WithSettings
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.shapes import JdbcShapeConformance, ShapeConformance
from tests.sinks.test_delta_targets import CatalogBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.spark.records import Feed, Row, table_schema

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CASES = SinkConformance.cases()
CUTS = (("before", "write_batch"), ("after", "prepare_table"), ("after", "_write_changelog"))


def time(pos: int) -> datetime:
    """Return the time of a record at a position."""
    return datetime.fromtimestamp(1_700_000_000, UTC) + timedelta(milliseconds=pos)


def versions_of(rows: DataFrame) -> dict[int, list[Row]]:
    """Return the versions by key, in their order; checks what holds for every table."""
    found: dict[int, list[Row]] = {}
    for each in rows.orderBy("id", "_seq").collect():
        found.setdefault(each["id"], []).append(each.asDict())
    for versions in found.values():
        assert all(each["__current"] == (each["_until"] is None) == (each["__valid_to"] is None) for each in versions)
        for one, following in pairwise(versions):
            assert one["_until"] is not None, "two current rows"
            assert one["_until"] <= following["_seq"], "versions overlap"
    return found


def current(found: dict[int, list[Row]]) -> dict[int, Row]:
    """Return the current rows, without the columns of the shape."""
    last = {key: versions[-1] for key, versions in found.items() if versions[-1]["__current"]}
    return {key: {name: value for name, value in each.items() if name[0] != "_"} for key, each in last.items()}


class Versions(WithSettings):
    """Tables with the shape; before the class of a format among the bases."""

    added: Mapping[str, str] = {"sink.shape": "scd2", "add.fields": "op"}

    def versions(self, schema: TableSchema) -> dict[int, list[Row]]:
        """Return the versions by key; none if there is no table."""
        raise NotImplementedError

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Return the current rows."""
        return current(self.versions(schema))


class DeltaVersions(Versions, CatalogBackend):
    """Delta tables of a catalog: they are read by the ranges of keys, as large ones are."""

    cuts = CUTS

    def versions(self, schema: TableSchema) -> dict[int, list[Row]]:
        """Return the versions by key; none if there is no table."""
        name = self.name(f"shop_{schema.table}")
        return versions_of(self.spark.read.table(name)) if self.spark.catalog.tableExists(name) else {}


class IcebergVersions(Versions, IcebergBackend):
    """Iceberg tables."""

    cuts = CUTS

    def versions(self, schema: TableSchema) -> dict[int, list[Row]]:
        """Return the versions by key; none if there is no table."""
        name = self.name(schema.table)
        return versions_of(self.spark.read.table(name)) if self.spark.catalog.tableExists(name) else {}


class JdbcVersions(Versions, JdbcBackend):
    """Tables of a database."""

    def versions(self, schema: TableSchema) -> dict[int, list[Row]]:
        """Return the versions by key; none if there is no table."""
        return versions_of(self.frame(schema.table)) if self.exists(schema) else {}


class PostgresVersions(JdbcVersions):
    """Tables of PostgreSQL."""

    database = "postgresql"


class MySqlVersions(JdbcVersions):
    """Tables of MySQL."""

    database = "mysql"


class TestDeltaVersions(ShapeConformance):
    """Delta."""

    backend_type = DeltaVersions
    variant = "scd2"
    long = CASES - {"test_out_of_order"}


class TestIcebergVersions(ShapeConformance):
    """Iceberg."""

    backend_type = IcebergVersions
    variant = "scd2"
    long = CASES


class TestPostgresVersions(JdbcShapeConformance):
    """PostgreSQL."""

    backend_type = PostgresVersions
    variant = "PostgreSQL, scd2"
    long = CASES


class TestMySqlVersions(JdbcShapeConformance):
    """MySQL."""

    backend_type = MySqlVersions
    variant = "MySQL, scd2"
    long = CASES


@pytest.mark.parametrize(
    "backend",
    [
        PostgresVersions,
        *(pytest.param(suite, marks=pytest.mark.long) for suite in (DeltaVersions, IcebergVersions, MySqlVersions)),
    ],
    indirect=True,
)
def test_versions_of_rows(
    backend: type[DeltaVersions], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Changes, a key that changes, deletes, a later insert, a repeated batch, a row that is read again, a truncate."""
    feed = Feed(kafka_broker, prefix)
    run = BatchRunner(
        feed, feed.table(table_schema(prefix, "t", INTEGER)), backend(spark, kafka_broker, tmp_path), tmp_path
    )
    change = run.table.change

    def expect(**keys: Sequence[tuple[int, str, int, int | None]]) -> None:
        """Check the versions of keys: n, op, and the positions at which they begin and end."""
        assert isinstance(run.backend, DeltaVersions | IcebergVersions | JdbcVersions)
        found: dict[str, list[Any]] = {
            f"k{key}": [
                (
                    each["n"],
                    each["__op"],
                    each["_seq"]["pos"],
                    None if each["_until"] is None else each["_until"]["pos"],
                )
                for each in versions
            ]
            for key, versions in run.backend.versions(run.table.schema).items()
        }
        assert found == keys

    run.batch(
        change("c", None, row(1, 0), pos=100),
        change("c", None, row(2, 0), pos=101),
        change("u", row(1, 0), row(1, 1), pos=110),
        # The same values again, as after a change of a column that is not captured.
        change("u", row(1, 1), row(1, 1), pos=115),
    )
    run.repeat()
    first = [(0, "c", 100, 110)]
    expect(k1=[*first, (1, "u", 110, None)], k2=[(0, "c", 101, None)])

    run.batch(
        change("d", row(2, 0), None, pos=120),
        change("c", None, {**row(3, 0), "name": "name 2"}, pos=120, row=1),
        change("u", row(1, 1), row(1, 2), pos=121),
    )
    run.repeat()
    run.batch(change("c", None, row(2, 5), pos=130), change("d", row(1, 2), None, pos=131))
    second: list[tuple[int, str, int, int | None]] = [(0, "c", 101, 120), (5, "c", 130, None)]
    gone = [*first, (1, "u", 110, 121), (2, "u", 121, 131)]
    expect(k1=gone, k2=second, k3=[(0, "c", 120, None)])

    # Late: between versions, before the first one, and a delete that was read before its insert.
    run.batch(change("u", row(1, 1), row(1, 9), pos=117), change("d", row(4, 1), None, pos=140))
    run.batch(change("c", None, row(4, 1), pos=139))
    late = [*first, (1, "u", 110, 117), (9, "u", 117, 121), (2, "u", 121, 131)]
    expect(k1=late, k2=second, k3=[(0, "c", 120, None)], k4=[(1, "c", 139, 140)])

    run.batch(run.table.truncate(pos=150))
    run.repeat()
    run.batch(change("c", None, row(3, 0), pos=160))
    expect(
        k1=late,
        k2=[second[0], (5, "c", 130, 150)],
        k3=[(0, "c", 120, 150), (0, "c", 160, None)],
        k4=[(1, "c", 139, 140)],
    )
    assert isinstance(run.backend, DeltaVersions | IcebergVersions | JdbcVersions)
    [before, after] = run.backend.versions(run.table.schema)[3]
    assert [before["__valid_from"].astimezone(UTC), before["__valid_to"].astimezone(UTC)] == [time(120), time(150)]
    assert after["__valid_from"].astimezone(UTC) == time(160)
