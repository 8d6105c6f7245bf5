"""A package outside Tailrace adds a sink with an entry point."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.sink.plugin import installed_sinks, load_sink
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MODULE = '''
"""A sink that appends changelog rows to a file."""

from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import TEXT
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.plugin import SinkPlugin


class FileOptions(Section):
    file: str = supported("sink.file", TEXT, required=True, doc="File of the changelog.")


class FileSink:
    def __init__(self, spark, options, context):
        self._file = options.file

    def prepare_table(self, schema):
        pass

    def write_batch(self, batch, batch_id):
        lines = batch.records.selectExpr("concat(kind, ' ', to_json(row))").collect()
        with open(self._file, "a", encoding="utf-8") as file:
            file.writelines(line[0] + "\\n" for line in lines)

    def close(self):
        with open(self._file, "a", encoding="utf-8") as file:
            file.write("closed\\n")


SINK = SinkPlugin(
    name="file", doc="Appends to a file.", options=FileOptions, images=Images.CHANGELOG, guarantee="none", open=FileSink
)
'''


@pytest.fixture
def file_sink(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Install the package ``file_sink`` for one test."""
    site = tmp_path / "site"
    info = site / "file_sink-1.0.dist-info"
    info.mkdir(parents=True)
    (site / "file_sink.py").write_text(MODULE, encoding="utf-8")
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: file-sink\nVersion: 1.0\n", encoding="utf-8")
    (info / "entry_points.txt").write_text(
        "[tailrace.sinks]\nfile = file_sink:SINK\nbroken = file_sink:NOTHING\n", encoding="utf-8"
    )
    monkeypatch.syspath_prepend(str(site))
    monkeypatch.delitem(sys.modules, "file_sink", raising=False)


@pytest.mark.usefixtures("file_sink")
@pytest.mark.timeout(900)
def test_sink_of_another_package_runs_in_the_consumer(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    feed.write(table.change("c", None, {"id": 1, "name": "a"}, pos=100))
    file = tmp_path / "changelog"

    consume(spark, settings(kafka_broker, prefix, tmp_path, sink="file", sink__file=file))

    first, last = file.read_text(encoding="utf-8").splitlines()
    assert (first[:3], orjson.loads(first[3:])) == ("+I ", {"id": 1, "name": "a"})
    assert last == "closed"


def test_sinks_of_tailrace_are_installed() -> None:
    found = installed_sinks()

    assert {"console", "delta", "iceberg", "kafka", "parquet", "upsert-kafka"} <= set(found)
    assert all(plugin.name == name and plugin.doc and plugin.guarantee for name, plugin in found.items())


def test_unknown_sink_is_an_error_with_the_installed_sinks() -> None:
    with pytest.raises(ConfigError, match=r"'snowflake' is not installed; installed sinks: .*delta, hudi, iceberg"):
        load_sink("snowflake")
    with pytest.raises(ConfigError, match="installed sinks"):
        config.parse({"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c", "sink": "snowflake"})


@pytest.mark.usefixtures("file_sink")
def test_broken_sink_is_an_error_only_for_its_user() -> None:
    with pytest.raises(ConfigError, match="sink: 'broken' cannot be loaded from file_sink:NOTHING"):
        load_sink("broken")

    assert load_sink("file").name == "file"
    assert "file" in installed_sinks()
    assert "broken" not in installed_sinks()
