"""The Spark session: one table of jar coordinates per sink and Spark version, and the settings each sink needs.

Under spark-submit the session is there already with its master and jars; here only what must hold is added.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.config import ConsumerConfig

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCALA: Final = "2.13"

KAFKA: Final[Mapping[str, str]] = {
    "4.1": f"org.apache.spark:spark-sql-kafka-0-10_{SCALA}:4.1.3",
}
"""Spark version -> coordinates of its Kafka source and sink."""

SINK_JARS: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "delta": {"4.1": (f"io.delta:delta-spark_4.1_{SCALA}:4.4.0",)},
    "kafka": {"4.1": ()},
    "console": {"4.1": ()},
}
"""Sink -> Spark version -> coordinates; their own dependencies come with them."""

_DELTA: Final = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
}

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_LOCAL: Final = {
    "spark.master": "local[*]",
    "spark.driver.memory": "3g",
    # The jobs that make a table need not wait until all records of the batch are decoded (beside.py).
    "spark.scheduler.mode": "FAIR",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults of a session that nothing else configures."""


def coordinates(sink: str, spark_version: str) -> tuple[str, ...]:
    """Return the Maven coordinates that a sink needs on a Spark version.

    Raises ConfigError for a pair that does not exist.
    """
    line = ".".join(spark_version.split(".")[:2])
    if line not in KAFKA or line not in SINK_JARS[sink]:
        usable = ", ".join(sorted(SINK_JARS[sink]))
        raise ConfigError([f"the {sink} sink is not available for Spark {spark_version}; use Spark {usable}"])
    return (KAFKA[line], *SINK_JARS[sink][line])


def submitted() -> bool:
    """Tell whether spark-submit started this process, so that master and jars are its business."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def settings(config: ConsumerConfig, environment: Mapping[str, str], *, spark_version: str) -> dict[str, str]:
    """Return the session's settings; those of the configuration come last."""
    chosen: dict[str, str] = {"spark.sql.session.timeZone": "UTC"}
    if config.sink == "delta":
        chosen |= _DELTA
    if not submitted():
        chosen |= _LOCAL
        jars = environment.get("SPARK_JARS", "")
        if "spark.jars" not in config.spark and "spark.jars.packages" not in config.spark:
            if jars:
                chosen["spark.jars"] = ",".join(part for part in re.split(r"[,\s]+", jars) if part)
            else:
                chosen["spark.jars.packages"] = ",".join(coordinates(config.sink, spark_version))
    chosen |= dict(config.spark)
    if not submitted():
        chosen[_JAVA_OPTIONS] = _java_options(chosen.get(_JAVA_OPTIONS, ""), run_ends=config.available_now)
    return chosen


_LATE_COMPILATION: Final = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=4000 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=200000"
)
"""The optimizing compiler takes four times as many calls to begin: on few cores it took as much time as the tasks."""


_PLANNING_CODE: Final = Path(__file__).with_name("planning_code.directives")
"""What the optimizing compiler leaves alone in a run that ends: it would not live to gain from it."""


def _java_options(options: str, *, run_ends: bool) -> str:
    """Add what costs a batch job on few cores the least, unless it is chosen."""
    if not re.search(r"-XX:\+Use\w+GC", options):
        options = f"{options} -XX:+UseParallelGC"
    if "-XX:Tier" not in options:
        options = f"{options} {_LATE_COMPILATION}"
    if run_ends and "-XX:CompilerDirectivesFile" not in options and not re.search(r"\s", str(_PLANNING_CODE)):
        # The virtual machine says that it has read the file; stdout is for what a sink shows.
        options = (
            f"{options} -XX:+UnlockDiagnosticVMOptions -XX:+DisplayVMOutputToStderr "
            f"-XX:CompilerDirectivesFile={_PLANNING_CODE}"
        )
    return options.strip()


def build(config: ConsumerConfig) -> SparkSession:
    """Return the session."""
    import pyspark  # noqa: PLC0415 - takes a second; configuration faults are told before

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = pyspark.sql.SparkSession.builder.appName(config.name)
    for name, value in settings(config, os.environ, spark_version=pyspark.__version__).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    # Static settings of a session that already ran are not changed by the builder; this one can be and must.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
