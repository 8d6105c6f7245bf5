"""The archive for ``spark-submit --py-files``, with a Python in which Tailrace is not installed."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import TYPE_CHECKING
from zipfile import ZipFile

import pyspark
import pytest

from tailrace.spark_consumer import archive
from tailrace.spark_consumer.sink.plugin import installed_sinks
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark import spark_environment, spark_settings
from tests.spark.records import Feed, table_schema
from tests.spark.running import settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT = Path(__file__).resolve().parents[2]
SPARK_HOME = Path(pyspark.__file__).parent
REQUIRED = (
    "orjson",
    "prometheus_client",
    "pydantic",
    "structlog",
    "tornado",
    # What pydantic needs.
    "annotated_types",
    "pydantic_core",
    "typing_extensions.py",
    "typing_inspection",
)
"""Modules of the third-party packages that the driver needs, as docs/consumer.md lists them."""

REPORT_MODULES = """
import atexit, json, os, sys

def report():
    found = {name: module.__file__ for name, module in sys.modules.items() if name.startswith("tailrace.")}
    with open(os.environ["MODULES_FILE"], "w") as file:
        json.dump(found, file)

if "MODULES_FILE" in os.environ:
    atexit.register(report)
"""
"""Run by a .pth file: at its end the driver writes where the modules of Tailrace were loaded from."""


@pytest.fixture(scope="module")
def zip_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive."""
    path = tmp_path_factory.mktemp("archive") / archive.DEFAULT_NAME
    archive.build(path)
    return path


@pytest.fixture(scope="module")
def driver_python(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An environment with the required packages, without Tailrace and without pyspark."""
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(folder)], check=True)
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    site, own = folder / "lib" / version / "site-packages", Path(sysconfig.get_paths()["purelib"])
    for name in REQUIRED:
        (site / name).symlink_to(own / name)
    # Not sitecustomize.py: some systems have one of their own, which is found before.
    (site / "report_modules.py").write_text(REPORT_MODULES, encoding="utf-8")
    (site / "report_modules.pth").write_text("import report_modules\n", encoding="utf-8")
    return folder / "bin" / "python"


def environment(**more: object) -> dict[str, str]:
    """Return an environment without PYTHONPATH."""
    base = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK", "SPARK"))}
    return base | {name: str(value) for name, value in more.items()}


def test_archive_has_packages_data_and_entry_points(zip_file: Path, tmp_path: Path) -> None:
    second = tmp_path / "second.zip"
    archive.build(second)
    with ZipFile(zip_file) as opened:
        names = set(opened.namelist())

    assert zip_file.read_bytes() == second.read_bytes()
    assert names >= {
        "tailrace/",
        "tailrace/runtime/errors.py",
        "tailrace/schemas/names.py",
        "tailrace/spark_consumer/app.py",
        "tailrace/spark_consumer/jars.toml",
        "tailrace/spark_consumer/py.typed",
    }
    assert {name.split("/")[0].partition("-")[0] for name in names} == {"tailrace"}
    assert not [name for name in names if "producer" in name or name.endswith(".pyc")]
    assert sorted(name.rpartition("/")[2] for name in names if ".dist-info/" in name) == [
        "",
        "METADATA",
        "entry_points.txt",
    ]


def test_modules_sinks_and_data_files_are_found_in_the_archive(
    zip_file: Path, driver_python: Path, tmp_path: Path
) -> None:
    program = (
        "import json\n"
        "from tailrace.spark_consumer import session\n"
        "from tailrace.spark_consumer.sink.plugin import installed_sinks\n"
        "from importlib.resources import files\n"
        "text = (files('tailrace.spark_consumer') / 'jars.toml').read_text()\n"
        "print(json.dumps([session.__file__, sorted(installed_sinks()), text[:1]]))\n"
    )
    libraries = [zip_file, *sorted((SPARK_HOME / "python" / "lib").glob("*.zip"))]
    done = subprocess.run(
        [driver_python, "-c", program],
        env=environment(PYTHONPATH=os.pathsep.join(map(str, libraries))),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == [
        f"{zip_file}/tailrace/spark_consumer/session.py",
        sorted(installed_sinks()),
        "#",
    ]


@pytest.mark.timeout(1800)
def test_spark_submit_runs_the_consumer_from_the_archive(  # noqa: PLR0917 - fixtures
    spark: SparkSession, kafka_broker: KafkaBroker, zip_file: Path, driver_python: Path, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    feed.write(table.change("c", None, {"id": 1, "name": "a"}, pos=100))
    app, config, modules = tmp_path / "app.py", tmp_path / "consumer.json", tmp_path / "modules.json"
    shutil.copy(ROOT / "spark_consumer" / "app.py", app)
    config.write_text(json.dumps(settings(kafka_broker, prefix, tmp_path)), encoding="utf-8")
    properties = tmp_path / "spark.properties"
    # The sink itself sets the Delta extension and the catalog.
    conf = {name: value for name, value in spark_settings(tmp_path).items() if not name.startswith("spark.sql.")}
    conf["spark.driver.memory"] = "1g"
    properties.write_text("".join(f"{name} {value}\n" for name, value in conf.items()), encoding="utf-8")

    done = subprocess.run(
        [
            *(SPARK_HOME / "bin" / "spark-submit", "--properties-file", properties),
            *("--py-files", zip_file, app, "--config", config),
        ],
        env=environment(
            **(spark_environment() | dict.fromkeys(("PYSPARK_PYTHON", "PYSPARK_DRIVER_PYTHON"), str(driver_python))),
            SPARK_HOME=SPARK_HOME,
            MODULES_FILE=modules,
        ),
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stderr[-3000:]
    assert table_rows(spark, tmp_path, "t") == {1: {"id": 1, "name": "a"}}
    loaded = json.loads(modules.read_text(encoding="utf-8"))
    assert {"tailrace.spark_consumer.pipeline", "tailrace.schemas.names", "tailrace.runtime.errors"} <= set(loaded)
    assert [path for path in loaded.values() if path is not None and not path.startswith(f"{zip_file}/")] == []
