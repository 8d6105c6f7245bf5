"""The pinned artifacts: what the lists contain, and how their lines are read."""

from __future__ import annotations

import re
from importlib.metadata import version
from pathlib import Path

import pytest

from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.spark_consumer import jars
from tailrace.spark_consumer.jars import Artifact, read_pins
from tailrace.spark_consumer.session import coordinates
from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.plugin import load_sink
from tests.debezium_parity.artifacts import LIST as PARITY_LIST
from tests.embedded.artifacts import LIST as SERVER_LIST


def test_coordinates_are_read_with_classifier_and_extension() -> None:
    plain = Artifact.parse("org.slf4j:slf4j-api:1.7.36")
    full = Artifact.parse("org.example:app:1.0:all@tar.gz")

    assert (plain.file_name, full.file_name) == ("slf4j-api-1.7.36.jar", "app-1.0-all.tar.gz")
    with pytest.raises(ValueError, match="not group:artifact:version"):
        Artifact.parse("only:two")


@pytest.mark.parametrize(
    "listing", [*jars.LISTS.values(), SERVER_LIST, PARITY_LIST], ids=lambda path: f"{path.parent.name}/{path.name}"
)
def test_every_artifact_has_a_sha256(listing: Path) -> None:
    sections = read_pins(listing)

    assert sections
    for pins in sections.values():
        assert pins
        assert all(re.fullmatch("[0-9a-f]{64}", pin) for pin in pins.values())


@pytest.mark.parametrize("sink", ["delta", "iceberg", "jdbc", "kafka", "upsert-kafka", "parquet", "console"])
def test_jars_of_a_sink_are_pinned_in_the_version_that_it_declares(sink: str) -> None:
    """``spark.jars.packages`` and the pinned list name the same files."""
    pinned = {f"{each.group}:{each.name}:{each.version}" for each in jars.pins()}

    assert set(coordinates([load_sink(sink)], version("pyspark"))) <= pinned


@pytest.mark.parametrize("database", ["mysql", "postgresql"])
def test_drivers_of_the_jdbc_sink_are_pinned(database: str) -> None:
    pinned = {f"{each.group}:{each.name}:{each.version}" for each in jars.pins()}

    assert set(load_dialect(f"jdbc:{database}://host/db").jars) <= pinned


def test_jars_of_the_hudi_sink_are_pinned_for_its_spark_line() -> None:
    pinned = {f"{each.group}:{each.name}:{each.version}" for each in jars.pins(line="3.5")}

    assert set(coordinates([load_sink("hudi")], "3.5.7")) <= pinned
    with pytest.raises(ConfigError, match=r"the hudi sink is not available for Spark 4\.1\.3; use Spark 3\.5"):
        coordinates([load_sink("hudi")], "4.1.3")
    with pytest.raises(ConfigError, match=r"the console sink is not available for Spark 3\.5\.7; use Spark 4\.1"):
        coordinates([load_sink("console")], "3.5.7")


def test_spark_line_without_a_list_is_an_error() -> None:
    with pytest.raises(TailraceError, match=r"no jars are listed for Spark 4\.3"):
        jars.pins(line="4.3")


def test_unknown_section_of_jars_is_an_error() -> None:
    with pytest.raises(TailraceError, match="no jars are listed for 'hudi'"):
        jars.pins(("hudi",))
