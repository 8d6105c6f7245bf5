"""Small tables of a running query are processed in the driver; the target is as after queries."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from structlog.testing import capture_logs

from tailrace.schemas.alteration import AlterationKind, ColumnChange
from tailrace.schemas.connect import ConnectField
from tailrace.spark_consumer import in_driver as driver
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.sink import delta_driver_rewrite
from tailrace.spark_consumer.sink.delta_log import LogTransaction
from tailrace.spark_consumer.source.group_reader import GroupReader
from tailrace.spark_consumer.tables import driver_decoder
from tailrace.spark_consumer.tables.driver_decoder import DriverDecoder, decoder_kb
from tests.embedded.kafka import KafkaBroker
from tests.spark.driver_batches import count_driver_batches
from tests.spark.records import Feed, Message, Row, Table, connect, table_schema
from tests.spark.running import consume, run_query, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.monitor.status import Status
    from tailrace.spark_consumer.source.group_reader import RawRows
    from tailrace.spark_consumer.source.ranges import TopicRange

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

TABLES = 4
"""On one thread two of them share a read."""
BATCHES = 6
PER_BATCH = 8


def changes(chosen: random.Random, table: Table, number: int, rows: dict[int, Row]) -> Iterator[Message]:
    """Yield some changes of a table, and apply them to its rows; a tombstone follows each delete."""
    for index in range(PER_BATCH - 2):
        key = chosen.randrange(4)
        pos, before = 1000 * number + index, rows.get(key)
        row = {"id": key, "name": f"{number}.{index}", **{f.name: pos for f in table.schema.columns[2:]}}
        yield from table.change("u" if before else "c", before, row, pos=pos)
        rows[key] = row
    gone = chosen.choice(sorted(rows))
    yield from table.change("d", rows.pop(gone), None, pos=1000 * number + 90)


class Written:
    """Tables whose topics need several batches."""

    def __init__(self, broker: KafkaBroker, prefix: str, tmp_path: Path) -> None:
        self.tmp_path, self.prefix = tmp_path, prefix
        self.feed = Feed(broker, prefix)
        schemas = [
            table_schema(prefix, f"t{n}", *(ConnectField(f"c{i}", connect("int32")) for i in range(n)))
            for n in range(TABLES)
        ]
        self.tables = [self.feed.table(schema) for schema in schemas]
        self.rows: list[dict[int, Row]] = [{} for _ in schemas]
        # Of a transaction Spark sees one more offset, of its end.
        most = TABLES * (PER_BATCH + 1)
        self.given = settings(broker, prefix, tmp_path, maxOffsetsPerTrigger=most, tailrace__table__threads=1)
        for number in range(BATCHES):
            self.write(number)

    def write(self, number: int) -> None:
        """Write one more transaction for each table."""
        chosen = random.Random(number)
        for table, rows in zip(self.tables, self.rows, strict=True):
            self.feed.write(changes(chosen, table, number, rows))

    def check(self, spark: SparkSession) -> None:
        """Compare all tables."""
        found = [table_rows(spark, self.tmp_path, table.schema.table) for table in self.tables]
        assert found == self.rows


@pytest.fixture(name="written")
def written_topics(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> Written:
    return Written(kafka_broker, prefix, tmp_path)


@pytest.fixture(name="in_driver")
def batches_in_driver(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """Count the batches of each table that the driver has written."""
    return count_driver_batches(monkeypatch)


@contextmanager
def processes_started(spark: SparkSession, file: Path) -> Iterator[list[str]]:
    """Yield a list that has, after the block, the commands that the JVM has started in it; it is recorded in a file."""
    found: list[str] = []
    recording = java_class(spark, "jdk.jfr.Recording")()
    recording.enable("jdk.ProcessStart")
    recording.start()
    yield found
    recording.stop()
    path = java_class(spark, "java.io.File")(str(file)).toPath()
    recording.dump(path)
    recording.close()
    found += [
        event.getString("command") for event in java_class(spark, "jdk.jfr.consumer.RecordingFile").readAllEvents(path)
    ]


def count_reads(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Return a list that gets the number of tables of each read of the driver from now on."""
    found: list[int] = []
    read = GroupReader.read

    def counted(self: GroupReader, spark: SparkSession, ranges: Sequence[TopicRange]) -> dict[str, RawRows]:
        by_topic = read(self, spark, ranges)
        found.append(len(by_topic))
        return by_topic

    monkeypatch.setattr(GroupReader, "read", counted)
    return found


def test_a_running_query(
    spark: SparkSession, written: Written, in_driver: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the third batch of a table on; the ledger has every batch once."""
    reads = count_reads(monkeypatch)
    with processes_started(spark, written.tmp_path / "processes.jfr") as commands:
        consume(spark, written.given)
    written.check(spark)
    assert all(in_driver[f"t{number}"] >= BATCHES - 3 for number in range(TABLES))
    assert sum(reads) >= TABLES * (BATCHES - 3)
    assert max(reads) == 2
    for number in range(TABLES):
        path = written.tmp_path / "tables" / "shop" / f"t{number}"
        commits = [row["userMetadata"] for row in spark.sql(f"DESCRIBE HISTORY delta.`{path}`").collect()]
        entries = [text for text in commits if text]
        assert len(entries) == len(set(entries)) >= BATCHES
        # Without the checksum file of its last commit a query would list the files of a table.
        names = {file.name for file in (path / "_delta_log").iterdir()}
        versions = {name.removesuffix(".json") for name in names if name.endswith(".json")}
        assert {f"{version}.crc" for version in versions} <= names
        last = f"{max(versions)}.crc"
        assert not [text for text in commands if "readlink" in text and f"t{number}/" in text and last in text]
    assert [text for text in commands if "readlink" in text]


def test_records_behind_an_alteration(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, in_driver: Counter[str]
) -> None:
    """Only records with another schema, or before the last ALTER, need a query; also with several sinks."""
    feed, rows = Feed(kafka_broker, prefix), [dict[int, Row]() for _ in range(TABLES)]
    tables = [feed.table(table_schema(prefix, f"t{number}")) for number in range(TABLES)]
    given = settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=TABLES * (PER_BATCH + 1), sink=None)
    given |= {"sinks": "one,other", "sinks.one.type": "delta", "sinks.one.sink.path": str(tmp_path / "tables")}
    given |= {"sinks.other.type": "console", "sinks.other.table.include.list": "none\\..*"}
    given["sinks.one.table.include.list"] = "shop\\..*"
    given |= {"tailrace.table.threads": "1", "sinks.one.sink.optimize.batches": "0"}

    def write(numbers: range) -> Status:
        for number in numbers:
            for table, known in zip(tables, rows, strict=True):
                feed.write(changes(random.Random(number), table, number, known))
        status = consume(spark, given)
        assert [table_rows(spark, tmp_path, table.schema.table) for table in tables] == rows
        return status

    write(range(3))
    added = ConnectField("more", connect("int32"))
    wider = replace(tables[0], schema=replace(tables[0].schema, columns=(*tables[0].schema.columns, added)))
    change = ColumnChange(AlterationKind.ADD, "more", value=None)
    feed.write([wider.alteration(prefix, 2999, change), wider.published(prefix, 2)])
    feed.write(tables[0].change("c", None, {"id": 50, "name": "before"}, pos=2990))
    rows[0] = {key: {**row, "more": None} for key, row in rows[0].items()} | {
        50: {"id": 50, "name": "before", "more": None}
    }
    tables[0] = wider
    before = Counter(in_driver)
    status = write(range(3, 7))
    assert in_driver["t1"] - before["t1"] >= 2
    assert in_driver["t0"] - before["t0"] >= 2
    assert {each["way"] for each in status.as_dict()["tables"].values()} == {"small commit, all rows"}


@pytest.mark.long
@pytest.mark.parametrize("kind", ["truncate", "read", "incremental", "tombstones"])
def test_what_is_left_to_queries(spark: SparkSession, written: Written, in_driver: Counter[str], kind: str) -> None:
    """One table has a record that is not plain; the others go on in the driver."""
    table, rows = written.tables[0], written.rows[0]
    pos = 1000 * BATCHES
    row = {"id": 50, "name": kind}
    if kind == "truncate":
        written.feed.write(table.truncate(pos=pos))
        rows.clear()
    elif kind == "tombstones":
        written.feed.write([Message(table.schema.topic, b"k", None)])
    else:
        table.incremental = kind == "incremental"
        split = "s" if kind == "incremental" else None
        written.feed.write(table.change("r", None, row, pos=pos, split=split))
        table.incremental = False
        rows[50] = row
    consume(spark, written.given)
    written.check(spark)
    assert all(in_driver[f"t{number}"] >= BATCHES - 3 for number in range(1, TABLES))


@pytest.mark.long
def test_tables_that_were_created_or_truncated(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, in_driver: Counter[str]
) -> None:
    """The driver processes what is behind the truncation; what is before it stays out, whenever it is read."""
    feed, rows = Feed(kafka_broker, prefix), [dict[int, Row]() for _ in range(TABLES)]
    tables = [feed.table(table_schema(prefix, f"t{number}")) for number in range(TABLES)]
    feed.write([tables[0].created(prefix, pos=1)])
    feed.write(tables[1].truncate(pos=1))
    most, names = TABLES * (PER_BATCH + 1), [table.schema.table for table in tables]
    given = settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=most, tailrace__table__threads=1)

    def write(numbers: range) -> None:
        for number in numbers:
            for table, known in zip(tables, rows, strict=True):
                feed.write(changes(random.Random(number), table, number, known))
        consume(spark, given)
        assert [table_rows(spark, tmp_path, name) for name in names] == rows

    write(range(1, 7))
    assert all(in_driver[name] >= 3 for name in names), in_driver
    feed.write(tables[1].truncate(pos=20_000))
    rows[1].clear()
    late = {"id": 70, "name": "late"}
    feed.write(tables[1].change("c", None, late, pos=19_000))
    feed.write(tables[0].change("c", None, late, pos=0))
    write(range(7, 7))
    before = Counter(in_driver)
    feed.write(tables[1].change("c", None, late, pos=19_001))
    feed.write(tables[0].change("c", None, late, pos=0))
    write(range(21, 26))
    assert all(in_driver[name] - before[name] >= 2 for name in names), in_driver

    # A new checkpoint knows no truncation: the table has it.
    given["checkpointLocation"] = str(tmp_path / "other")
    before = Counter(in_driver)
    write(range(26, 32))
    assert all(in_driver[name] > before[name] for name in names), in_driver


@pytest.mark.long
def test_a_transform_is_left_to_queries(spark: SparkSession, written: Written, in_driver: Counter[str]) -> None:
    given = written.given | {
        "transforms": "t",
        "transforms.t.source-table": "shop\\.t0",
        "transforms.t.projection": "id, upper(name) AS name",
    }
    status, error = run_query(spark, given)
    assert error is None, status
    for row in written.rows[0].values():
        row["name"] = row["name"].upper()
    written.check(spark)
    assert not in_driver["t0"]
    assert in_driver["t1"]


def test_a_bad_record(
    spark: SparkSession, written: Written, in_driver: Counter[str], kafka_broker: KafkaBroker
) -> None:
    """It stops its table with the error of a query, or is left out; nothing is given up."""
    table = written.tables[0]
    (good,) = table.change("c", None, {"id": 60, "name": "x"}, pos=1000 * BATCHES)
    written.feed.write([replace(good, value=b"{")])
    with capture_logs() as logs:
        status, error = run_query(spark, written.given)
    assert error is not None
    assert "its value does not match the table schema" in str(status.as_dict()) + str(error)
    kafka_broker.create_topic(f"letters-{written.prefix}")
    letters = written.given | {
        "errors.tolerance": "all",
        "errors.deadletterqueue.topic.name": f"letters-{written.prefix}",
    }
    with capture_logs() as more:
        consume(spark, letters)
    written.check(spark)
    assert in_driver["t0"]
    assert not [line for line in [*logs, *more] if line["event"].startswith("small tables are")]


def fails(*_: object) -> Any:
    """Fail as a call of a method that the JVM does not have."""
    raise Py4JError("An error occurred while calling o1.none. Trace: Method none([]) does not exist")


@pytest.mark.long
@pytest.mark.parametrize("failure", ["decoder", "plan"])
def test_a_failure_before_the_commit(
    spark: SparkSession, written: Written, in_driver: Counter[str], monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """The batch goes through queries, as do those that follow; one line tells it."""
    if failure == "decoder":
        monkeypatch.setattr(driver_decoder, "DriverDecoder", fails)
    else:
        monkeypatch.setattr(delta_driver_rewrite, "RowFunction", fails)
    monkeypatch.setattr(driver, "PAUSE_S", 3600.0)
    with capture_logs() as logs:
        consume(spark, written.given)
    written.check(spark)
    assert not in_driver.total()
    warnings = [line for line in logs if line["event"].startswith("small tables are")]
    assert [line["log_level"] for line in warnings] == ["warning"]


@pytest.mark.long
def test_a_failure_that_passes(
    spark: SparkSession, written: Written, in_driver: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the pause, which has no length here, the driver processes the tables again."""
    failed: list[TableSchema] = []

    def fails_once(*arguments: Any) -> DriverDecoder:
        if not failed:
            failed.append(arguments[2])
            fails()
        return DriverDecoder(*arguments)

    monkeypatch.setattr(driver, "PAUSE_S", 0.0)
    monkeypatch.setattr(driver_decoder, "DriverDecoder", fails_once)
    with capture_logs() as logs:
        consume(spark, written.given)
    written.check(spark)
    assert len([line for line in logs if line["event"].startswith("small tables are")]) == 1
    assert in_driver[failed[0].table] >= BATCHES - 4


@pytest.mark.long
def test_memory_for_some_tables(
    spark: SparkSession, written: Written, in_driver: Counter[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The others go through queries; none makes room for another."""
    sizes = {table.schema.table: decoder_kb(table.schema, Images.UPSERT) for table in written.tables}
    monkeypatch.setattr(driver_decoder, "MOST_KB", 2 * max(sizes.values()))
    consume(spark, written.given)
    written.check(spark)
    assert len(+in_driver) == 2
    assert all(count >= BATCHES - 3 for count in (+in_driver).values())


@pytest.mark.long
@pytest.mark.parametrize("committed", [True, False])
def test_a_commit_whose_result_is_not_known(
    spark: SparkSession, written: Written, in_driver: Counter[str], monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """No other way is tried: the next attempt asks the ledger."""
    commit = LogTransaction.commit_staged

    def unknown(*arguments: Any) -> Any:
        if committed:
            commit(*arguments)
        return fails()

    with monkeypatch.context() as patched:
        patched.setattr(LogTransaction, "commit_staged", unknown)
        _, error = run_query(spark, written.given)
    assert error is not None
    assert not in_driver.total()
    consume(spark, written.given)
    written.check(spark)
