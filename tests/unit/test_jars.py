"""The pinned artifacts: what the lists contain, and how their lines are read."""

from __future__ import annotations

import hashlib
import re
import shutil
from importlib.metadata import version
from pathlib import Path
from typing import Final

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
    with pytest.raises(TailraceError, match=r"no jars are listed for Spark 4\.3") as caught:
        jars.pins(line="4.3")
    assert caught.value.hint == "use Spark 4.1, 3.5"
    assert all(jars.pins(line=line) for line in ("4.1", "3.5"))


def test_unknown_section_of_jars_is_an_error() -> None:
    with pytest.raises(TailraceError, match="no jars are listed for 'hudi'") as caught:
        jars.pins(("hudi",))
    sections = caught.value.hint.removeprefix("choose from ").split(", ")
    assert "delta" in sections
    assert jars.pins(sections) == jars.pins()


def test_java_is_needed_where_it_is_said_to_be(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert jars.main([str(tmp_path / "jars"), "kafka"]) == 1
    assert capsys.readouterr().err == ("error: Java was not found\n  hint: install Java 17 or 21, or set JAVA_HOME\n")

    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    assert jars.main([str(tmp_path / "jars"), "kafka"]) == 1
    assert f"Java was not found in JAVA_HOME, {tmp_path}\n" in capsys.readouterr().err
    (tmp_path / "bin").mkdir()
    shutil.copy("/bin/true", tmp_path / "bin" / "java")
    assert jars.main([str(tmp_path / "jars"), "kafka"]) == 1
    assert "files could not be fetched: " in (said := capsys.readouterr().err)
    assert "hint: check the network; set a proxy by JAVA_TOOL_OPTIONS=-Dhttps.proxyHost=HOST" in said


_FETCHES: Final = """#!/bin/sh
while [ "$1" != -cache ]; do shift; done
folder="$(dirname "$2")/files/org.example"
mkdir -p "$folder"
printf %s "$CONTENT" > "$folder/app-1.0.jar"
"""


def test_a_file_with_another_checksum_is_not_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "java"
    java.write_text(_FETCHES)
    java.chmod(0o755)
    pins = {Artifact.parse("org.example:app:1.0"): hashlib.sha256(b"right").hexdigest()}
    monkeypatch.setenv("CONTENT", "wrong")
    with pytest.raises(TailraceError, match=r"^app-1\.0\.jar: the SHA-256 differs from the pinned one") as caught:
        jars.download(pins, tmp_path / "jars", java=java, report=print)
    assert caught.value.hint.startswith("repeat the download; if it still differs, the public file was replaced")
    assert not list((tmp_path / "jars").iterdir())

    monkeypatch.setenv("CONTENT", "right")
    jars.download(pins, tmp_path / "jars", java=java, report=print)
    assert (tmp_path / "jars" / "app-1.0.jar").read_bytes() == b"right"
