"""The jars of a Spark session for Kafka and the table formats, and the settings of a small local session."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark_consumer import jars
from tests.embedded.artifacts import fetch, fetch_pins
from tests.embedded.java import java_home

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

LINE: Final = jars.installed_line()
"""The Spark line of this environment."""

LOCAL_SETTINGS: Final[Mapping[str, str]] = {
    "spark.master": "local[2]",
    "spark.log.level": "ERROR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.memory": "2g",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "2",
    "spark.sql.session.timeZone": "UTC",
}
"""The settings of a test session: two cores, no UI, loopback only, few and small shuffles."""

_DELTA_AND_ICEBERG: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension,"
    "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.databricks.delta.snapshotPartitions": "2",
    "spark.sql.catalog.iceberg": "org.apache.iceberg.spark.SparkCatalog",
    "spark.sql.catalog.iceberg.type": "hadoop",
    "spark.sql.catalog.iceberg.cache-enabled": "false",
}
_HUDI: Final = {
    "spark.sql.extensions": "org.apache.spark.sql.hudi.HoodieSparkSessionExtension",
    "spark.serializer": "org.apache.spark.serializer.KryoSerializer",
    "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
    "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
    "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
}
_FORMATS: Final[Mapping[str, Mapping[str, str]]] = {"4.1": _DELTA_AND_ICEBERG, "3.5": _HUDI}
"""The settings of the table formats of each Spark line."""


def spark_jars() -> list[Path]:
    """Return the jars that Spark needs in addition to its own; the first call fetches them."""
    return fetch_pins("spark" if LINE == "4.1" else f"spark-{LINE}", jars.pins())


def session_jars() -> list[Path]:
    """Return the jars of a test session: those of Spark, and drivers of databases."""
    return [*spark_jars(), *fetch("sqlite"), *fetch("mariadb-client")]


def spark_settings(work: Path, **changes: str) -> dict[str, str]:
    """Return the settings of a local session with its warehouse and temporary files under ``work``."""
    # Derby would otherwise write its log and its metastore into the current folder.
    # With little data the optimizing compiler would take a third of the CPU time. Without it the code cache has 48 MB
    # by default; the generated code of some dozen queries fills it, and from then on everything is interpreted.
    java_options = (
        f"-Dderby.system.home={work} -Djava.io.tmpdir={work} -XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=240m"
    )
    return {
        **LOCAL_SETTINGS,
        **_FORMATS[LINE],
        "spark.jars": ",".join(str(path) for path in session_jars()),
        "spark.sql.warehouse.dir": str(work / "warehouse"),
        "spark.sql.catalog.iceberg.warehouse": str(work / "iceberg"),
        "spark.local.dir": str(work),
        "spark.driver.extraJavaOptions": java_options,
        **changes,
    }


def spark_environment() -> dict[str, str]:
    """Return the environment variables of a Spark program: this Python, a supported Java, the loopback address."""
    return {
        "PYSPARK_PYTHON": sys.executable,
        "PYSPARK_DRIVER_PYTHON": sys.executable,
        "JAVA_HOME": str(java_home()),
        "SPARK_LOCAL_IP": "127.0.0.1",
    }


def start_session(work: Path, **changes: str) -> SparkSession:
    """Start (or return the running) local session with its files under ``work``."""
    from pyspark.sql import SparkSession  # noqa: PLC0415 - importing it takes a second

    os.environ.update(spark_environment())
    builder: Any = SparkSession.builder.appName("tailrace-tests")
    for name, value in spark_settings(work, **changes).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    return session
