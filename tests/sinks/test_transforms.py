"""Transforms before sinks: filters, renames, types and computed columns reach the targets; routes name them."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.errors import TransformError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import WithSettings
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_kafka import KafkaBackend
from tests.sinks.test_parquet import ParquetBackend
from tests.sinks.test_upsert_kafka import UpsertKafkaBackend
from tests.spark.records import EPOCH, Feed, Message, Table, connect, decimal, table_schema, unscaled
from tests.spark.running import consume, run_app, settings, table_rows, topic_records
from tests.spark.test_parking import delete_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

PRICE = ConnectField("price", decimal(10, 2))


class ProjectedDelta(WithSettings, DeltaBackend):
    """Delta tables of transformed tables."""

    def read(self, *path: str) -> list[dict[str, Any]]:
        """Return the rows of a table, ordered by the first column."""
        rows = self.spark.read.format("delta").load(str(self.work.joinpath("tables", *path))).drop("_seq").collect()
        return sorted((each.asDict() for each in rows), key=lambda each: next(iter(each.values())))


class ProjectedIceberg(WithSettings, IcebergBackend):
    """Iceberg tables of transformed tables."""

    def read(self, *path: str) -> list[dict[str, Any]]:  # type: ignore[override]
        """Return the rows of a table."""
        rows = self.spark.read.table(f"{self.schema_name}.`{'_'.join(path)}`").drop("_seq").collect()
        return [each.asDict() for each in rows]


class ProjectedJdbc(WithSettings, JdbcBackend):
    """Tables of a database of transformed tables."""

    def read(self, *path: str) -> list[dict[str, Any]]:
        """Return the rows of a table."""
        return [each.asDict() for each in self.frame(path[-1]).drop("_seq").collect()]


class ProjectedPostgres(ProjectedJdbc):
    """Tables of PostgreSQL."""

    database = "postgresql"


class ProjectedMySql(ProjectedJdbc):
    """Tables of MySQL."""

    database = "mysql"


class ProjectedParquet(WithSettings, ParquetBackend):
    """Files of transformed tables."""


class ProjectedUpsertKafka(WithSettings, UpsertKafkaBackend):
    """Compacted topics of transformed tables."""


class ProjectedKafka(WithSettings, KafkaBackend):
    """Changelog topics of transformed tables."""


def alteration(table: Table, pos: int, *changes: ColumnChange) -> Message:
    """Return the record of an ALTER TABLE."""
    names = table.schema.topic, table.schema.database, table.schema.table
    found = Alteration(*names, "ALTER TABLE t …", changes, Sequence(EPOCH, 7, pos, 0, 0))
    return Message(schemas_topic(table.schema.topic.split(".")[0]), found.record_key(), found.to_json())


def test_delta_table_has_the_projected_rows_that_the_filter_takes(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER, PRICE))
    backend = ProjectedDelta(spark, kafka_broker, tmp_path)
    backend.added = {
        "transforms": "t",
        "transforms.t.source-table": "shop\\.t",
        "transforms.t.projection": "id AS `order id`, upper(name) AS name, price * n AS total, * EXCEPT (id, name)",
        "transforms.t.filter": "n < 100",
        "routes": "r",
        "routes.r.source-table": "(\\w+)\\.(\\w)",
        "routes.r.sink-table": "all_$1.$2s",
    }
    run = BatchRunner(feed, table, backend, tmp_path)
    one = unscaled(150)
    a, b, c, d = (row(key, n, price=one) for key, n in ((1, 1), (2, 2), (3, 300), (4, None)))

    split = table.snapshot(prefix, 0, [a, b, c, d], low=10, high=20)
    run.batch([*split, table.end(prefix, 0, high=20, rows=4)])
    run.batch(
        table.change("u", a, {**a, "n": 100}, pos=100),  # leaves
        table.change("u", c, {**c, "n": 3}, pos=110),  # enters
        table.change("d", d, None, pos=120),  # was never in
        table.change("c", None, row(5, 500, price=one), pos=130),
        table.change("c", None, row(6, 6, price=one), pos=140),
    )
    run.repeat()

    def expected(key: int, n: int) -> dict[str, Any]:
        price = Decimal("1.50")
        return {"order id": key, "name": f"NAME {key}", "total": price * n, "n": n, "price": price}

    assert backend.read("all_shop", "ts") == [expected(2, 2), expected(3, 3), expected(6, 6)]

    # A column that * stands for comes with ALTER TABLE; one that an expression uses stops the table when it goes.
    extra = ConnectField("extra", connect("int32"))
    table.schema = replace(table.schema, columns=(*table.schema.columns, extra))
    added = alteration(table, 200, ColumnChange(AlterationKind.ADD, "extra", schema=extra.schema, value=7))
    run.batch(
        [added, table.published(prefix, version=2)], table.change("c", None, row(7, 7, price=one, extra=1), pos=210)
    )
    assert [each["extra"] for each in backend.read("all_shop", "ts")] == [7, 7, 7, 1]

    kept = tuple(column for column in table.schema.columns if column.name != "price")
    table.schema = replace(table.schema, columns=kept)
    dropped = alteration(table, 300, ColumnChange(AlterationKind.DROP, "price"))
    with pytest.raises(TransformError, match="`price` cannot be resolved"):
        run.batch([dropped, table.published(prefix, version=3)], table.change("c", None, row(8, 8, extra=1), pos=310))
    assert len(backend.read("all_shop", "ts")) == 4


def test_kafka_changelog_has_inserts_and_deletes_for_rows_that_cross_the_filter(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    backend = ProjectedKafka(spark, kafka_broker, tmp_path)
    backend.added = {
        "sink.topic": f"{prefix}-out",
        "transforms": "t",
        "transforms.t.source-table": "shop\\.t",
        "transforms.t.projection": "id AS k, n",
        "transforms.t.filter": "n < 100",
    }
    run = BatchRunner(feed, table, backend, tmp_path)

    # The rows of a split wait for its end, with a change that leaves the filter meanwhile.
    run.batch(
        table.snapshot(prefix, 0, [row(1, 1), row(2, 2), row(3, 300)], low=10, high=20),
        table.change("u", row(1, 1), row(1, 100), pos=15, split=table.split_id(0)),
        table.change("u", row(2, 2), row(2, 200), pos=30),
    )
    run.batch([table.end(prefix, 0, high=20, rows=3, backfill=1)])
    run.batch(
        table.change("u", row(1, 100), row(1, 101), pos=100),
        table.change("u", row(1, 101), row(1, 10), pos=110),
        table.change("u", row(1, 10), row(1, 11), pos=120),
        table.change("u", row(1, 11), row(1, 102), pos=130),
        table.change("d", row(1, 102), None, pos=140),
    )

    def entry(kind: str, key: int, n: int) -> tuple[str, dict[str, int]]:
        return kind, {"k": key, "n": n}

    assert topic_records(kafka_broker, f"{prefix}-out") == {
        b'{"k":2}': [entry("+I", 2, 2), entry("-D", 2, 2)],
        b'{"k":1}': [entry("+I", 1, 10), entry("-U", 1, 10), entry("+U", 1, 11), entry("-D", 1, 11)],
    }


SHARDS = {
    "transforms": "t",
    "transforms.t.source-table": "shop_\\d\\..*",
    "transforms.t.projection": "int(substr(__schema_name__, 6)) AS shard, *",
    "transforms.t.primary-keys": "shard, id",
    "routes": "r",
    "routes.r.source-table": "shop_\\d\\.(.*)",
    "routes.r.sink-table": "shop.$1",
}
"""Tables of the databases shop_1, shop_2, … become one."""


def shards(backend: WithSettings, prefix: str, **settings: str) -> tuple[BatchRunner, Table, Table]:
    """Open a query over the new topics of two shards; ``settings`` has __ for dots."""
    feed = Feed(backend.broker, prefix)
    schema = table_schema(prefix, "t", INTEGER)
    one, other = (
        feed.table(replace(schema, topic=f"{prefix}.{database}.t", database=database))
        for database in ("shop_1", "shop_2")
    )
    backend.added = {**SHARDS, **{name.replace("__", "."): value for name, value in settings.items()}}
    run = BatchRunner(feed, one, backend, backend.work)
    run.others = [other]
    return run, one, other


def test_kafka_changelog_of_shards_has_their_rows_side_by_side(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    backend = ProjectedKafka(spark, kafka_broker, tmp_path)
    run, one, other = shards(backend, prefix, sink__topic=f"out-{prefix}.{{database}}.{{table}}")
    run.batch(*(table.change("c", None, row(1, number), pos=100) for number, table in enumerate((one, other))))
    run.batch(one.truncate(pos=200), other.change("u", row(1, 1), row(1, 2), pos=210))

    def entry(kind: str, shard: int, n: int) -> tuple[str, dict[str, Any]]:
        return kind, {"shard": shard, **row(1, n)}

    assert topic_records(kafka_broker, f"out-{prefix}.shop.t") == {
        b'{"shard":1,"id":1}': [entry("+I", 1, 0), entry("-D", 1, 0)],
        b'{"shard":2,"id":1}': [entry("+I", 2, 1), entry("-U", 2, 1), entry("+U", 2, 2)],
    }


def test_files_of_shards_have_the_rows_of_each(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Writes at the same offsets, a column that one shard adds, and a truncate event of the other one."""
    backend = ProjectedParquet(spark, kafka_broker, tmp_path)
    run, one, other = shards(backend, prefix, sink__shape="history", add__fields="op,source.pos:pos")
    run.batch(*(table.change("c", None, row(1, number), pos=100) for number, table in enumerate((one, other))))
    run.repeat()
    other.schema = replace(other.schema, columns=(*other.schema.columns, ConnectField("extra", connect("int32"))))
    run.batch(
        [other.published(prefix, version=2)],
        one.truncate(pos=200),
        other.change("u", row(1, 1, extra=None), row(1, 2, extra=7), pos=210),
    )
    run.repeat()

    found: dict[tuple[int, int], list[tuple[Any, ...]]] = {}
    for each in backend.frame("t").orderBy("_seq", "_partition", "_offset", "_part").collect():
        entry = each["_kind"], each["n"], each["extra"], each["__op"], each["__pos"]
        found.setdefault((each["shard"], each["id"]), []).append(entry)
    assert found == {
        (1, 1): [("+I", 0, None, "c", 100), ("-D", 0, None, "c", 100)],
        (2, 1): [("+I", 1, None, "c", 100), ("-U", 1, None, "u", 210), ("+U", 2, 7, "u", 210)],
    }


def test_compacted_topic_of_shards_has_the_last_rows_of_each(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A repeated batch writes nothing, a truncate event concerns one shard, a deleted topic gets all rows again."""
    backend = ProjectedUpsertKafka(spark, kafka_broker, tmp_path)
    run, one, other = shards(backend, prefix, sink__topic=f"latest.out-{prefix}.{{table}}")

    def last() -> dict[tuple[int, int], dict[str, Any] | None]:
        records = backend.records(replace(one.schema, topic=f"out-{prefix}.t"))
        return {(key["shard"], key["id"]): value for key, value in records}

    run.batch(
        one.change("c", None, row(1, 0), pos=100),
        other.change("c", None, row(1, 1), pos=100),
        other.change("c", None, row(2, 1), pos=110),
    )
    run.batch(one.truncate(pos=200), other.change("u", row(1, 1), row(1, 2), pos=210))
    written = backend.records(replace(one.schema, topic=f"out-{prefix}.t"))
    assert last() == {(1, 1): None, (2, 1): {"shard": 2, **row(1, 2)}, (2, 2): {"shard": 2, **row(2, 1)}}

    run.repeat()
    assert backend.records(replace(one.schema, topic=f"out-{prefix}.t")) == written

    delete_topic(kafka_broker, f"latest.out-{prefix}.t")
    run.repeat()
    run.retry()
    rows = {key: value for key, value in last().items() if value is not None}
    assert rows == {(2, 1): {"shard": 2, **row(1, 2)}, (2, 2): {"shard": 2, **row(2, 1)}}


@pytest.mark.parametrize(
    "backend",
    [
        ProjectedPostgres,
        pytest.param(ProjectedDelta, marks=pytest.mark.long),
        pytest.param(ProjectedIceberg, marks=pytest.mark.long),
        pytest.param(ProjectedMySql, marks=pytest.mark.long),
    ],
    indirect=True,
)
def test_table_of_shards_is_what_tables_of_their_own_would_be(
    backend: type[ProjectedDelta], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    target = backend(spark, kafka_broker, tmp_path)
    run, one, other = shards(target, prefix)

    def stored() -> dict[tuple[int, int], dict[str, Any]]:
        rows = target.read("shop", "t")
        found = {(each.pop("shard"), each["id"]): each for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found

    def loaded(table: Table, *rows: dict[str, Any]) -> list[Message]:
        records = table.snapshot(prefix, 0, rows, low=10, high=20)
        return [*records, table.end(prefix, 0, high=20, rows=len(rows))]

    # Equal keys, rows of a snapshot and changes; the batch runs again in a new process.
    run.batch(
        loaded(one, row(1, 10), row(2, 10)),
        loaded(other, row(1, 20)),
        other.change("u", row(1, 20), row(1, 21), pos=30),
        other.change("c", None, row(3, 20), pos=31),
    )
    run.repeat()
    assert stored() == {(1, 1): row(1, 10), (1, 2): row(2, 10), (2, 1): row(1, 21), (2, 3): row(3, 20)}

    # A truncate event concerns its own shard.
    run.batch(
        one.truncate(pos=100), other.change("d", row(3, 20), None, pos=100), one.change("c", None, row(4), pos=110)
    )
    run.repeat()
    assert stored() == {(1, 4): row(4), (2, 1): row(1, 21)}

    # Each shard is altered by itself; the value of a new column is that of its own statement.
    def add(table: Table, value: int, pos: int) -> list[Message]:
        extra = ConnectField("extra", connect("int32"))
        table.schema = replace(table.schema, columns=(*table.schema.columns, extra))
        change = ColumnChange(AlterationKind.ADD, "extra", schema=extra.schema, value=value)
        return [alteration(table, pos, change), table.published(prefix, version=2)]

    run.batch(
        add(one, 7, 200), one.change("c", None, row(5, extra=1), pos=210), other.change("c", None, row(6), pos=210)
    )
    assert {key: each["extra"] for key, each in stored().items()} == {(1, 4): 7, (1, 5): 1, (2, 1): None, (2, 6): None}
    run.batch(add(other, 8, 300), other.change("c", None, row(7, extra=2), pos=310))
    run.repeat()
    assert {key: each["extra"] for key, each in stored().items()} == {
        (1, 4): 7,
        (1, 5): 1,
        (2, 1): 8,
        (2, 6): 8,
        (2, 7): 2,
    }

    # A type that the table cannot take stops the shard that has it; columns of a database become text.
    other.schema = replace(
        other.schema,
        columns=tuple(replace(c, schema=connect("string")) if c.name == "n" else c for c in other.schema.columns),
    )
    run.batch(
        [other.published(prefix, version=3)],
        other.change("c", None, row(8, "text", extra=3), pos=410),
        one.change("c", None, row(9, 9, extra=4), pos=410),
    )
    if issubclass(backend, ProjectedJdbc):
        assert (stored()[1, 9]["n"], stored()[2, 8]["n"]) == ("9", "text")
    else:
        assert stored()[1, 9]["n"] == 9
        assert (2, 8) not in stored()


def test_a_query_does_not_start_with_faults_and_names_them_all(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    for name in ("orders", "people"):
        table = feed.table(table_schema(prefix, name, INTEGER))
        feed.write(table.change("c", None, row(1, 1), pos=100))
    given = settings(kafka_broker, prefix, tmp_path) | {
        "transforms": "o, p",
        "transforms.o.source-table": "shop\\.orders",
        "transforms.o.projection": "*, uper(name) AS loud, nn + 1 AS more",
        "transforms.p.source-table": "shop\\.people",
        "transforms.p.filter": "n",
        "log.format": "text",
    }

    done = run_app(given, tmp_path)

    assert done.returncode == 78
    _, _, report = done.stderr.partition("error: ")
    path = "[`system`.`builtin`, `system`.`session`, `spark_catalog`.`default`]"
    known = "[`n`, `id`, `name`, `__table_name__`, `__schema_name__`]"
    no_column = "A column, variable, or function parameter with name `nn` cannot be resolved"
    first, second = (f"transforms.o.projection, line 1, column {column}:" for column in (4, 24))
    third = "transforms.p.filter, line 1, column 1:"
    assert report.splitlines() == [
        "3 configuration problems:",
        f"- {first} Cannot resolve routine `uper` on search path {path} (table shop.orders)",
        "    *, uper(name) AS loud, nn + 1 AS more",
        "       ^^^^^^^^^^",
        f"- {second} {no_column}. Did you mean one of the following? {known} (table shop.orders)",
        "    *, uper(name) AS loud, nn + 1 AS more",
        "                           ^^",
        f"- {third} a filter is true or false, and this is of the type int (table shop.people)",
        "    n",
        "    ^",
    ]
    assert not (tmp_path / "tables").exists()

    # A table that is not read does not matter.
    consume(spark, {**given, "table.include.list": "shop\\.people", "transforms.p.filter": "n > 0"})
    assert table_rows(spark, tmp_path, "people") == {1: row(1, 1)}
