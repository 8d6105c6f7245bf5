"""A target that is older than the query: what was undone is read again, also with an empty checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import Producer, TopicPartition

from tailrace.runtime.errors import TailraceError
from tailrace.schemas.alteration import AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import IncompleteTopicError, SinkError
from tailrace.spark_consumer.sink.kafka import newest_records
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import ChangelogBackend, SinkBackend
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner, CutOffError
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_history import DeltaHistory, IcebergHistory, MySqlHistory, PostgresHistory
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_table_versions import IcebergVersions, PostgresVersions, Versions, versions_of
from tests.sinks.test_upsert_kafka import UpsertKafkaBackend
from tests.spark.records import Feed, Message, Row, Table, connect, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(1800)

ROLLED_BACK = "was rolled back to rows from before an ALTER TABLE"


def start(
    backend: type[SinkBackend],
    spark: SparkSession,
    broker: KafkaBroker,
    prefix: str,
    work: Path,
    *,
    partitions: int = 1,
) -> tuple[BatchRunner, Table]:
    """Return a query over a new table."""
    feed = Feed(broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER), partitions=partitions)
    return BatchRunner(feed, table, backend(spark, broker, work), work), table


def from_the_beginning(run: BatchRunner, work: Path) -> BatchRunner:
    """Return a query with an empty checkpoint over the same table and target."""
    found = BatchRunner(run.feed, run.table, run.backend, work)
    found._end = {topic: dict.fromkeys(parts, 0) for topic, parts in found._end.items()}
    return found


def directory(run: BatchRunner) -> Path:
    """Return the directory of a Delta table."""
    return run.backend.work / "tables" / "shop" / "t"


def add_extra(table: Table, prefix: str, name: str = "extra", pos: int = 200) -> list[Message]:
    """Return the records of ALTER TABLE t ADD extra INT DEFAULT 7."""
    extra = ConnectField(name, connect("int32"))
    table.schema = replace(table.schema, columns=(*table.schema.columns, extra))
    added = ColumnChange(AlterationKind.ADD, name, schema=extra.schema, value=7)
    return [table.published(prefix, pos), table.alteration(prefix, pos, added)]


def saved(run: BatchRunner, procedure: str = "rollback_to_snapshot") -> Callable[[], object]:
    """Return what sets the target back to what it is now; ``procedure`` is that of Iceberg."""
    if isinstance(run.backend, IcebergBackend):
        name = run.backend.name()
        snapshots = run.backend.spark.sql(
            f"SELECT snapshot_id FROM {name}.snapshots ORDER BY committed_at DESC LIMIT 1"
        )
        number = snapshots.collect()[0][0]
        catalog, _, table = name.partition(".")
        return lambda: run.backend.execute(f"CALL {catalog}.system.{procedure}('{table}', {number})")
    if isinstance(run.backend, JdbcBackend):
        target = run.backend
        tables = {"t": "t_copy", "tailrace_ledger": "ledger_copy"}
        for table, copy in tables.items():
            target.sql(f"CREATE TABLE {{s}}.{copy} (LIKE {{s}}.{table})")  # with GTIDs, MySQL refuses it AS SELECT
            target.sql(f"INSERT INTO {{s}}.{copy} SELECT * FROM {{s}}.{table}")

        def copy_back() -> None:
            for table, copy in tables.items():
                target.sql(f"DELETE FROM {{s}}.{table}")
                target.sql(f"INSERT INTO {{s}}.{table} SELECT * FROM {{s}}.{copy}")

        return copy_back
    if isinstance(run.backend, UpsertKafkaBackend):
        topic = f"ledger.{run.feed.prefix}"
        client = {"kafka.bootstrap.servers": run.feed.broker.bootstrap}
        [entry] = newest_records(run.backend.spark, client, topic).collect()

        def write_back() -> None:
            producer = Producer({"bootstrap.servers": run.feed.broker.bootstrap})
            producer.produce(topic, key=bytes(entry["key"]), value=entry["value"])
            assert producer.flush(60) == 0

        return write_back
    path, backup = directory(run), run.backend.work / "backup"
    shutil.copytree(path, backup)

    def put_back() -> None:
        shutil.rmtree(path)
        shutil.copytree(backup, path)

    return put_back


class OnPostgres(JdbcBackend):
    """Tables of PostgreSQL."""

    database = "postgresql"


class OnMySql(JdbcBackend):
    """Tables of MySQL."""

    database = "mysql"


class DeltaVersions(Versions, DeltaBackend):
    """Versions in Delta tables at a path."""

    def versions(self, schema: TableSchema) -> dict[int, list[Row]]:
        """Return the versions by key."""
        return versions_of(self.spark.read.format("delta").load(str(self.work / "tables" / "shop" / schema.table)))


LONG = [IcebergBackend, OnPostgres, OnMySql, UpsertKafkaBackend]
LONG_CHANGELOGS = [IcebergHistory, PostgresHistory, MySqlHistory, DeltaVersions, IcebergVersions, PostgresVersions]


@pytest.mark.parametrize(
    "backend", [DeltaBackend, *(pytest.param(each, marks=pytest.mark.long) for each in LONG)], indirect=True
)
def test_older_copy_of_a_target_gets_what_it_lacks(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Also in a partition without a new record."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path, partitions=2)
    run.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=105))
    put_back = saved(run)
    run.batch(table.change("c", None, row(3), pos=110), table.change("d", row(2), None, pos=111))
    put_back()
    run.restart()

    run.batch(table.change("c", None, row(4), pos=120))
    assert run.parked() == {}
    run.retry()

    expected = {key: row(key) for key in (1, 3, 4)}
    assert run.backend.rows(table.schema) == expected
    put_back()
    other = from_the_beginning(run, tmp_path / "second")
    other.batch()
    assert run.backend.rows(table.schema) == expected


@pytest.mark.parametrize(
    "backend", [DeltaHistory, *(pytest.param(each, marks=pytest.mark.long) for each in LONG_CHANGELOGS)], indirect=True
)
def test_older_copy_of_a_changelog_gets_what_it_lacks(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The copy is of a time when rows were held: they are before what the ledger has."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path)
    end = hold_a_row(run, table, prefix)
    put_back = saved(run)
    run.batch([end], table.change("d", row(2), None, pos=110))
    put_back()
    run.restart()
    run.batch(table.change("c", None, row(4), pos=120))
    assert run.parked() == {}
    run.retry()
    expected = {key: row(key) for key in (0, 1, 4, 5)}
    assert run.backend.rows(table.schema) == expected

    # With the query running, after batches without a row to write.
    run.feed.write(table.change("c", None, row(8), pos=125), commit=False)
    run.batch()
    run.batch(table.change("c", None, row(6), pos=130))
    put_back()
    other = run.feed.table(table_schema(prefix, "other", INTEGER))
    run.others.append(other)
    run.batch(table.change("c", None, row(7), pos=140), other.change("c", None, row(1), pos=141))
    assert "another process has written to" in run.parked()[table.schema.topic]["reason"]
    run.retry()
    expected |= {key: row(key) for key in (6, 7)}
    assert run.parked() == {}
    assert run.backend.rows(table.schema) == expected
    if isinstance(run.backend, ChangelogBackend):
        kinds = {key: [kind for kind, _ in found] for key, found in run.backend.changelog(table.schema).items()}
        assert kinds == {**{key: ["+I"] for key in expected}, 2: ["+I", "-D"]}


def test_restored_delta_table_goes_on_with_the_ledger_of_the_version(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """An ALTER TABLE is undone too: the values of its column are filled again."""
    run, table = start(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    name = f"delta.`{directory(run)}`"
    run.batch(table.change("c", None, row(1), pos=100))
    run.batch(table.change("c", None, row(2), pos=110))
    good = spark.sql(f"DESCRIBE HISTORY {name} LIMIT 1").collect()[0]
    run.batch(
        add_extra(table, prefix),
        table.change("c", None, {**row(3), "extra": 9}, pos=210),
        table.change("u", row(1), {**row(1, 77), "extra": 7}, pos=211),
    )
    run.batch(table.change("d", row(2), None, pos=220))

    # With the query running: it notices the commit of somebody else.
    run.backend.execute(f"RESTORE TABLE {name} TO VERSION AS OF {good['version']}")
    with pytest.raises(TailraceError, match=r"another process has written to .* or restored it"):
        run.batch(table.change("c", None, {**row(4), "extra": 10}, pos=230))
    run.repeat()
    run.retry()
    expected = {1: {**row(1, 77), "extra": 7}, 3: {**row(3), "extra": 9}, 4: {**row(4), "extra": 10}}
    assert run.parked() == {}
    assert run.backend.rows(table.schema) == expected

    # By time, and with an empty checkpoint.
    run.backend.execute(f"RESTORE TABLE {name} TO TIMESTAMP AS OF '{good['timestamp']}'")
    other = from_the_beginning(run, tmp_path / "second")
    other.batch()
    assert run.backend.rows(table.schema) == expected


def test_copy_with_the_version_that_is_known_gets_what_it_lacks(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Put back while the query runs: with a commit of somebody else, its version is the one that was read last."""
    run, table = start(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    put_back = saved(run)
    run.batch(table.change("c", None, row(2), pos=110))
    put_back()
    run.backend.execute(f"UPDATE delta.`{directory(run)}` SET n = n WHERE id = 1")

    with pytest.raises(TailraceError, match=r"another process has written to .* or restored it"):
        run.batch(table.change("c", None, row(3), pos=120))
    run.repeat()
    run.retry()

    assert run.parked() == {}
    assert run.backend.rows(table.schema) == {key: row(key) for key in (1, 2, 3)}


def test_target_that_is_moved_away_is_loaded_from_the_beginning(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    run, table = start(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    shutil.rmtree(directory(run))
    run.restart()

    run.batch(table.change("c", None, row(2), pos=110))
    run.retry()
    assert run.backend.rows(table.schema) == {1: row(1), 2: row(2)}

    # Kafka does not have its records any more.
    shutil.rmtree(directory(run))
    beginning = TopicPartition(table.schema.topic, 0, 1)
    admin = kafka_broker.admin()
    admin.delete_records([beginning])[beginning].result(60)
    run.restart()
    run.batch(table.change("c", None, row(3), pos=120))
    with pytest.raises(IncompleteTopicError, match="has lost its beginning"):
        run.retry()
    assert set(run.parked()) == {table.schema.topic}


@pytest.mark.parametrize(
    "backend",
    [DeltaBackend, *(pytest.param(each, marks=pytest.mark.long) for each in (OnPostgres, DeltaHistory))],
    indirect=True,
)
def test_copy_of_the_rows_alone_gets_what_it_lacks(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """It does not tell what it has applied, as CREATE TABLE AS SELECT, or a dump of one table."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=105))
    put_back = saved(run)
    if not isinstance(run.backend, JdbcBackend):
        copy = tmp_path / "copy"
        spark.read.format("delta").load(str(directory(run))).write.format("delta").save(str(copy))
    run.batch(table.change("c", None, row(3), pos=110), table.change("d", row(2), None, pos=111))
    if isinstance(run.backend, JdbcBackend):
        put_back()
        run.backend.sql("DELETE FROM {s}.tailrace_ledger")
    else:
        shutil.rmtree(directory(run))
        shutil.move(copy, directory(run))
    run.restart()

    run.batch(table.change("c", None, row(4), pos=120))
    assert run.parked() == {}
    run.retry()
    assert run.parked() == {}
    assert run.backend.rows(table.schema) == {key: row(key) for key in (1, 3, 4)}


@pytest.mark.parametrize("shape", ["soft-delete", pytest.param("history", marks=pytest.mark.long)])
def test_backlog_of_one_partition_finds_a_target_behind_in_the_other(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, shape: str
) -> None:
    """Both are loaded by the next attempt, and not only by the next record."""
    first, table = start(DeltaBackend, spark, kafka_broker, prefix, tmp_path, partitions=2)
    first.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=105))
    run = BatchRunner(first.feed, table, first.backend, tmp_path, {"sink.shape.overrides": rf"shop\.t:{shape}"})
    run._number, run._end = first._number, first._end
    other = run.feed.table(table_schema(prefix, "other", INTEGER))
    run.others.append(other)
    run.restart()
    run.batch(table.change("c", None, row(3), pos=110), other.change("c", None, row(3), pos=111))
    assert "the next attempt loads it again" in run.parked()[table.schema.topic]["hint"]

    shutil.rmtree(directory(run))
    run.retry()

    assert run.parked() == {}
    rows = spark.read.format("delta").load(str(directory(run))).collect()
    assert sorted(each["id"] for each in rows) == [1, 2, 3]


@pytest.mark.parametrize("backend", [DeltaBackend, pytest.param(DeltaHistory, marks=pytest.mark.long)], indirect=True)
def test_target_of_a_table_that_may_lack_rows_is_loaded_from_where_the_table_begins(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """As with startingOffsets=latest; then Kafka does not have its first records any more."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path)
    run.accept_incomplete = True
    run.write(table.change("c", None, row(1), pos=100))
    run.seek({0: 2})
    run.restart()
    run.batch(table.change("c", None, row(2), pos=110))
    shutil.rmtree(directory(run))
    run.restart()
    run.batch(table.change("c", None, row(3), pos=120))
    run.retry()
    assert run.parked() == {}
    assert set(run.backend.rows(table.schema)) == {2, 3}

    other = from_the_beginning(run, tmp_path / "second")
    other.accept_incomplete = True
    other.restart()
    shutil.rmtree(directory(run))
    other.batch()
    assert set(run.backend.rows(table.schema)) == {1, 2, 3}
    shutil.rmtree(directory(run))
    beginning = TopicPartition(table.schema.topic, 0, 2)
    admin = kafka_broker.admin()
    admin.delete_records([beginning])[beginning].result(60)
    other.restart()
    other.batch(table.change("c", None, row(4), pos=130))
    other.retry()
    assert other.parked() == {}
    assert set(run.backend.rows(table.schema)) == {2, 3, 4}

    # Kafka has removed where the table of the first query begins.
    shutil.rmtree(directory(run))
    beginning = TopicPartition(table.schema.topic, 0, 4)
    admin.delete_records([beginning])[beginning].result(60)
    run.restart()
    run.batch(table.change("c", None, row(5), pos=140))
    run.retry()
    assert run.parked() == {}
    assert set(run.backend.rows(table.schema)) == {3, 4, 5}


BEGINS_LATER = [IcebergBackend, OnPostgres, UpsertKafkaBackend, DeltaHistory, PostgresHistory, DeltaVersions]


@pytest.mark.parametrize(
    "backend", [DeltaBackend, *(pytest.param(each, marks=pytest.mark.long) for each in BEGINS_LATER)], indirect=True
)
def test_query_that_begins_behind_what_the_target_has_goes_back(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A new query with startingOffsets=latest, and a checkpoint whose offsets are later than what was processed."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path, partitions=2)
    run.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=105))
    run.write(table.change("c", None, row(3), pos=110), table.change("d", row(2), None, pos=111))

    other = BatchRunner(run.feed, table, run.backend, tmp_path / "second")  # begins where the topic ends
    other.accept_incomplete = True
    other.restart()
    other.batch(table.change("c", None, row(4), pos=120))
    other.retry()
    assert other.parked() == {}
    expected = {key: row(key) for key in (1, 3, 4)}
    assert run.backend.rows(table.schema) == expected

    other.write(table.change("c", None, row(5), pos=130), table.change("c", None, row(6), pos=131))
    other.seek({number: int(end) for number, end in enumerate(other._ends()[table.schema.topic].values())})
    other.restart()
    other.batch(table.change("d", row(4), None, pos=140))
    other.retry()
    assert other.parked() == {}
    assert run.backend.rows(table.schema) == {key: row(key) for key in (1, 3, 5, 6)}


@pytest.mark.long
def test_rows_that_a_rollback_brings_back_go_with_the_truncate_event(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Iceberg keeps the properties of the table, which say that it was truncated."""
    run, table = start(IcebergBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    put_back = saved(run)
    run.batch(table.truncate(pos=110))
    run.batch(table.change("c", None, row(2), pos=120))
    put_back()
    run.restart()
    run.batch(table.change("c", None, row(3), pos=130))
    run.retry()

    assert run.backend.rows(table.schema) == {2: row(2), 3: row(3)}


SHORT_OF_A_STEP = [
    DeltaBackend,
    OnPostgres,
    DeltaHistory,
    PostgresHistory,
    MySqlHistory,
    DeltaVersions,
    PostgresVersions,
]


@pytest.mark.parametrize(
    "backend",
    [IcebergBackend, IcebergHistory, *(pytest.param(each, marks=pytest.mark.long) for each in SHORT_OF_A_STEP)],
    indirect=True,
)
def test_older_copy_loses_the_rows_of_a_former_table(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The record of the new table came without a row: offsets do not tell that the copy is older."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=105))
    put_back = saved(run)
    run.batch([table.created(prefix, pos=110)])
    assert run.backend.rows(table.schema) == {}
    put_back()
    run.restart()
    run.batch(table.change("c", None, row(3), pos=120))
    run.retry()
    assert run.backend.rows(table.schema) == {3: row(3)}

    put_back()
    run.restart()
    run.batch(table.change("c", None, row(4), pos=130))
    run.retry()
    assert run.backend.rows(table.schema) == {3: row(3), 4: row(4)}


@pytest.mark.long
@pytest.mark.parametrize("backend", [DeltaHistory, *LONG_CHANGELOGS], indirect=True)
def test_older_copy_knows_the_truncation_that_it_has_had(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """It is older than the states of the query; the event is in another partition, and before what is read again."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path, partitions=2)
    table.last_split = 9
    run.batch([replace(each, partition=0) for each in table.change("c", None, row(1), pos=100)])
    run.batch([replace(each, partition=1) for each in table.truncate(pos=200)])
    put_back = saved(run)
    run.batch(split(table, prefix, 0, 5, low=300))
    run.batch(split(table, prefix, 1, 6, low=310))
    put_back()
    run.restart()

    run.batch([replace(each, partition=0) for each in table.change("c", None, row(2), pos=150)])
    run.retry()

    assert run.parked() == {}
    assert run.backend.rows(table.schema) == {5: row(5), 6: row(6)}


@pytest.mark.parametrize(
    "backend", [DeltaHistory, *(pytest.param(each, marks=pytest.mark.long) for each in LONG_CHANGELOGS)], indirect=True
)
def test_older_copy_gets_the_rows_that_a_certificate_released(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """It came without a record: the offsets of a copy from before are those of the table."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path)
    end = hold_a_row(run, table, prefix)
    run.batch(table.change("c", None, row(3), pos=106))
    put_back = saved(run)
    run.batch([end])
    expected = {key: row(key) for key in (0, 1, 2, 3, 5)}
    assert run.backend.rows(table.schema) == expected
    for key in (6, 7):
        put_back()
        run.restart()
        run.batch(table.change("c", None, row(key), pos=100 + 10 * key))
        assert run.parked() == {}
        run.retry()
        expected[key] = row(key)
        assert run.backend.rows(table.schema) == expected
    if isinstance(run.backend, ChangelogBackend):
        kinds = {key: [kind for kind, _ in found] for key, found in run.backend.changelog(table.schema).items()}
        assert kinds == {key: ["+I"] for key in expected}


@pytest.mark.long
def test_rollback_behind_an_alter_parks_the_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Iceberg keeps the column, and what says that its value is filled. Without the older rows, the table is loaded."""
    run, table = start(IcebergBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    put_back = saved(run)
    run.batch(add_extra(table, prefix), table.change("c", None, {**row(3), "extra": 9}, pos=210))
    forward = saved(run, "set_current_snapshot")
    put_back()
    # With the query running, it does not go on to a later ALTER TABLE.
    later = add_extra(table, prefix, "more", 220)
    with pytest.raises(SinkError, match=ROLLED_BACK):
        run.batch(later, table.change("c", None, {**row(4), "extra": 10, "more": 1}, pos=230))
    run.repeat()
    with pytest.raises(SinkError, match=ROLLED_BACK):
        run.retry()
    forward()
    run.retry()

    assert run.parked() == {}
    assert {key: each["extra"] for key, each in run.backend.rows(table.schema).items()} == {1: 7, 3: 9, 4: 10}


@pytest.mark.long
def test_rollback_behind_an_alter_is_found_when_its_snapshot_is_expired(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Also behind a commit of somebody else; a snapshot that has expired behind later ones is no rollback."""
    run, table = start(IcebergBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    put_back = saved(run)
    run.batch(add_extra(table, prefix), table.change("c", None, {**row(3), "extra": 9}, pos=210))
    assert isinstance(run.backend, IcebergBackend)
    name = run.backend.name()
    [filled] = [
        each["value"].split()[0]
        for each in spark.sql(f"SHOW TBLPROPERTIES {name}").collect()
        if each["key"] == "tailrace.alteration.snapshot"
    ]
    expire = f"CALL iceberg.system.expire_snapshots(table => '{name}', snapshot_ids => ARRAY({filled}L))"
    forward = saved(run, "set_current_snapshot")
    put_back()
    run.backend.execute(f"DELETE FROM {name} WHERE id = 99")
    run.backend.execute(expire)
    run.restart()
    run.batch(table.change("c", None, {**row(4), "extra": 10}, pos=230))
    with pytest.raises(SinkError, match=ROLLED_BACK):
        run.retry()

    forward()
    run.retry()
    assert {key: each["extra"] for key, each in run.backend.rows(table.schema).items()} == {1: 7, 3: 9, 4: 10}


@pytest.mark.long
def test_batch_that_finds_a_target_behind_counts_its_own_range(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The batch has stored a state, and its records are the last ones of those that are read again."""
    run, table = start(DeltaHistory, spark, kafka_broker, prefix, tmp_path)
    table.last_split = 9
    run.batch(split(table, prefix, 0, 0, low=10), table.change("c", None, row(1), pos=100))
    put_back = saved(run)
    run.batch(table.truncate(pos=110))
    run.batch(table.change("c", None, row(2), pos=120))
    put_back()
    run.restart()

    run.batch(split(table, prefix, 1, 5, low=130))
    run.retry()

    assert isinstance(run.backend, ChangelogBackend)
    kinds = {key: [kind for kind, _ in found] for key, found in run.backend.changelog(table.schema).items()}
    assert kinds == {0: ["+I", "-D"], 1: ["+I", "-D"], 2: ["+I"], 5: ["+I"]}


def test_batch_without_records_moves_the_offsets(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """No target is behind after a truncate event alone in a load, an aborted transaction, or changes without effect."""
    run, table = start(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    table.last_split = 9
    run.batch(split(table, prefix, 0, 5, low=10))
    run.batch(table.truncate(pos=50))
    run.restart()
    run.batch(table.change("c", None, row(1), pos=100))
    assert not list((tmp_path / "checkpoint" / "tailrace" / "parked").glob("*.json"))
    run.batch(table.change("d", row(7), None, pos=110))
    run.restart()
    run.feed.write(table.change("c", None, row(8), pos=120), commit=False)
    run.batch()
    run.restart()
    run.batch(table.change("c", None, row(2), pos=130))

    assert run.backend.rows(table.schema) == {1: row(1), 2: row(2)}


def split(table: Table, prefix: str, number: int, key: int, *, low: int) -> list[Message]:
    """Return the records of a split with one row."""
    found = table.snapshot(prefix, number, [row(key)], low=low, high=low + 5)
    return [*found, table.end(prefix, number, high=low + 5, rows=1)]


def hold_a_row(run: BatchRunner, table: Table, prefix: str) -> Message:
    """Let a changelog have the rows 0 to 2, and hold the row 5; return the certificate that releases it."""
    table.last_split = 9
    run.batch(split(table, prefix, 0, 0, low=10), table.change("c", None, row(1), pos=100))
    *held, end = split(table, prefix, 1, 5, low=20)
    run.batch(held, table.change("c", None, row(2), pos=105))
    return end


@pytest.mark.parametrize("backend", [DeltaBackend, pytest.param(IcebergBackend, marks=pytest.mark.long)])
def test_batch_that_was_applied_in_part_is_completed_without_its_checkpoint(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The append was committed, the MERGE was not; the next batch has other bounds."""
    run, table = start(backend, spark, kafka_broker, prefix, tmp_path)
    table.last_split = 9
    run.batch(split(table, prefix, 0, 1, low=10))
    with pytest.raises(CutOffError):
        run.batch(
            split(table, prefix, 1, 2, low=20), table.change("u", row(1), row(1, 5), pos=100), cut=("before", "_merge")
        )

    other = from_the_beginning(run, tmp_path / "second")
    other.batch(split(table, prefix, 2, 3, low=30), table.change("d", row(3), None, pos=110))

    assert run.backend.rows(table.schema) == {1: row(1, 5), 2: row(2)}
