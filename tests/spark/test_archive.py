"""The archive for ``spark-submit --py-files``: complete, reproducible, and enough without an installed tailrace."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tailrace.spark_consumer.archive import build
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark import spark_environment, spark_settings
from tests.spark.records import Feed, table_schema
from tests.spark.running import settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).resolve().parents[2]
LIBRARIES: Final = sysconfig.get_path("purelib")

_PRINT_ORIGIN: Final = """
import sys
sys.path[:0] = [sys.argv[1]]
sys.path.append(sys.argv[2])
from importlib.metadata import distribution
from importlib.resources import files
from tailrace.spark_consumer import app
assert distribution("tailrace").entry_points
print(app.__file__)
print([name for name in ("jars.toml", "py.typed") if files("tailrace.spark_consumer").joinpath(name).is_file()])
"""


def test_archive_holds_the_consumer_and_what_it_imports(tmp_path: Path) -> None:
    archive = tmp_path / "tailrace-spark.zip"
    names = build(archive)

    assert {name.split("/")[1] for name in names if name.startswith("tailrace/")} == {
        "runtime",
        "schemas",
        "spark_consumer",
    }
    assert "tailrace/spark_consumer/py.typed" in names
    with zipfile.ZipFile(archive) as opened:
        assert opened.testzip() is None


def test_same_sources_give_the_same_archive(tmp_path: Path) -> None:
    for name in ("first.zip", "second.zip"):
        build(tmp_path / name)

    assert (tmp_path / "first.zip").read_bytes() == (tmp_path / "second.zip").read_bytes()


def test_consumer_is_imported_from_the_archive_alone(tmp_path: Path) -> None:
    """Without site (-S) Python does not see the editable install."""
    archive = tmp_path / "tailrace-spark.zip"
    build(archive)

    command = [sys.executable, "-I", "-S", "-c", _PRINT_ORIGIN, str(archive), LIBRARIES]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)

    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == [
        str(archive / "tailrace" / "spark_consumer" / "app.py"),
        "['jars.toml', 'py.typed']",
    ]


@pytest.mark.long
@pytest.mark.timeout(1800)
def test_spark_submit_runs_the_consumer_from_the_archive(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    archive = tmp_path / "tailrace-spark.zip"
    build(archive)
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH="$PYTHONPATH:{LIBRARIES}" exec {sys.executable} -S "$@"\n')
    python.chmod(0o755)
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    feed.write(table.change("c", None, {"id": 1, "name": "a"}, pos=100))
    config = tmp_path / "consumer.json"
    config.write_text(json.dumps(settings(kafka_broker, prefix, tmp_path)), encoding="utf-8")
    properties = tmp_path / "spark.properties"
    chosen = spark_settings(tmp_path, **{"spark.driver.memory": "1g"})
    properties.write_text("".join(f"{name}={value}\n" for name, value in chosen.items()), encoding="utf-8")

    submit = Path(sys.executable).with_name("spark-submit")
    command: list[str | Path] = [submit, "--properties-file", properties, "--py-files", archive]
    done = subprocess.run(
        [*command, ROOT / "spark_consumer" / "app.py", "--config", config],
        env={**os.environ, **spark_environment(), "PYSPARK_DRIVER_PYTHON": str(python)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert table_rows(spark, tmp_path, "t") == {1: {"id": 1, "name": "a"}}
