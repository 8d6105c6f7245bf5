"""A parked table whose stored position cannot be read: it stays parked, and none of its records is skipped."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tailrace.spark_consumer.errors import StoredFileError
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_parquet import ParquetBackend
from tests.spark.records import Feed, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def test_table_with_an_unreadable_position_waits(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    backend = DeltaBackend(spark, kafka_broker, tmp_path)
    table, other = (feed.table(table_schema(prefix, name, INTEGER)) for name in ("t", "u"))
    topic = table.schema.topic
    run = BatchRunner(feed, table, backend, tmp_path)
    run.others.append(other)
    run.batch(table.change("c", None, row(1), pos=100), other.change("c", None, row(1), pos=101))
    run.batch(table.change("c", None, row(2), pos=110), cut=("before", "_merge"))
    file = tmp_path / "checkpoint" / "tailrace" / "parked" / f"{topic}.json"
    position, checksum = file.read_bytes(), file.with_name(f".{file.name}.crc")
    checked = checksum.read_bytes()

    def damage_checksum() -> None:
        checksum.write_bytes(checked[:-1] + bytes([checked[-1] ^ 0xFF]))

    def empty() -> None:
        checksum.unlink()
        file.write_bytes(b"")

    def cut_off() -> None:
        file.write_bytes(position[: len(position) // 2])

    for number, fault in enumerate((damage_checksum, empty, cut_off)):
        fault()
        run.restart()
        [parked] = run.pipeline_parked()
        assert (parked.topic, str(file) in str(parked.reason)) == (topic, True)
        written = [table.change("c", None, row(3 + number), pos=120 + number)]
        run.batch(*written, other.change("c", None, row(2 + number), pos=130 + number))
        run.retry()
        assert backend.rows(table.schema).keys() == {1}
        assert 2 + number in backend.rows(other.schema)
        assert file.read_bytes() != position or number == 0  # nothing was stored over it

    file.write_bytes(position)  # restored from a copy
    run.retry()
    run.batch(other.change("c", None, row(9), pos=190))
    assert backend.rows(table.schema).keys() == {1, 2, 3, 4, 5}
    assert run.pipeline_parked() == []


@pytest.mark.long
def test_states_that_cannot_be_read_park_their_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    backend = DeltaBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    [file] = (tmp_path / "checkpoint" / "tables" / table.schema.topic).glob("*.json")
    stored = json.loads(file.read_text())
    file.with_name(f".{file.name}.crc").unlink()
    file.write_text("")

    run.restart()
    with pytest.raises(StoredFileError, match=f"{file.name} is empty"):
        run.batch(table.change("c", None, row(2), pos=110))
    assert backend.rows(table.schema).keys() == {1}

    file.write_text(json.dumps(stored))
    run.repeat()
    assert backend.rows(table.schema).keys() == {1, 2}


@pytest.mark.parametrize("name", ["columns.json", "topics"])
def test_files_next_to_a_changelog_that_cannot_be_read_stop_its_table(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path, name: str
) -> None:
    """What its columns are, and which topic it belongs to; without them it would be a new one, or another owner's."""
    feed, backend = Feed(kafka_broker, prefix), ParquetBackend(spark, kafka_broker, tmp_path)
    table = feed.table(table_schema(prefix, "t", INTEGER))
    run = BatchRunner(feed, table, backend, tmp_path)
    run.batch(table.change("c", None, row(1), pos=100))
    folder = backend.path("t") / "_tailrace"
    file = folder / name if name.endswith(".json") else next((folder / name).glob("*.json"))
    checksum = file.with_name(f".{file.name}.crc")
    checked = checksum.read_bytes()
    checksum.write_bytes(checked[:-1] + bytes([checked[-1] ^ 0xFF]))

    run.restart()
    with pytest.raises(StoredFileError, match=f"{file.name} cannot be read"):
        run.batch(table.change("c", None, row(2), pos=110))
    assert backend.rows(table.schema).keys() == {1}

    checksum.write_bytes(checked)
    run.repeat()
    assert backend.rows(table.schema).keys() == {1, 2}
