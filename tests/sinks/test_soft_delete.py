"""Tables with soft deletes and metadata columns, in each table format."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer.errors import SinkError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.shapes import SOFT_DELETES, JdbcShapeConformance, ShapeConformance, SoftDeletes
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.spark.records import Feed, Row, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CASES = SinkConformance.cases()


class DeltaSoftDelete(SoftDeletes, DeltaBackend):
    """Delta tables at a path; small ones are written whole."""


class DeltaMergeSoftDelete(DeltaSoftDelete):
    """Delta tables whose changes are merged: somebody follows them."""

    added: Mapping[str, str] = {**SOFT_DELETES, "sink.properties.delta.enableChangeDataFeed": "true"}


class IcebergSoftDelete(SoftDeletes, IcebergBackend):
    """Iceberg tables."""


class JdbcSoftDelete(SoftDeletes, JdbcBackend):
    """Tables of a database."""


class PostgresSoftDelete(JdbcSoftDelete):
    """Tables of PostgreSQL."""

    database = "postgresql"


class MySqlSoftDelete(JdbcSoftDelete):
    """Tables of MySQL."""

    database = "mysql"


class TestDeltaSoftDelete(ShapeConformance):
    """Delta."""

    backend_type = DeltaSoftDelete
    variant = "soft-delete"
    long = CASES - {"test_truncate"}


class TestIcebergSoftDelete(ShapeConformance):
    """Iceberg."""

    backend_type = IcebergSoftDelete
    variant = "soft-delete"
    long = CASES - {"test_truncate"}


class TestPostgresSoftDelete(JdbcShapeConformance):
    """PostgreSQL."""

    backend_type = PostgresSoftDelete
    variant = "PostgreSQL, soft-delete"
    long = CASES - {"test_batch_cut_off"}


class TestMySqlSoftDelete(JdbcShapeConformance):
    """MySQL."""

    backend_type = MySqlSoftDelete
    variant = "MySQL, soft-delete"
    long = CASES


def runner(
    spark: SparkSession, broker: KafkaBroker, prefix: str, work: Path, backend: type[SinkBackend], *extra: ConnectField
) -> BatchRunner:
    """Return a query over a new table."""
    feed = Feed(broker, prefix)
    table = feed.table(table_schema(prefix, "t", *(extra or (INTEGER,))))
    return BatchRunner(feed, table, backend(spark, broker, work), work)


def next_query(run: BatchRunner, backend: SinkBackend) -> BatchRunner:
    """Return another query over the table, which begins where the topic ends now."""
    found = BatchRunner(run.feed, run.table, backend, backend.work / type(backend).__name__)
    found.accept_incomplete = True
    found.restart()
    return found


@pytest.mark.parametrize(
    "backend",
    [
        DeltaSoftDelete,
        pytest.param(DeltaMergeSoftDelete, marks=pytest.mark.long),
        IcebergSoftDelete,
        pytest.param(PostgresSoftDelete, marks=pytest.mark.long),
        MySqlSoftDelete,
    ],
    indirect=True,
)
def test_deleted_rows_stay_with_their_last_values(
    backend: type[DeltaSoftDelete], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    run = runner(spark, kafka_broker, prefix, tmp_path, backend)
    change = run.table.change

    def expect(*rows: Row) -> None:
        assert isinstance(run.backend, SoftDeletes)
        assert run.backend.all_rows(run.table.schema) == {each["id"]: each for each in rows}

    def stored(values: Row, op: str, pos: int, *, deleted: bool = False) -> Row:
        return {**values, "__deleted": deleted, "__op": op, "__position": pos}

    # Row 4 is inserted and deleted in one batch, row 5 was never read.
    run.batch(
        *(change("c", None, row(key), pos=100 + key) for key in (1, 2, 3, 4)),
        change("d", row(4, 7), None, pos=110),
        change("d", row(5, 5), None, pos=111),
    )
    first = [stored(row(3), "c", 103), stored(row(4, 7), "d", 110, deleted=True)]
    first.append(stored(row(5, 5), "d", 111, deleted=True))
    expect(stored(row(1), "c", 101), stored(row(2), "c", 102), *first)

    # The before image has the last values, also where their update was not a record of its own.
    run.batch(change("d", row(1, 8), None, pos=120), change("d", row(2), None, pos=121))
    run.repeat()
    run.batch(change("u", row(2), row(2, 9), pos=115))
    deleted = stored(row(2), "d", 121, deleted=True)
    expect(stored(row(1, 8), "d", 120, deleted=True), deleted, *first)

    run.batch(change("c", None, row(1, 1), pos=130))
    expect(stored(row(1, 1), "c", 130), deleted, *first)

    run.batch(run.table.truncate(pos=125))
    run.repeat()
    expect(stored(row(1, 1), "c", 130), deleted, stored(row(3), "c", 103, deleted=True), *first[1:])


def test_metadata_columns_are_added_to_a_table_and_end(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Another process of the query has other metadata columns; a column of the source cannot have such a name."""

    class Backend(DeltaBackend):
        fields = ""

        def settings(self) -> dict[str, str]:
            return {**super().settings(), "add.fields": self.fields}

    class WithFields(Backend):
        fields = "op,db,source.table,ts_ms,transaction.id"

    class WithOthers(Backend):
        fields = "source.file"

    run = runner(spark, kafka_broker, prefix, tmp_path, Backend)
    run.batch(run.table.change("c", None, row(1), pos=100), run.table.change("c", None, row(2), pos=101))
    names = ("__op", "__db", "__source_table", "__ts_ms", "__transaction_id")
    others = next_query(run, WithFields(spark, kafka_broker, tmp_path))
    others.batch(run.table.change("u", row(1), row(1, 1), pos=110))
    # The records of these tests have neither db and table nor a transaction.
    values = ("u", None, None, 1, None)
    assert others.backend.rows(run.table.schema) == {
        1: {**row(1, 1), **dict(zip(names, values, strict=True))},
        2: {**row(2), **dict.fromkeys(names)},
    }

    last = next_query(run, WithOthers(spark, kafka_broker, tmp_path))
    last.batch(run.table.change("u", row(1, 1), row(1, 2), pos=120))
    assert last.backend.rows(run.table.schema)[1] == {
        **row(1, 2),
        **dict.fromkeys(names),
        "__source_file": "binlog.000007",
    }

    run.table.schema = table_schema(prefix, "t", INTEGER, ConnectField("__SOURCE_FILE", connect("string")))
    with pytest.raises(Exception, match=r"column '__SOURCE_FILE' of shop\.t cannot be stored under its name"):
        last.batch([run.table.published(prefix, version=2)], run.table.change("c", None, row(3), pos=130))


def test_table_keeps_its_shape(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """A table with another shape than the configuration asks for is an error before anything is written."""
    run = runner(spark, kafka_broker, prefix, tmp_path, DeltaBackend)
    run.batch(run.table.change("c", None, row(1), pos=100))
    other = next_query(run, DeltaSoftDelete(spark, kafka_broker, tmp_path))

    with pytest.raises(SinkError, match="has the shape scd1, and the configuration asks for soft-delete"):
        other.batch(run.table.change("d", row(1), None, pos=110))

    assert run.backend.rows(run.table.schema) == {1: row(1)}
