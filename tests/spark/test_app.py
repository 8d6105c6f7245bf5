"""The program as a process: status, an orderly stop on SIGTERM, error messages."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.spark import spark_environment, spark_settings
from tests.spark.records import Feed, table_schema
from tests.spark.running import APP, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def status(port: int) -> dict[str, Any]:
    """Return /status, or nothing while the server does not answer."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/status", timeout=30) as answer:
            body: dict[str, Any] = json.load(answer)
            return body
    except OSError:
        return {}


@pytest.mark.timeout(1800)
def test_sigterm_stops_the_query_after_the_batch_and_status_shows_progress(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    feed = Feed(kafka_broker, prefix)
    table = feed.table(table_schema(prefix, "t"))
    feed.write(table.change("c", None, {"id": 1, "name": "a"}, pos=100))
    port = supervised.free_port()
    given = settings(kafka_broker, prefix, tmp_path, monitor__port=port, trigger__availableNow="false")
    file = tmp_path / "consumer.json"
    file.write_text(json.dumps({**given, **spark_settings(tmp_path), "spark.driver.memory": "1g"}), encoding="utf-8")
    with (tmp_path / "app.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, str(APP), "--config", str(file)],
            env={**os.environ, **spark_environment()},
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
        try:
            supervised.wait_until(
                lambda: status(port).get("tables", {}).get(table.schema.topic, {}).get("records_applied") == 1,
                what="the row",
                deadline_s=900,
            )
            command = [sys.executable, "-c", "from tailrace.runtime.cli import main; main()", "status"]
            shown = subprocess.run([*command, "--consumer", str(file)], capture_output=True, text=True, check=False)
            process.send_signal(signal.SIGTERM)
            code = process.wait(300)
        finally:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()

    assert code == 0, (tmp_path / "app.log").read_text(encoding="utf-8")[-3000:]
    assert table_rows(spark, tmp_path, "t") == {1: {"id": 1, "name": "a"}}
    assert shown.returncode == 0, shown
    assert f"consumer tailrace-{prefix} at 127.0.0.1:{port}: running" in shown.stdout
    assert f"  {table.schema.topic}  streaming          1        0" in shown.stdout


def test_invalid_configuration_is_a_message_and_an_exit_code(tmp_path: Path) -> None:
    file = tmp_path / "consumer.properties"
    file.write_text("bootstrap.server=b:1\nsink=delta\n", encoding="utf-8")

    done = subprocess.run(
        [sys.executable, str(APP), "--config", str(file)], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert done.returncode == 78
    assert "did you mean bootstrap.servers?" in done.stderr
    assert "Traceback" not in done.stderr
