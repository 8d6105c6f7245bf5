"""The Spark session: jars and settings of the Kafka source and of the sinks.

Under spark-submit the master and the jars are set by spark-submit; here only the settings are added that must hold.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.jvm import import_classes
from tailrace.spark_consumer.sink.plugin import SinkPlugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

KAFKA_JARS: Final[Mapping[str, tuple[str, ...]]] = {
    "4.1": ("org.apache.spark:spark-sql-kafka-0-10_2.13:4.1.3",),
    "3.5": ("org.apache.spark:spark-sql-kafka-0-10_2.12:3.5.7",),
}
"""Spark version to Maven coordinates of its Kafka source."""
_COMMON_LINE: Final = ("4.1",)
"""The version for sinks that need no jars: the one on which all of them are tested."""

_JAVA_OPTIONS: Final = "spark.driver.extraJavaOptions"
_CALL_SITES: Final = "spark.python.sql.dataFrameDebugging.enabled"
"""Whether errors show the lines that made a column: six calls to the JVM for each function of a column."""
_LOCAL: Final = {
    "spark.master": "local[*]",
    "spark.driver.memory": "3g",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
}
"""Defaults of a session that spark-submit has not started."""


def coordinates(plugins: Iterable[SinkPlugin], spark_version: str) -> tuple[str, ...]:
    """Return the Maven coordinates for some sinks and a Spark version; raises ConfigError if there are none."""
    line = ".".join(spark_version.split(".")[:2])
    found = dict.fromkeys(KAFKA_JARS.get(line, ()))
    problems = []
    for plugin in plugins:
        supported = [version for version in KAFKA_JARS if version in (plugin.jars or _COMMON_LINE)]
        if line not in supported:
            problems.append(
                f"the {plugin.name} sink is not available for Spark {spark_version}; use Spark {', '.join(supported)}"
            )
        found |= dict.fromkeys(plugin.jars.get(line, ()))
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)))
    return tuple(found)


_LISTS: Final = frozenset({"spark.sql.extensions", "spark.plugins", "spark.extraListeners"})
"""Settings that are lists: each sink adds its own entries."""


def required_settings(plugins: Iterable[SinkPlugin]) -> dict[str, str]:
    """Return the settings that some sinks need together; raises ConfigError if two need different values."""
    found: dict[str, str] = {}
    owners: dict[str, str] = {}
    problems = []
    for plugin in plugins:
        for name, value in plugin.spark_settings.items():
            if name in _LISTS:
                entries = [*found.get(name, "").split(","), *value.split(",")]
                found[name] = ",".join(dict.fromkeys(entry.strip() for entry in entries if entry.strip()))
            elif found.setdefault(name, value) != value:
                problems.append(
                    f"sinks: {owners[name]} needs {name}={found[name]}, and {plugin.name} needs {value}; use a query "
                    "for each"
                )
            owners.setdefault(name, plugin.name)
    if problems:
        raise ConfigError(problems)
    return found


def is_submitted() -> bool:
    """Return whether spark-submit has started this process; it then sets the master and the jars."""
    return "PYSPARK_GATEWAY_PORT" in os.environ


def settings(
    config: ConsumerConfig, plugins: Collection[SinkPlugin], environment: Mapping[str, str], *, spark_version: str
) -> dict[str, str]:
    """Return the settings of the session; the configuration overrides the defaults."""
    required = required_settings(plugins)
    merged: dict[str, str] = {"spark.sql.session.timeZone": "UTC", _CALL_SITES: "false", **required}
    if not is_submitted():
        merged |= _LOCAL
        jars = environment.get("SPARK_JARS", "")
        if "spark.jars" not in config.spark and "spark.jars.packages" not in config.spark:
            if jars:
                merged["spark.jars"] = ",".join(part for part in re.split(r"[,\s]+", jars) if part)
            else:
                merged["spark.jars.packages"] = ",".join(coordinates(plugins, spark_version))
    merged |= dict(config.spark)
    if not is_submitted():
        merged[_JAVA_OPTIONS] = _java_options(merged.get(_JAVA_OPTIONS, ""))
    return merged


_LATE_COMPILATION: Final = (
    "-XX:Tier4InvocationThreshold=20000 -XX:Tier4MinInvocationThreshold=4000 "
    "-XX:Tier4CompileThreshold=60000 -XX:Tier4BackEdgeThreshold=200000"
)
"""C2, the optimizing compiler, starts after four times as many calls: on few cores it took as long as the tasks."""


def _java_options(options: str) -> str:
    """Add JVM options that save CPU time on few cores, unless the configuration has set them."""
    if not re.search(r"-XX:\+Use\w+GC", options):
        options = f"{options} -XX:+UseParallelGC"
    if "-XX:MetaspaceSize" not in options:
        # By default the classes of a start cause two collections of the whole heap.
        options = f"{options} -XX:MetaspaceSize=256m"
    if "-XX:Tier" not in options:
        options = f"{options} {_LATE_COMPILATION}"
    return options.strip()


_REMOTE: Final = ("spark.remote", "spark.api.mode")
_REMOTE_VARIABLES: Final = ("SPARK_REMOTE", "SPARK_CONNECT_MODE_ENABLED")


def require_driver(config: ConsumerConfig, environment: Mapping[str, str]) -> None:
    """Raise ConfigError if the session would be one of Spark Connect: the query runs in the driver of its session."""
    found = [f"{name}={config.spark[name]}" for name in _REMOTE if config.spark.get(name, "classic") != "classic"]
    found += [f"{name}={environment[name]}" for name in _REMOTE_VARIABLES if environment.get(name)]
    if found:
        raise ConfigError(
            [
                f"{name}: the consumer cannot run through Spark Connect; remove it, and start the consumer with "
                "tailrace consume or spark-submit. The functions of the library can (docs/library.md)"
                for name in found
            ]
        )


def build(config: ConsumerConfig, plugins: Collection[SinkPlugin]) -> SparkSession:
    """Return the session. Raises ConfigError for a session of Spark Connect."""
    require_driver(config, os.environ)
    import pyspark  # noqa: PLC0415 - importing all of it takes a second; configuration errors are reported before

    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder: Any = pyspark.sql.SparkSession.builder.appName(config.name)
    for name, value in settings(config, plugins, os.environ, spark_version=pyspark.__version__).items():
        builder = builder.config(name, value)
    session: SparkSession = builder.getOrCreate()
    import_classes(session)
    # The builder does not change a session that is already running; the time zone must hold there too.
    session.conf.set("spark.sql.session.timeZone", "UTC")
    return session
