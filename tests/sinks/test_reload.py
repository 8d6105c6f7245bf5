"""A table whose key changed is loaded again alone, by the command of its hint; it begins there from then on."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer import config, reload
from tailrace.spark_consumer.errors import MissingTopicError
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark import spark_settings
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_history import DeltaHistory
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_new_topics import Tables
from tests.sinks.test_parquet import ParquetBackend
from tests.sinks.test_upsert_kafka import UpsertKafkaBackend
from tests.spark.records import Feed, Table, decimal, table_schema, unscaled

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.long, pytest.mark.timeout(1800)]


class PostgresTables(JdbcBackend):
    """Tables of PostgreSQL."""

    database = "postgresql"


def given_to(run: BatchRunner) -> dict[str, str]:
    """Return the configuration of a query."""
    feed, backend = run.feed, run.backend
    own = {"sink": backend.sink, "bootstrap.servers": feed.broker.bootstrap, "topic.prefix": feed.prefix}
    return {**own, **backend.settings(), "checkpointLocation": run._checkpoint}


def arguments_of(hint: str) -> list[str]:
    """Return the arguments of the command that a hint names."""
    found = re.search(r"run tailrace ([^,;]*) with the configuration", hint)
    assert found is not None, hint
    return shlex.split(found[1])


def run_command(arguments: list[str], given: Mapping[str, str], work: Path) -> str:
    """Run the command with a configuration file, in a process of its own; return its output."""
    file = work / "consumer.json"
    file.write_text(json.dumps({**spark_settings(work), "spark.driver.memory": "1g", **given}), encoding="utf-8")
    named = [str(file) if each == "FILE" else each for each in arguments]
    command = [sys.executable, "-c", "from tailrace.runtime.cli import main; main()", *named]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout


def move_away(run: BatchRunner) -> None:
    """Do what the hint says to the target table."""
    backend, schema = run.backend, run.table.schema
    if isinstance(backend, JdbcBackend):
        backend.sql("DROP TABLE {s}.t")
    elif isinstance(backend, IcebergBackend):
        backend.execute(f"DROP TABLE {backend.name()}")
    elif isinstance(backend, UpsertKafkaBackend):
        topic = f"latest.{schema.topic}"
        admin = backend.broker.admin()
        admin.delete_topics([topic])[topic].result(60)
    else:
        shutil.rmtree(backend.work / "tables" / schema.database / "t")


def parked(backend: SinkBackend, feed: Feed, prefix: str, work: Path) -> tuple[BatchRunner, Table, str]:
    """Return a query with two tables, one of which is parked because its key has changed; and the hint."""
    table, other = (feed.table(table_schema(prefix, name, INTEGER)) for name in ("t", "other"))
    run = BatchRunner(feed, table, backend, work)
    run.others = [other]
    run.batch(*(each.change("c", None, row(1), pos=100) for each in (table, other)))
    table.schema = replace(table.schema, key=("id", "name"))
    records = [[table.published(prefix, version=200)], table.change("c", None, row(2), pos=300)]
    run.batch(*records, other.change("c", None, row(2), pos=310))
    return run, other, run.parked()[table.schema.topic]["hint"]


def read_by_the_producer(run: BatchRunner, other: Table) -> None:
    """Go on in a new process, when the producer has read the table again."""
    table, prefix = run.table, run.feed.prefix
    run.restart()
    table.incremental, table.run = True, "again"
    read = table.snapshot(prefix, 0, [row(1), row(2)], low=400, high=400)
    run.batch(read, table.change("c", None, row(3), pos=410), other.change("c", None, row(3), pos=420))
    run.retry()
    assert run.parked() == {}
    for each in (table, other):
        assert run.backend.rows(each.schema) == {number: row(number) for number in (1, 2, 3)}, each.schema.topic


def test_a_table_with_another_key_begins_behind_the_records_of_the_former_one(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    backend = DeltaBackend(spark, kafka_broker, tmp_path)
    run, other, hint = parked(backend, Feed(kafka_broker, prefix), prefix, tmp_path)
    table = run.table

    move_away(run)
    output = run_command(arguments_of(hint), given_to(run), tmp_path)
    assert output == f"{table.schema.topic} begins at the next start of the query: partition 0: 4\n"
    assert "send the signal execute-snapshot" in hint
    read_by_the_producer(run, other)

    log = tmp_path / "tables" / other.schema.database / "other" / "_delta_log"
    assert len(list(log.glob("*.json"))) == 4, "the other table is not loaded again"
    run.batch(table.change("d", row(3), None, pos=500))
    assert not list((tmp_path / "checkpoint" / "tailrace" / "parked").glob("*.json"))

    # The next target begins there too, also in a process that reads it from the checkpoint.
    for number in (4, 5):
        move_away(run)
        run.restart()
        run.batch(table.change("c", None, row(number), pos=600 + number))
        run.retry()
        assert run.parked() == {}
        assert set(backend.rows(table.schema)) == {1, 2, *range(4, number + 1)}
    # From the earliest offsets it does not: its topic has records with two keys.
    move_away(run)
    reload._reload(run._spark, config.parse(given_to(run)), table.schema.topic, "earliest")
    run.restart()
    run.batch(table.change("c", None, row(6), pos=700), other.change("c", None, row(6), pos=710))
    run.retry()
    assert set(run.parked()) == {table.schema.topic}


@pytest.mark.parametrize("backend", [PostgresTables, IcebergBackend, UpsertKafkaBackend], indirect=True)
def test_all_sinks_name_a_command_that_helps(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The position is beyond the next batch, which Spark bounds: it goes on without the table."""
    run, other, hint = parked(backend(spark, kafka_broker, tmp_path), Feed(kafka_broker, prefix), prefix, tmp_path)
    table = run.table
    run.write(table.change("c", None, row(8), pos=320), table.change("d", row(8), None, pos=330))
    [_, _, topic, *_] = arguments_of(hint)

    move_away(run)
    assert reload._reload(run._spark, config.parse(given_to(run)), topic, "latest") == {0: 8}
    run.restart()
    run.batch(until={0: 5})
    read_by_the_producer(run, other)


def test_partition_that_a_batch_reads_less_far_begins_where_the_table_does(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Spark bounds the first batch: it ends behind the position in one partition, and before it in the other."""
    feed, backend = Feed(kafka_broker, prefix), DeltaHistory(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER), partitions=2)
    run = BatchRunner(feed, table, backend, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100), table.change("c", None, row(2), pos=105))
    behind = table.partition(table.key(row(4)))
    read = run._end[table.schema.topic][str(behind)]
    run.write(table.change("c", None, row(3), pos=110), table.change("c", None, row(4), pos=111))

    move_away(run)
    reload._reload(run._spark, config.parse(given_to(run)), table.schema.topic, "latest")
    run.restart()
    run.batch(table.change("c", None, row(5), pos=120), until={behind: read})
    run.batch(table.change("c", None, row(6), pos=130))
    run.retry()

    assert run.parked() == {}
    assert set(backend.rows(table.schema)) == {5, 6}


def test_earliest_loads_all_records(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Splits of the snapshot are counted from zero; what is not a table of a query is refused."""
    feed, backend = Feed(kafka_broker, prefix), DeltaBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    given: dict[str, Any] = given_to(run)
    with pytest.raises(ConfigError, match=r"has read a topic: name the configuration with which"):
        reload._reload(run._spark, config.parse(given), table.schema.topic, "earliest")
    run.batch(table.snapshot(prefix, 0, [row(1), row(2)], low=100, high=100), table.change("c", None, row(3), pos=110))
    with pytest.raises(ConfigError, match=r"not the topic of a table that the query reads, by topic\.prefix"):
        reload._reload(run._spark, config.parse(given), f"{prefix}.tailrace.watermarks", "earliest")
    missing = f"{prefix}.shop.missing"
    with pytest.raises(MissingTopicError, match=rf"{missing} does not exist\s+hint: .*, which creates the topic"):
        reload._reload(run._spark, config.parse(given), missing, "earliest")
    [state] = (tmp_path / "checkpoint" / "tables" / table.schema.topic).glob("*.json")

    move_away(run)
    reload._reload(run._spark, config.parse(given), table.schema.topic, "earliest")
    assert not state.exists()
    run.restart()
    run.batch(table.change("c", None, row(4), pos=120))
    run.retry()

    assert run.parked() == {}
    assert backend.rows(table.schema) == {number: row(number) for number in (1, 2, 3, 4)}


def test_a_column_whose_type_spark_lacks_is_left_behind_with_its_records(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """To exclude it is not enough: records that the topic has name its type."""
    feed, backend = Feed(kafka_broker, prefix), DeltaBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER, ConnectField("d", decimal(65, 30))))
    other = feed.table(table_schema(prefix, "other", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.others = [other]
    run.batch(table.change("c", None, row(1, d=unscaled(1)), pos=100), other.change("c", None, row(1), pos=100))
    table.schema = table_schema(prefix, "t", INTEGER)
    records = [[table.published(prefix, version=200)], table.change("c", None, row(2), pos=300)]
    run.batch(*records, other.change("c", None, row(2), pos=310))
    run.retry()
    parked = run.parked()[table.schema.topic]
    assert parked["reason"].startswith("column 'd' is a decimal with more digits")
    assert parked["hint"].startswith(
        "set decimal.handling.mode=string in the producer, or exclude the column with column"
    )
    [_, _, topic, _, begin, *_] = arguments_of(parked["hint"])

    assert begin == "latest"
    reload._reload(run._spark, config.parse(given_to(run)), topic, "latest")
    read_by_the_producer(run, other)


def test_records_that_were_held_are_removed(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed, backend = Feed(kafka_broker, prefix), DeltaHistory(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.batch(table.snapshot(prefix, 0, [row(1)], low=100, high=100), table.change("c", None, row(2), pos=110))
    held = tmp_path / "checkpoint" / "carry-over" / table.schema.topic
    assert len(list(held.iterdir())) == 1

    reload._reload(run._spark, config.parse(given_to(run)), table.schema.topic, "earliest")

    assert not held.exists()


@pytest.mark.parametrize("backend", [DeltaHistory, ParquetBackend], indirect=True)
def test_a_changelog_goes_on_in_a_new_topic_of_the_name(
    backend: type[SinkBackend], spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The checkpoint has the former topic, also if the target is moved away."""
    tables = Tables(backend(spark, kafka_broker, tmp_path), prefix)
    tables.batch(tables.changes(tables.table, 1))
    tables.delete()
    tables.create(2, 3)
    tables.batch()
    assert "was deleted and created again" in tables.reason()
    [_, _, topic, _, begin, *_] = arguments_of(tables.run.parked()[tables.topic]["hint"])
    assert topic == tables.topic
    assert begin == "earliest"

    folder = "tables" if isinstance(tables.backend, DeltaHistory) else "changelogs"
    shutil.rmtree(tmp_path / folder / "shop" / "gone")
    reload._reload(tables.run._spark, config.parse(given_to(tables.run)), topic, "earliest")
    tables.run.restart()
    tables.batch(tables.changes(tables.table, 4, n=1))
    tables.run.retry()

    assert tables.reason() == ""
    assert tables.rows() == {2: 1, 3: 1, 4: 1}


def test_a_table_in_another_shape_is_loaded_when_the_former_one_is_moved_away(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed, backend = Feed(kafka_broker, prefix), DeltaBackend(spark, kafka_broker, tmp_path)
    table, other = (feed.table(table_schema(prefix, name, INTEGER)) for name in ("t", "other"))
    first = BatchRunner(feed, table, backend, tmp_path)
    first.others = [other]
    first.batch(*(each.change("c", None, row(1), pos=100) for each in (table, other)))

    run = BatchRunner(feed, table, backend, tmp_path, {"sink.shape.overrides": r"shop\.t:history"})
    run.others, run._number, run._end = [other], first._number, first._end
    run.restart()
    run.batch(*(each.change("c", None, row(2), pos=110) for each in (table, other)))
    hint = run.parked()[table.schema.topic]["hint"]
    assert hint.endswith(
        "; or move the Delta table away: the next attempt loads it again from its topic, and no other table"
    )

    move_away(run)
    run.retry()
    assert run.parked() == {}
    rows = spark.read.format("delta").load(str(tmp_path / "tables" / "shop" / "t")).collect()
    assert sorted(each["id"] for each in rows) == [1, 2]
