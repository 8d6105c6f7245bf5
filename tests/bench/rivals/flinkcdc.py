"""Flink CDC: a ``mysql-cdc`` table written to a topic as ``debezium-json``, on a mini cluster in one process."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from tests.bench import customer
from tests.bench.rivals.system import HEAP, PRODUCER, System
from tests.bench.stack import Program
from tests.embedded import artifacts
from tests.embedded.java import EmbeddedServerError, java, java_home

_LIST: Final = Path(__file__).with_name("artifacts.toml")
_SOURCE: Final = Path(__file__).with_name("FlinkCdcJob.java")
_PARALLELISM: Final = "2"
_CHECKPOINTS: Final = "1s"
_OPENED: Final = ("lang", "lang.invoke", "lang.reflect", "io", "net", "nio", "time", "util", "util.concurrent", "text")
"""Packages of Java that Flink's serializers look into."""


class FlinkCdc(System):
    """Larger chunks and batches than by default, as for a high rate; two tasks; at least once."""

    title = "Flink CDC"
    topic = "flinkcdc"
    update_records = 2

    def start(self) -> Program:
        """Start the job; after the first start it resumes from its newest checkpoint."""
        folder = self.servers.work / "flinkcdc"
        if not folder.exists():
            folder.mkdir()
            self.servers.kafka.create_topic(self.topic)
            _compile(folder)
            (folder / "job.sql").write_text(self._statements(), encoding="utf-8")
        classpath = os.pathsep.join([str(folder), _libraries()])
        opened = [part for name in _OPENED for part in ("--add-opens", f"java.base/java.{name}=ALL-UNNAMED")]
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        command: list[str | Path] = [java(), *HEAP, *opened, logging, "-cp", classpath, "FlinkCdcJob"]
        command += [folder / "job.sql", folder / "checkpoints", _PARALLELISM, _CHECKPOINTS]
        return self.servers.start("flinkcdc", command)

    def _statements(self) -> str:
        mysql = self.servers.mysql
        columns = [f"`{name}` {_type(declared)}" for name, declared, _ in customer.COLUMNS]
        key = customer.COLUMNS[0][0]
        source = {
            "connector": "mysql-cdc",
            "hostname": mysql.host,
            "port": str(mysql.port),
            "username": mysql.capture_user,
            "password": mysql.capture_password,
            "database-name": customer.DATABASE,
            "table-name": customer.TABLE,
            "server-id": "5410-5419",
            "server-time-zone": "UTC",
            "jdbc.properties.allowPublicKeyRetrieval": "true",
            "jdbc.properties.useSSL": "false",
            "scan.incremental.snapshot.chunk.size": "65536",
            "scan.snapshot.fetch.size": "16384",
            "debezium.max.batch.size": "16384",
            "debezium.max.queue.size": "65536",
            "debezium.poll.interval.ms": "50",
        }
        sink = {
            "connector": "kafka",
            "topic": self.topic,
            "properties.bootstrap.servers": self.servers.kafka.bootstrap,
            "key.format": "json",
            "key.fields": key,
            "value.format": "debezium-json",
            "sink.delivery-guarantee": "at-least-once",
            **{f"properties.{name}": value for name, value in PRODUCER.items()},
        }
        keyed = [*columns, f"PRIMARY KEY (`{key}`) NOT ENFORCED"]
        tables = [_table("source", keyed, source), _table("sink", columns, sink)]
        return "\n\n".join([*tables, "INSERT INTO `sink` SELECT * FROM `source`"])


def prepare() -> None:
    """Fetch the libraries. Raises EmbeddedServerError if there is no Java compiler."""
    _compiler()
    _libraries()


def _libraries() -> str:
    return os.pathsep.join(map(str, artifacts.fetch("flinkcdc", listing=_LIST)))


def _compiler() -> Path:
    found = java_home() / "bin" / "javac"
    named = found if found.is_file() else shutil.which("javac")
    if named is None:
        raise EmbeddedServerError(
            "Flink CDC needs a Java compiler (javac) for its job",
            hint="install one (Debian: apt-get install openjdk-17-jdk-headless), or run: ./run bench --rivals debezium",
        )
    return Path(named)


def _compile(folder: Path) -> None:
    subprocess.run([_compiler(), "-cp", _libraries(), "-d", folder, _SOURCE], check=True)


def _table(name: str, columns: list[str], options: Mapping[str, str]) -> str:
    given = ",\n  ".join(f"'{option}' = '{value}'" for option, value in options.items())
    listed = ",\n  ".join(columns)
    return f"CREATE TABLE `{name}` (\n  {listed}\n) WITH (\n  {given}\n)"


def _type(declared: str) -> str:
    return "INT NOT NULL" if "PRIMARY KEY" in declared else "INT" if declared.startswith("INT") else "STRING"
