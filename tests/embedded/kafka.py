"""A real Kafka broker (KRaft, one node) from public packages, with its own folder."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from tests.embedded import supervised
from tests.embedded.artifacts import fetch, unpack_once
from tests.embedded.java import EmbeddedServerError, java
from tests.embedded.server import Launch, SupervisedServer

if TYPE_CHECKING:
    from confluent_kafka.admin import AdminClient

VERSION: Final = "4.3.1"

SETTINGS: Final[Mapping[str, object]] = {
    "process.roles": "broker,controller",
    "node.id": 1,
    "controller.listener.names": "CONTROLLER",
    # A typing error in a topic name must fail, not create a topic.
    "auto.create.topics.enable": "false",
    "num.partitions": 1,
    "offsets.topic.num.partitions": 4,
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.num.partitions": 4,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.num.partitions": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "log.retention.ms": -1,
    "log.cleaner.dedupe.buffer.size": 16 * 1024 * 1024,
}
"""The settings of every broker; a test may replace any of them."""


class KafkaBroker(SupervisedServer):
    """One broker on 127.0.0.1 that is its own controller.

    ``settings`` are added to (or replace) SETTINGS; ``heap_mb`` limits the Java heap.
    """

    kind = "kafka"
    title = "Kafka"

    def __init__(
        self,
        *,
        settings: Mapping[str, object] | None = None,
        heap_mb: int = 512,
        port: int | None = None,
        controller_port: int | None = None,
        directory: Path | None = None,
    ) -> None:
        super().__init__(port=port, directory=directory)
        self.controller_port = controller_port or supervised.free_port()
        self._listen, self._advertised = self.host, f"{self.host}:{self.port}"
        self._settings: dict[str, object] = {**SETTINGS, **(settings or {})}
        self._heap_mb = heap_mb

    def listen(self, address: str, *, advertised: str) -> None:
        """Set the listening address and the advertised ``host:port``. Call it before the start."""
        self._listen, self._advertised = address, advertised

    @property
    def bootstrap(self) -> str:
        """The ``host:port`` for clients."""
        return f"{self.host}:{self.port}"

    def restart(self, **settings: object) -> Self:
        """Stop and start on the same data and port. ``settings`` (dots as underscores) keep their new values."""
        self.stop()
        self._settings.update({name.replace("_", "."): value for name, value in settings.items()})
        return self.start()

    def admin(self) -> AdminClient:
        """Return a new admin client of this broker."""
        from confluent_kafka.admin import AdminClient  # noqa: PLC0415 - unit tests load this module without a client

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0})

    def create_topic(self, name: str, *, partitions: int = 1, settings: Mapping[str, str] | None = None) -> None:
        """Create a topic and wait until the broker leads its partitions: records before that may be lost."""
        from confluent_kafka import KafkaException, TopicPartition  # noqa: PLC0415
        from confluent_kafka.admin import OffsetSpec  # type: ignore[attr-defined] # noqa: PLC0415
        from confluent_kafka.cimpl import NewTopic  # noqa: PLC0415

        topic = NewTopic(name, num_partitions=partitions, replication_factor=1, config=dict(settings or {}))
        admin = self.admin()  # a reference: its requests end with it
        admin.create_topics([topic])[name].result(120)

        def led() -> bool:
            newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            wanted = {TopicPartition(name, number): newest for number in range(partitions)}
            try:
                return all(answer.result(60) is not None for answer in admin.list_offsets(wanted).values())
            except KafkaException:
                return False

        supervised.wait_until(led, what=f"the leaders of {name}", deadline_s=120, pause_s=0.01)

    def _end_old_session(self, data: Path) -> None:
        """Run the controller alone until it has fenced the killed broker, before the broker starts again.

        A broker that is its own controller is still registered as alive after a crash. It begins to complete its
        transactions and is fenced meanwhile. Then it regards their partitions as deleted, and transactions that were
        committed just before the crash stay open forever. This cannot happen to separate brokers.
        """
        own: dict[str, object] = {"broker.session.timeout.ms": 500, "broker.heartbeat.interval.ms": 100}
        text = self._properties(data, **{"process.roles": "controller", **own})
        properties = self.directory / "controller.properties"
        properties.write_text(text, encoding="utf-8")
        log_file = self.directory / "controller.log"
        with log_file.open("wb") as log:
            options = ["-Dorg.slf4j.simpleLogger.log.org.apache.kafka.controller=info", "-Xmx256m"]
            command = _command("kafka.Kafka", properties, options=options)
            controller = supervised.spawn(command, output=log, cwd=self.directory)
        try:
            supervised.wait_until(
                lambda: "Fencing broker 1" in log_file.read_text(encoding="utf-8", errors="replace"),
                what="the end of the killed broker's session",
                deadline_s=300,
            )
        finally:
            supervised.end(controller, grace_s=30)

    def _launch(self) -> Launch:
        """Create empty data at the first start; after a crash, let the controller fence the old broker session."""
        data = self.directory / "data"
        if not data.is_dir():
            shutil.copytree(_template(), data)
        elif not (data / ".kafka_cleanshutdown").exists():
            self._end_old_session(data)
        properties = self.directory / "server.properties"
        properties.write_text(self._properties(data), encoding="utf-8")
        memory = [f"-Xms{min(self._heap_mb, 256)}m", f"-Xmx{self._heap_mb}m"]
        return Launch(_command("kafka.Kafka", properties, options=memory))

    def _answers(self) -> bool:
        from confluent_kafka import KafkaException  # noqa: PLC0415

        try:
            # The client library prints errors about a port that does not listen yet.
            socket.create_connection((self.host, self.port), timeout=1).close()
            return bool(self.admin().list_topics(timeout=10).brokers)
        except (OSError, KafkaException):
            return False

    def _properties(self, data: Path, **changes: object) -> str:
        own = {
            "listeners": f"PLAINTEXT://{self._listen}:{self.port},CONTROLLER://{self.host}:{self.controller_port}",
            "advertised.listeners": f"PLAINTEXT://{self._advertised}",
            "controller.quorum.voters": f"1@{self.host}:{self.controller_port}",
            "log.dirs": data,
            **self._settings,
            **changes,
        }
        if own["process.roles"] == "controller":
            own["listeners"] = f"CONTROLLER://{self.host}:{self.controller_port}"
            del own["advertised.listeners"]
        return "".join(f"{name}={value}\n" for name, value in own.items())


def classpath(*sections: str) -> str:
    """Return the Java class path of the jars in ``sections`` of the artifact list."""
    return os.pathsep.join(str(path) for section in sections for path in fetch(section))


def _command(main: str, *arguments: object, options: list[str] | None = None) -> list[str]:
    quiet = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
    return [str(java()), *(options or []), *quiet, "-cp", classpath("kafka"), main, *map(str, arguments)]


def prepare() -> None:
    """Put everything that a start needs into the cache."""
    classpath("kafka")
    _template()


def _template() -> Path:
    """Return a formatted, empty data folder. It is kept in the cache: formatting starts a second Java."""

    def format_storage(folder: Path) -> None:
        properties = folder.parent / f"{folder.name}.properties"
        own = {
            **SETTINGS,
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "log.dirs": folder,
        }
        properties.write_text("".join(f"{name}={value}\n" for name, value in own.items()), encoding="utf-8")
        command = _command("kafka.tools.StorageTool", "format", "-t", "dGFpbHJhY2UtY2x1c3Rlcg", "-c", properties)
        try:
            done = subprocess.run(command, capture_output=True, text=True, check=False)
        finally:
            properties.unlink()
        if done.returncode != 0:
            raise EmbeddedServerError(
                "Kafka could not format its data", hint="read its output", log=(done.stdout + done.stderr)[-3000:]
            )

    return unpack_once(f"kafka-{VERSION}-data", format_storage)
