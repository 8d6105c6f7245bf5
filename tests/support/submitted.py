"""The consumer under spark-submit on a standalone cluster, by the command of docs/consumer.md."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Self

from tests.docs.pages import blocks
from tests.docs.samples import ROOT
from tests.embedded import supervised
from tests.embedded.spark import spark_environment, spark_jars, spark_settings
from tests.embedded.spark_cluster import SPARK_HOME, SparkCluster
from tests.support.driver_process import DriverProcess

PAGE: Final = ROOT / "docs" / "consumer.md"
_SUBMIT: Final = re.compile(r"^spark-submit .*", re.MULTILINE | re.DOTALL)


def documented_command() -> str:
    """Return the command of the page that submits to a cluster."""
    [text] = [block.text for block in blocks(PAGE) if block.language == "sh" and "spark://master:7077" in block.text]
    found = _SUBMIT.search(text)
    assert found is not None
    return found[0]


class SubmittedConsumer(DriverProcess):
    """A driver in its own process, in client mode; its executors are processes of the workers."""

    def __init__(self, cluster: SparkCluster, archive: Path, given: Mapping[str, str], folder: Path) -> None:
        """``given`` is the configuration of the consumer."""
        self._cluster = cluster
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        super().__init__(folder / "driver.log")
        self._config = folder / "consumer.json"
        self._config.write_text(json.dumps(dict(given)), encoding="utf-8")
        self._command = self._paths(documented_command(), archive)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._process is not None:
            supervised.kill(self._process)

    def start(self) -> None:
        """Submit; the output of the driver goes to ``log``."""
        inherited = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "PYSPARK"))}
        path = f"{SPARK_HOME / 'bin'}{os.pathsep}{os.environ['PATH']}"
        own = {"SPARK_HOME": str(SPARK_HOME), "SPARK_CONF_DIR": str(self._configuration()), "PATH": path}
        own["PYSPARK_PYTHON"] = "/none"  # what executors would start: the workers of a cluster may have no Python
        with self.log.open("ab") as output:
            self._process = supervised.spawn(
                ["/bin/sh", "-c", f"exec {self._command}"],
                output=output,
                env={**inherited, **spark_environment(), **own},
                cwd=ROOT,
            )

    def batches(self) -> int:
        """Return how many batches the driver has applied."""
        return self.log_text().count('"event":"batch applied"') if self.log.exists() else 0

    def log_text(self) -> str:
        """Return the log of all starts."""
        return self.log.read_text(encoding="utf-8", errors="replace")

    def _paths(self, command: str, archive: Path) -> str:
        """Return the command with the paths of this machine."""
        jars = ",".join(str(path) for path in spark_jars())
        for written, own in {
            "spark://master:7077": self._cluster.master.url,
            "\"$(echo jars/*.jar | tr ' ' ',')\"": jars,
            "dist/tailrace-spark.zip": str(archive),
            "consumer.json": str(self._config),
        }.items():
            assert command.count(written) == 1, f"{PAGE.name} has no {written}"
            command = command.replace(written, own)
        return command

    def _configuration(self) -> Path:
        """Return a folder with settings that belong to this machine and not to the consumer."""
        folder = self._folder / "conf"
        folder.mkdir(exist_ok=True)
        local = spark_settings(self._folder)
        kept = ("spark.driver.host", "spark.driver.bindAddress", "spark.ui.enabled", "spark.local.dir")
        conf = {name: local[name] for name in kept}
        conf |= {"spark.driver.memory": "1g", "spark.executor.memory": "700m", "spark.sql.shuffle.partitions": "2"}
        conf |= {"spark.driver.extraJavaOptions": local["spark.driver.extraJavaOptions"]}
        conf |= {"spark.executor.extraJavaOptions": "-XX:TieredStopAtLevel=1", "spark.log.level": "WARN"}
        conf |= {"spark.databricks.delta.snapshotPartitions": "2"}
        lines = "".join(f"{name} {value}\n" for name, value in conf.items())
        (folder / "spark-defaults.conf").write_text(lines, encoding="utf-8")
        return folder
