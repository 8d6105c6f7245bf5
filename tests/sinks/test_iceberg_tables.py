"""Iceberg tables: catalogs, names, columns, snapshots, upkeep, and tables that exist before Tailrace."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Mapping
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pytest
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.alteration import Alteration, AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer import config
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.base import SinkContext, TendedSink
from tailrace.spark_consumer.sink.iceberg_table import LEDGER, IcebergTable
from tailrace.spark_consumer.sink.plugin import load_sink
from tailrace.spark_consumer.sink.table_names import Location
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.watermarks import SnapshotRuns
from tests.embedded.iceberg_rest import IcebergRestCatalog
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import WithSettings
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_iceberg import IcebergBackend
from tests.spark.records import EPOCH, Feed, Message, connect, decimal, table_schema
from tests.spark.running import consume, run_app, settings
from tests.spark.test_delta_scale import NoRecords, batch_of, table_batch
from tests.spark.test_type_pairs import VALUES, same

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.base import Sink
    from tests.embedded.postgresql import PostgresServer

pytestmark = pytest.mark.timeout(1800)


class ServerBackend(WithSettings, IcebergBackend):
    """Tables of a catalog that is a server or a database; they change as the source does."""

    added: Mapping[str, str] = {"schema.change.behavior": "evolve"}
    catalog = "served"


def runner(
    spark: SparkSession, feed: Feed, work: Path, *columns: ConnectField, table: str = "t", backend: Any = IcebergBackend
) -> BatchRunner:
    """Return a query over a new table."""
    schema = table_schema(feed.prefix, table, *(columns or (INTEGER,)))
    found = feed.table(replace(schema, topic=re.sub(r"[^\w.]", "_", schema.topic)))
    return BatchRunner(feed, found, backend(spark, feed.broker, work), work)


def backend_of(run: BatchRunner) -> IcebergBackend:
    """Return the backend of a query."""
    assert isinstance(run.backend, IcebergBackend)
    return run.backend


def snapshots(spark: SparkSession, name: str) -> list[dict[str, Any]]:
    """Return the snapshots of a table: the operation and the summary, oldest first."""
    rows = spark.sql(f"SELECT operation, summary FROM {name}.snapshots ORDER BY committed_at").collect()
    return [{"operation": each["operation"], **each["summary"]} for each in rows]


def publish_change(run: BatchRunner, pos: int, schema: Any, *changes: ColumnChange) -> list[Message]:
    """Publish a schema and the statement that led to it."""
    old = run.table.schema
    run.table.schema = replace(schema, topic=old.topic)
    statement = Alteration(old.topic, "shop", old.table, "ALTER", changes, Sequence(EPOCH, 7, pos, 0, 0))
    published = Message(schemas_topic(run.feed.prefix), statement.record_key(), statement.to_json())
    return [run.table.published(run.feed.prefix, version=pos), published]


def test_table_follows_its_source(spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
    """Names that are no identifiers, a snapshot, changes, a filled column, an older batch, a truncate event."""
    dotted = ConnectField("a.b `c`", connect("int32"))
    run = runner(spark, Feed(kafka_broker, prefix), tmp_path, INTEGER, dotted, table="Order items.2024")
    name = backend_of(run).name("Order_x20items_x2E2024")

    def full(key: int, n: int = 0, **more: object) -> Any:
        return {**row(key, n), dotted.name: key, **more}

    records = run.table.snapshot(prefix, 0, [full(1), full(2), full(3)], low=10, high=20)
    run.batch(records, [run.table.end(prefix, 0, high=20, rows=3)])
    run.batch(run.table.change("u", full(1), full(1, 1), pos=100), run.table.change("d", full(2), None, pos=110))
    run.repeat()
    assert backend_of(run).read(name) == {1: full(1, 1), 3: full(3)}

    added = ConnectField("added", connect("int32"))
    change = ColumnChange(AlterationKind.ADD, "added", schema=added.schema, value=5)
    schema = table_schema(prefix, run.table.schema.table, INTEGER, dotted, added)
    run.batch(publish_change(run, 200, schema, change))
    run.batch(run.table.change("c", None, full(4, added=9), pos=210))
    filled = backend_of(run).read(name)
    run.batch(run.table.truncate(pos=300), run.table.change("c", None, full(6, added=1), pos=310))

    assert filled == {1: full(1, 1, added=5), 3: full(3, added=5), 4: full(4, added=9)}
    assert backend_of(run).read(name) == {6: full(6, added=1)}
    found = snapshots(spark, name)
    # The empty table that the first append branches from, its rows, a MERGE; the filled column, a MERGE; the rows that
    # the truncate event removes, that they are removed, a MERGE.
    assert [LEDGER in each for each in found] == [False, True, True, False, True, False, True, True]
    assert json.loads(found[-1][LEDGER])["tailrace"]["topic"] == run.table.schema.topic
    described = {each["col_name"]: each["data_type"] for each in spark.sql(f"DESCRIBE EXTENDED {name}").collect()}
    assert "identifier-fields=[id]" in described["Table Properties"]


def sqlite_catalog(_request: pytest.FixtureRequest, work: Path) -> dict[str, str]:
    """Return the settings of a JDBC catalog in a file."""
    return {**_JDBC, ".uri": f"jdbc:sqlite:{work}/catalog.db", ".warehouse": str(work / "warehouse")}


def postgres_catalog(request: pytest.FixtureRequest, work: Path) -> dict[str, str]:
    """Return the settings of a JDBC catalog in a PostgreSQL server."""
    server: PostgresServer = request.getfixturevalue("postgres_server")
    address = {".uri": server.url, ".jdbc.user": server.user, ".jdbc.password": server.password}
    return {**_JDBC, **address, ".warehouse": str(work / "warehouse")}


def rest_catalog(request: pytest.FixtureRequest, _work: Path) -> dict[str, str]:
    """Return the settings of a REST catalog, which knows itself where its tables are."""
    server: IcebergRestCatalog = request.getfixturevalue("iceberg_catalog")
    return {".type": "rest", ".uri": server.url}


_JDBC: Final = {".type": "jdbc", ".jdbc.schema-version": "V1"}


def served(
    spark: SparkSession, feed: Feed, work: Path, address: Mapping[str, str], *columns: ConnectField
) -> BatchRunner:
    """Return a query over a new table of a catalog, which is set up by settings alone."""
    spark = spark.newSession()
    run = runner(spark, feed, work, *columns, backend=ServerBackend)
    given = {"": "org.apache.iceberg.spark.SparkCatalog", ".cache-enabled": "false", **address}
    for setting, value in given.items():
        for session in (spark, run._spark):
            session.conf.set(f"spark.sql.catalog.served{setting}", value)
    return run


@pytest.mark.long
@pytest.mark.parametrize(
    "address",
    [
        sqlite_catalog,
        pytest.param(postgres_catalog, marks=pytest.mark.postgresql),
        pytest.param(rest_catalog, marks=pytest.mark.iceberg_rest),
    ],
    ids=["sqlite", "postgresql", "rest"],
)
def test_table_in_a_catalog_of_a_server(
    address: Callable[[pytest.FixtureRequest, Path], dict[str, str]],
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    tmp_path: Path,
    request: pytest.FixtureRequest,
) -> None:
    """A new table, a MERGE, a batch again, a restart, changed columns."""
    prefix = request.getfixturevalue("prefix")
    run = served(spark, Feed(kafka_broker, prefix), tmp_path, address(request, tmp_path))

    records = run.table.snapshot(prefix, 0, [row(1), row(2)], low=10, high=20)
    run.batch(records, [run.table.end(prefix, 0, high=20, rows=2)])
    run.batch(run.table.change("u", row(1), row(1, 1), pos=100), run.table.change("d", row(2), None, pos=110))
    run.repeat()
    assert run.backend.rows(run.table.schema) == {1: row(1, 1)}

    run.restart()
    renamed = table_schema(prefix, "t", ConnectField("m", connect("int64")), ConnectField("added", connect("int32")))
    changes = (
        ColumnChange(AlterationKind.RENAME, "m", old="n"),
        ColumnChange(AlterationKind.ADD, "added", schema=connect("int32"), value=5),
    )
    run.batch(publish_change(run, 200, renamed, *changes))
    run.batch(run.table.change("c", None, {"id": 3, "name": "x", "m": 1 << 40, "added": 6}, pos=210))
    assert run.backend.rows(run.table.schema) == {
        1: {"id": 1, "name": "name 1", "m": 1, "added": 5},
        3: {"id": 3, "name": "x", "m": 1 << 40, "added": 6},
    }
    # The empty table that the first append branches from, its rows, a MERGE.
    found = snapshots(run.backend.spark, backend_of(run).name())
    assert [LEDGER in each for each in found][:3] == [False, True, True]


@pytest.mark.long
def test_consumer_with_a_rest_catalog(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The consumer gets the catalog from its configuration; the catalog restarts between two runs."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    with IcebergRestCatalog() as server:
        lake = {"": "org.apache.iceberg.spark.SparkCatalog", ".type": "rest", ".uri": server.url}
        catalog = {f"spark.sql.catalog.lake{name}": value for name, value in lake.items()}
        given = {**settings(kafka_broker, prefix, tmp_path, sink="iceberg"), "sink.table": "lake.shop.{table}"}
        given |= catalog
        spark = spark.newSession()
        for name, value in {**catalog, "spark.sql.catalog.lake.cache-enabled": "false"}.items():
            spark.conf.set(name, value)

        feed.write(
            [*table.snapshot(prefix, 0, [row(1), row(2)], low=10, high=20), table.end(prefix, 0, high=20, rows=2)]
        )
        assert (done := run_app(given, tmp_path)).returncode == 0, done.stderr[-3000:]
        assert {each["id"] for each in spark.read.table("lake.shop.t").collect()} == {1, 2}

        server.stop()
        server.start()
        feed.write([*table.change("u", row(1), row(1, 1), pos=100), *table.change("d", row(2), None, pos=110)])
        assert (done := run_app(given, tmp_path)).returncode == 0, done.stderr[-3000:]
        assert [each.asDict() for each in spark.read.table("lake.shop.t").drop("_seq").collect()] == [row(1, 1)]


def test_renamed_and_dropped_columns(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, iceberg_catalog: IcebergRestCatalog
) -> None:
    """With evolve the table, in a REST catalog, has the columns of the source."""
    number, price = ConnectField("n", connect("int32")), ConnectField("price", decimal(9, 2))
    address = {".type": "rest", ".uri": iceberg_catalog.url}
    run = served(spark, Feed(kafka_broker, prefix), tmp_path, address, number, price)
    run.batch(run.table.change("c", None, row(1, 7, price="AJY="), pos=100))

    renamed, wider = ConnectField("m", connect("int64")), ConnectField("price", decimal(12, 2))
    change = ColumnChange(AlterationKind.RENAME, "m", old="n")
    run.batch(publish_change(run, 200, table_schema(prefix, "t", renamed, wider), change))
    run.batch(run.table.change("c", None, {"id": 2, "name": "x", "m": 1 << 40, "price": "AJY="}, pos=210))
    run.batch(publish_change(run, 300, table_schema(prefix, "t", renamed), ColumnChange(AlterationKind.DROP, "price")))
    run.batch(run.table.change("d", {"id": 1, "name": "name 1", "m": 7}, None, pos=310))

    assert run.backend.rows(run.table.schema) == {2: {"id": 2, "name": "x", "m": 1 << 40}}


class Existing(NamedTuple):
    """A table that does not fit, and what is wrong with it."""

    columns: str
    problems: tuple[str, ...]
    rows: str = ""
    """A SELECT of rows."""


_D: Final = ConnectField("d", decimal(9, 2))
_EXISTING: Final[dict[str, Existing]] = {
    "narrow": Existing(
        "id INT, name STRING NOT NULL, n INT, x INT NOT NULL",
        (
            "it lacks the column d",
            "its column id is int, which does not represent all values of bigint",
            "its column name is NOT NULL",
            "its column x, which the source does not have, is NOT NULL without a default",
        ),
    ),
    "kind": Existing(
        "id BIGINT, name STRING, n STRING, d DOUBLE",
        ("its column d is double, which does not represent all values of decimal(9,2)",),
    ),
    "rows": Existing(
        "id BIGINT, name STRING, n INT, d DECIMAL(9,2)",
        ("it has rows that Tailrace did not write",),
        "SELECT 5L id, 'x' name, 1 n, 1.50BD d",
    ),
}


def test_table_that_does_not_fit_is_refused_with_the_statement_that_fixes_it(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Nothing is changed before; after the statement the same batch is written. Columns of others keep their values."""
    feed = Feed(kafka_broker, prefix)
    for case, existing in _EXISTING.items():
        run = runner(spark, feed, tmp_path / case, INTEGER, _D, table=case)
        name = backend_of(run).name(case)
        spark.sql(f"CREATE SCHEMA IF NOT EXISTS {backend_of(run).schema_name}")
        spark.sql(f"CREATE TABLE {name} ({existing.columns}) USING ICEBERG")
        if existing.rows:
            spark.sql(f"INSERT INTO {name} BY NAME {existing.rows}")
        before = spark.read.table(name).schema, len(snapshots(spark, name))

        with pytest.raises(SinkError, match=r"the Iceberg table .* exists and cannot take the rows of shop") as caught:
            run.batch(run.table.change("c", None, row(1, d="AJY="), pos=100))

        assert [problem for problem in existing.problems if problem not in str(caught.value)] == []
        assert (spark.read.table(name).schema, len(snapshots(spark, name))) == before, case
        for statement in str(caught.value.context["statement"]).split("; "):
            spark.sql(statement)
        run.repeat()
        [found] = run.backend.rows(run.table.schema).values()
        assert {column: str(found[column]) for column in ("id", "name", "n", "d")} == {
            "id": "1",
            "name": "name 1",
            "n": "0",
            "d": "1.50",
        }, case


def test_what_iceberg_cannot_hold_is_refused(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A column that every Iceberg table has by itself; a name that another format has taken; no such catalog."""
    feed = Feed(kafka_broker, prefix)
    reserved = runner(spark, feed, tmp_path / "a", ConnectField("_file", connect("string")), table="reserved")
    with pytest.raises(SchemaError, match=r"'_file' of shop.reserved has a name that Iceberg reserves"):
        reserved.batch(reserved.table.change("c", None, {"id": 1, "name": "x", "_file": "y"}, pos=100))

    with pytest.raises(SinkError, match=r"no catalog nowhere, which sink.table names"):
        opened(spark.newSession(), "nowhere.s.{table}")
    with pytest.raises(ConfigError, match=r"sink.table: a name such as catalog.schema.\{table\} is needed"):
        opened(spark, "s.{table}")


def opened(spark: SparkSession, table: str, **changes: str) -> Sink:
    """Return the Iceberg sink of a query."""
    given = {
        "bootstrap.servers": "unused:1",
        "topic.prefix": "p",
        "checkpointLocation": "/unused",
        "sink": "iceberg",
        "sink.table": table,
        **changes,
    }
    context = SinkContext(query_id="q", prefix="p", client={}, runs=SnapshotRuns(NoRecords()))  # type: ignore[arg-type]
    return load_sink("iceberg").open(spark, config.parse(given).sink_options, context)


@pytest.fixture(params=["2", "3"])
def version(request: pytest.FixtureRequest) -> str:
    """The format version of a table."""
    return str(request.param)


def test_upkeep_joins_files_and_keeps_the_ledger(spark: SparkSession, tmp_path: Path, version: str) -> None:
    """Small files become one sorted by key, without deleted positions; all older snapshots can be removed."""
    spark = spark.newSession()
    name = f"iceberg.s_{abs(hash(str(tmp_path)))}.shop_t"
    schema = table_schema("p", "t")
    more = {
        "sink.optimize.batches": "7",
        "sink.properties.format-version": version,
        "sink.properties.history.expire.max-snapshot-age-ms": "1",
        "sink.properties.history.expire.min-snapshots-to-keep": "1",
    }
    sink = opened(spark, name.replace("shop_t", "{database}_{table}"), **more)
    sink.prepare_table(schema)
    for number in range(7):
        keys = spark.range(50 * number, 50 * number + 100).repartition(1)
        sink.write_batch(table_batch(batch_of(keys, 1 + number), number), number)
    assert isinstance(sink, TendedSink)
    assert sink.tend(spark)

    files = spark.sql(f"SELECT content, record_count FROM {name}.files").collect()
    assert [(each["content"], each["record_count"]) for each in files] == [(0, 400)]
    assert spark.read.table(name).agg(fn.min("id"), fn.max("id"), fn.countDistinct("id")).collect()[0][:] == (
        0,
        399,
        400,
    )
    [left] = snapshots(spark, name)
    assert left["operation"] in {"replace", "overwrite"}
    assert opened(spark, name.replace("shop_t", "{database}_{table}")).applied(schema) == sink.applied(schema) != {}


@pytest.mark.long
def test_older_and_lost_checkpoints_lose_and_double_nothing(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A compaction and the removal of snapshots in between."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    backend = IcebergBackend(spark, kafka_broker, tmp_path)
    rows = {i: {"id": i, "name": "snapshot"} for i in range(8)}
    given = {**settings(kafka_broker, prefix, tmp_path, sink="iceberg"), **backend.settings()}
    checkpoint, backup = tmp_path / "checkpoint", tmp_path / "backup"

    def update(key: int, name: str, pos: int) -> None:
        changed = {**rows[key], "name": name}
        feed.write(table.change("u", rows[key], changed, pos=pos))
        rows[key] = changed

    feed.write(table.snapshot(prefix, 0, [rows[i] for i in range(4)], low=100, high=110))
    consume(spark, given)
    shutil.copytree(checkpoint, backup)
    feed.write(table.snapshot(prefix, 1, [rows[i] for i in range(4, 8)], low=120, high=130))
    update(1, "second batch", 200)
    consume(spark, given)
    of_catalog = backend.name().removeprefix("iceberg.")
    spark.sql(f"CALL iceberg.system.rewrite_data_files(table => '{of_catalog}', options => map('rewrite-all', 'true'))")
    feed.write(table.change("d", rows.pop(2), None, pos=210))
    consume(spark, given)

    # Two batches are gone; the next one holds their records and new ones.
    shutil.rmtree(checkpoint)
    shutil.copytree(backup, checkpoint)
    update(5, "after the restore", 300)
    consume(spark, given)
    assert backend.rows(table.schema) == rows

    shutil.rmtree(checkpoint)
    update(6, "after the loss", 400)
    feed.write(table.snapshot(prefix, 2, [{"id": 9, "name": "late"}], low=410, high=420))
    consume(spark, given)
    assert backend.rows(table.schema) == {**rows, 9: {"id": 9, "name": "late"}}


@pytest.mark.long
def test_widened_columns_keep_their_values(spark: SparkSession, tmp_path: Path) -> None:
    """All pairs that the plan widens: Iceberg supports each of them."""
    types = {name: tp.DataType.fromDDL(name) for name in VALUES if name not in {"tinyint", "smallint"}}
    pairs: dict[str, tuple[str, tp.DataType]] = {}
    for (source, of), to in product(types.items(), types.values()):
        wider = common_type(of, to)
        if wider is not None and wider != of and IcebergTable.can_widen(of, wider):
            pairs.setdefault(f"{source}>{wider.simpleString()}", (source, wider))
    schema_name = f"iceberg.s_{abs(hash(str(tmp_path)))}"
    spark.sql(f"CREATE SCHEMA {schema_name}")
    table = IcebergTable(spark, Location(f"{schema_name}.t"))
    names = {f"c{number}": pair for number, pair in enumerate(pairs.values())}
    listed = ", ".join(f"{name} {source}" for name, (source, _) in names.items())
    spark.sql(f"CREATE TABLE {table.sql_name} ({listed}) USING ICEBERG")
    most = max(map(len, VALUES.values()))
    rows = [[(VALUES[source] * most)[number] for source, _ in names.values()] for number in range(most)]
    fields = [tp.StructField(name, types[source]) for name, (source, _) in names.items()]
    spark.createDataFrame(rows, tp.StructType(fields)).writeTo(table.sql_name).append()

    for name, (_, wider) in names.items():
        table.alter(f"ALTER COLUMN {name} TYPE {wider.simpleString()}")

    found = table.rows()
    assert [field.dataType for field in found.schema] == [wider for _, wider in names.values()]
    for number, (name, (source, wider)) in enumerate(names.items()):
        values = sorted(each[name] for each in found.select(name).collect())
        expected = sorted(each[number] for each in rows)
        assert all(same(a, source, b, wider.simpleString()) for a, b in zip(expected, values, strict=True)), name
    assert len(pairs) >= 3
