"""Debezium's MySQL connector in a standalone Kafka Connect worker."""

from __future__ import annotations

from collections.abc import Mapping

from tests.bench import customer
from tests.bench.rivals.system import HEAP, PRODUCER, System
from tests.bench.stack import Program
from tests.debezium_parity.artifacts import connect_classpath, plugin_path
from tests.debezium_parity.connect import CONNECTOR_CLASS
from tests.embedded import supervised
from tests.embedded.java import java

_PREFIX = "debezium"


class Debezium(System):
    """Larger batches than by default, as for a high rate; records without schemas."""

    title = "Debezium"
    topic = f"{_PREFIX}.{customer.DATABASE}.{customer.TABLE}"
    delete_records = 2

    def start(self) -> Program:
        """Start the worker with the connector."""
        folder = self.servers.work / _PREFIX
        folder.mkdir(exist_ok=True)
        mysql, bootstrap = self.servers.mysql, self.servers.kafka.bootstrap
        worker = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://127.0.0.1:{supervised.free_port()}",
            "offset.storage.file.filename": folder / "offsets",
            "offset.flush.interval.ms": 1000,
            "plugin.path": plugin_path(),
            "plugin.discovery": "service_load",
            "connector.client.config.override.policy": "All",
            **{f"{part}.converter": "org.apache.kafka.connect.json.JsonConverter" for part in ("key", "value")},
            **{f"{part}.converter.schemas.enable": "false" for part in ("key", "value")},
        }
        connector = {
            "name": _PREFIX,
            "connector.class": CONNECTOR_CLASS,
            "tasks.max": 1,
            "topic.prefix": _PREFIX,
            "database.hostname": mysql.host,
            "database.port": mysql.port,
            "database.user": mysql.capture_user,
            "database.password": mysql.capture_password,
            "database.allowPublicKeyRetrieval": "true",
            "database.ssl.mode": "disabled",
            "database.server.id": 5403,
            "database.include.list": customer.DATABASE,
            "schema.history.internal": "io.debezium.storage.file.history.FileSchemaHistory",
            "schema.history.internal.file.filename": folder / "history",
            "topic.creation.default.replication.factor": 1,
            "topic.creation.default.partitions": 1,
            "max.batch.size": 16384,
            "max.queue.size": 65536,
            "poll.interval.ms": 50,
            **{f"producer.override.{name}": value for name, value in PRODUCER.items()},
        }
        files = []
        for name, settings in (("worker", worker), ("connector", connector)):
            files.append(folder / f"{name}.properties")
            files[-1].write_text(_properties(settings), encoding="utf-8")
        main = "org.apache.kafka.connect.cli.ConnectStandalone"
        logging = "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn"
        return self.servers.start("debezium", [java(), *HEAP, logging, "-cp", connect_classpath(), main, *files])


def _properties(settings: Mapping[str, object]) -> str:
    return "".join(f"{name}={value}\n" for name, value in settings.items())
