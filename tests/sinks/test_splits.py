"""Splits over several batches: what is held, what the END certificates say, and when a table is complete."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.spark_consumer.errors import DamagedTopicError, IncompleteTopicError
from tailrace.spark_consumer.normalize.stored_records import CarryOver
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_kafka import KafkaBackend
from tests.spark.records import Feed, Message, Table, table_schema

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyspark.sql import DataFrame, SparkSession

BATCHES = 8


def runner(
    backend: type[DeltaBackend | KafkaBackend], spark: SparkSession, broker: KafkaBroker, prefix: str, work: Path
) -> BatchRunner:
    """Return a query over a new table with two partitions."""
    feed = Feed(broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER), partitions=2)
    return BatchRunner(feed, table, backend(spark, broker, work), work)


def state(work: Path, topic: str) -> dict[str, Any]:
    """Return the last stored state of a topic."""
    files = sorted((work / "checkpoint" / "tables" / topic).glob("*.json"), key=lambda file: int(file.stem))
    found: dict[str, Any] = json.loads(files[-1].read_text(encoding="utf-8"))
    return found


@pytest.mark.timeout(1800)
def test_held_records_are_stored_once(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A split waits for its certificate over many batches: each held record is written once and read once."""
    written: list[int] = []
    write = CarryOver.write

    def counted(self: CarryOver, held: DataFrame, topic: str, batch: int) -> str:
        written.append(held.count())
        return write(self, held, topic, batch)

    monkeypatch.setattr(CarryOver, "write", counted)
    run = runner(KafkaBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(run.table.snapshot(prefix, 0, [row(1, 0), row(2, 0)], low=100, high=200))
    for n in range(1, BATCHES):
        run.batch(
            run.table.change("u", row(1, n - 1), row(1, n), pos=300 + n),
            run.table.change("c", None, row(10 + n), pos=400 + n),
        )
    held = run.backend.rows(run.table.schema)
    # A certificate that arrives after the batch does not change what the batch does when it runs once more.
    run.write([run.table.end(prefix, 0, high=200, rows=2)])
    run.repeat()
    repeated = run.backend.rows(run.table.schema)
    run.batch()
    released = run.backend.rows(run.table.schema)
    run.batch(run.table.change("u", row(2, 0), row(2, 1), pos=500))

    others = {10 + n: row(10 + n) for n in range(1, BATCHES)}
    assert held == repeated == others
    assert released == {**others, 1: row(1, BATCHES - 1), 2: row(2, 0)}
    assert run.backend.rows(run.table.schema)[2] == row(2, 1)
    assert written == [2] + [1] * (BATCHES - 1), "records were written once more"
    assert not list((tmp_path / "checkpoint" / "carry-over").rglob("*.parquet")), "folders of a complete split stay"


@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    ("resume", "changes"), [(BatchRunner.restart, 0), (BatchRunner.restart, 1), (BatchRunner.retry, 0)]
)
def test_held_records_are_written_after_a_batch_that_failed(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    resume: Callable[[BatchRunner], None],
    *,
    changes: int,
) -> None:
    """A batch with the certificate alone fails: its table is parked, and taken up again in a later batch."""
    run = runner(KafkaBackend, spark, kafka_broker, prefix, tmp_path)
    other = run.feed.table(table_schema(prefix, "other", INTEGER))
    run.others.append(other)
    run.batch(
        run.table.snapshot(prefix, 0, [row(1), row(2)], low=100, high=200), other.change("c", None, row(1), pos=250)
    )
    run.batch([run.table.end(prefix, 0, high=200, rows=2)], cut=("before", "write_batch"))
    resume(run)

    run.batch(*(run.table.change("c", None, row(3), pos=300) for _ in range(changes)))

    assert run.backend.rows(run.table.schema) == {key: row(key) for key in range(1, 3 + changes)}


@pytest.mark.timeout(1800)
def test_table_is_complete_when_all_splits_of_its_run_were_read(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The initial load then closes. A table without rows is created when its only split has ended."""
    run = runner(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    run.table.last_split = 1
    run.batch(run.table.snapshot(prefix, 0, [row(1)], low=100, high=200), [run.table.end(prefix, 0, high=200, rows=1)])
    loading = state(tmp_path, run.table.schema.topic)
    run.batch(run.table.snapshot(prefix, 1, [row(2)], low=110, high=200))
    run.batch([run.table.end(prefix, 1, high=200, rows=1)])
    complete = state(tmp_path, run.table.schema.topic)
    run.batch(run.table.change("u", row(2), row(2, 1), pos=300))

    assert run.backend.rows(run.table.schema) == {1: row(1), 2: row(2, 1)}
    assert loading["progress"] == {
        "open": {},
        "runs": {"run1": {"numbers": [[0, 0]], "bounds": {"": "[1]"}, "above": False}},
    }
    assert complete["progress"] == {
        "open": {},
        "runs": {"run1": {"numbers": [[0, 1]], "bounds": {"": "end"}, "above": False}},
    }
    path = tmp_path / "tables" / "shop" / "t"
    properties = spark.sql(f"DESCRIBE DETAIL delta.`{path}`").collect()[0]["properties"]
    assert not [name for name in properties if name.startswith("tailrace.initialLoad")]


@pytest.mark.timeout(1800)
def test_table_without_rows_is_created(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    run = runner(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    run.table.last_split = 0
    run.batch(run.table.snapshot(prefix, 0, [], low=100, high=100), [run.table.end(prefix, 0, high=100, rows=0)])

    assert run.backend.rows(run.table.schema) == {}


@pytest.mark.timeout(1800)
def test_missing_rows_of_a_split_stop_the_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The topic ends behind the split, and it has fewer rows than the certificate says."""
    run = runner(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    run.batch(run.table.snapshot(prefix, 0, [row(1), row(2)], low=100, high=200))

    with pytest.raises(IncompleteTopicError, match="lacks records of a snapshot") as caught:
        run.batch([run.table.end(prefix, 0, high=200, rows=3, backfill=1)])

    assert caught.value.context["rows"] == "1 of 3 missing"
    run.accept_incomplete = True
    run.repeat()
    run.batch(run.table.change("u", row(1), row(1, 1), pos=300))
    assert run.backend.rows(run.table.schema) == {1: row(1, 1), 2: row(2)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", [DeltaBackend, KafkaBackend])
def test_other_rows_than_those_of_the_certificate_stop_the_table(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    backend: type[DeltaBackend | KafkaBackend],
) -> None:
    """A split over two batches, with as many rows as its certificate says; one of them was written by somebody else."""
    run = runner(backend, spark, kafka_broker, prefix, tmp_path)
    records = run.table.snapshot(prefix, 0, [row(1), row(2)], low=100, high=200)
    [forged] = run.table.change("r", None, row(2, 9), pos=100, split=run.table.split_id(0))
    run.batch(records[:2])
    run.batch([forged, *records[3:]])

    with pytest.raises(DamagedTopicError, match=r"split shop\.t:run1:0 .* the checksum differs") as caught:
        run.batch([run.table.end(prefix, 0, high=200, rows=2)])

    assert caught.value.context["split"] == run.table.split_id(0)
    run.accept_incomplete = True
    run.repeat()
    assert run.backend.rows(run.table.schema) == {1: row(1), 2: row(2, 9)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", [DeltaBackend, KafkaBackend])
def test_recreated_table_has_no_row_of_the_former_table(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    backend: type[DeltaBackend | KafkaBackend],
) -> None:
    """The greatest position counts, also while the splits of a snapshot wait for their certificates."""
    run = runner(backend, spark, kafka_broker, prefix, tmp_path)
    run.batch(run.table.change("c", None, row(1), pos=100), run.table.change("c", None, row(2), pos=110))
    run.batch([run.table.created(prefix, pos=200), run.table.created(prefix, pos=150)])
    run.repeat()
    assert run.backend.rows(run.table.schema) == {}
    run.batch(run.table.change("c", None, row(3), pos=210), run.table.change("u", row(2), row(2, 1), pos=180))
    assert run.backend.rows(run.table.schema) == {3: row(3)}

    split = run.table.split_id(0)
    run.batch(run.table.snapshot(prefix, 0, [row(4), row(5)], low=300, high=400))
    run.batch([run.table.created(prefix, pos=350)], run.table.change("c", None, row(6), pos=360, split=split))
    run.batch([run.table.end(prefix, 0, high=400, rows=2, backfill=1)])
    run.repeat()
    assert run.backend.rows(run.table.schema) == {6: row(6)}


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("backend", [DeltaBackend, pytest.param(KafkaBackend, marks=pytest.mark.long)])
def test_recreated_table_has_no_row_of_the_former_table_after_its_work_has_failed(
    spark: SparkSession,
    kafka_broker: KafkaBroker,
    prefix: str,
    tmp_path: Path,
    backend: type[DeltaBackend | KafkaBackend],
) -> None:
    """The new table has no row: the batch that read where it begins had nothing else of it."""
    run = runner(backend, spark, kafka_broker, prefix, tmp_path)
    other = run.feed.table(table_schema(prefix, "other", INTEGER))
    run.others.append(other)
    run.batch(*(table.change("c", None, row(1), pos=100) for table in (run.table, other)))
    run.batch([run.table.created(prefix, pos=200)], cut=("before", "write_batch"))
    assert run.parked().keys() == {run.table.schema.topic}
    run.retry()

    run.batch(other.change("c", None, row(2), pos=210))

    assert run.backend.rows(run.table.schema) == {}
    assert run.backend.rows(other.schema) == {1: row(1), 2: row(2)}


@pytest.mark.timeout(1800)
def test_table_without_a_schema_is_created(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Its topic has no record yet, which is no error."""
    run = runner(DeltaBackend, spark, kafka_broker, prefix, tmp_path)
    other = Table(table_schema(prefix, "later", INTEGER))
    kafka_broker.create_topic(other.schema.topic)
    run.others.append(other)
    run.batch([other.created(prefix, pos=90)], run.table.change("c", None, row(1), pos=100))
    assert run.backend.rows(run.table.schema) == {1: row(1)}
    assert run.parked() == {}


@pytest.mark.timeout(1800)
def test_delete_is_remembered_while_an_older_record_may_come(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The topic gets a second partition, and the key moves there. The former partition is read later."""
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t", INTEGER), partitions=2)
    table.partitions = 1  # the first batch knows of one partition
    run = BatchRunner(feed, table, DeltaBackend(spark, kafka_broker, tmp_path), tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    table.partitions = 2

    def change(partition: int, *arguments: Any, pos: int) -> list[Message]:
        return [replace(each, partition=partition) for each in table.change(*arguments, pos=pos)]

    run.batch(change(1, "d", row(1, 1), None, pos=300))
    run.batch(change(0, "u", row(1), row(1, 1), pos=200))
    run.repeat()
    assert run.backend.rows(table.schema) == {}
    run.batch(change(1, "c", None, row(1, 5), pos=400), change(0, "c", None, row(2), pos=350))

    assert run.backend.rows(table.schema) == {1: row(1, 5), 2: row(2)}
    assert state(tmp_path, table.schema.topic)["movedKeys"]["deletes"] == {}
