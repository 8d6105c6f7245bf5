"""A Spark Connect server of the installed PySpark, in its own process."""

from __future__ import annotations

import os
import socket
from pathlib import Path

from tests.embedded.server import Launch, SupervisedServer
from tests.embedded.spark import spark_environment, spark_settings
from tests.embedded.spark_cluster import SPARK_HOME


class SparkConnectServer(SupervisedServer):
    """A local session that clients reach by gRPC."""

    kind = "spark-connect"
    grace_s = 10
    pause_s = 0.2

    @property
    def url(self) -> str:
        """The value of ``SparkSession.builder.remote``."""
        return f"sc://{self.host}:{self.port}"

    def _launch(self) -> Launch:
        own = {
            "spark.connect.grpc.binding.address": self.host,
            "spark.connect.grpc.binding.port": str(self.port),
            "spark.driver.memory": "1g",
        }
        properties = self.directory / "spark.properties"
        settings = spark_settings(self.directory, **own)
        properties.write_text("".join(f"{name} {value}\n" for name, value in settings.items()), encoding="utf-8")
        command: list[str | Path] = [SPARK_HOME / "bin" / "spark-submit", "--properties-file", properties]
        command += ["--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "spark-internal"]
        inherited = {key: value for key, value in os.environ.items() if not key.startswith(("PYSPARK", "SPARK"))}
        return Launch(command, {**inherited, **spark_environment(), "SPARK_HOME": str(SPARK_HOME)})

    def _answers(self) -> bool:
        with socket.socket() as probe:
            probe.settimeout(1)
            return probe.connect_ex((self.host, self.port)) == 0
