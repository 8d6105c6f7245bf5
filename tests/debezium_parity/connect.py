"""A standalone Kafka Connect worker that runs Debezium MySQL connectors."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from tests.debezium_parity.artifacts import connect_classpath, plugin_path
from tests.embedded.java import EmbeddedServerError, java
from tests.embedded.server import Launch, SupervisedServer

CONNECTOR_CLASS: Final = "io.debezium.connector.mysql.MySqlConnector"


class ConnectWorker(SupervisedServer):
    """A Connect process on 127.0.0.1, controlled through its REST interface. A context manager."""

    kind = "connect"
    title = "Kafka Connect"
    pause_s = 0.3
    main: str = "org.apache.kafka.connect.cli.ConnectStandalone"

    def __init__(self, bootstrap: str, *, heap_mb: int = 768) -> None:
        super().__init__()
        self._bootstrap = bootstrap
        self._heap_mb = heap_mb

    @property
    def offset_file(self) -> Path:
        """The file with the connectors' offsets."""
        return self.directory / "offsets"

    def storage(self) -> Mapping[str, object]:
        """Return the settings for the storage of offsets."""
        return {"offset.storage.file.filename": self.offset_file}

    def _launch(self) -> Launch:
        settings = {
            "bootstrap.servers": self._bootstrap,
            "listeners": f"http://127.0.0.1:{self.port}",
            "offset.flush.interval.ms": 1000,
            "plugin.path": plugin_path(),
            "plugin.discovery": "service_load",
            "key.converter": "org.apache.kafka.connect.json.JsonConverter",
            "value.converter": "org.apache.kafka.connect.json.JsonConverter",
            **self.storage(),
        }
        properties = self.directory / "worker.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in settings.items()), encoding="utf-8")
        command: list[str | Path] = [java(), "-Xms128m", f"-Xmx{self._heap_mb}m", "-XX:+UseSerialGC"]
        command += ["-XX:TieredStopAtLevel=1", "-Duser.timezone=UTC"]
        command += ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.showDateTime=true"]
        command += ["-cp", connect_classpath(), self.main, properties]
        return Launch(command)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Start connector ``name`` with ``config``."""
        self._request("PUT", f"/connectors/{name}/config", dict(config))

    def remove(self, name: str) -> None:
        """Delete connector ``name``; its offsets stay."""
        self._request("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """Raise an error if connector ``name`` or its task has failed."""
        status = self._request("GET", f"/connectors/{name}/status")
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise EmbeddedServerError(f"connector {name} failed", hint="read its trace", trace=part.get("trace"))

    def _answers(self) -> bool:
        try:
            return bool(self._request("GET", "/"))
        except (urllib.error.URLError, OSError):
            return False

    def _request(self, method: str, path: str, body: Mapping[str, str] | None = None) -> Any:
        request = urllib.request.Request(
            f"http://127.0.0.1:{self.port}{path}",
            data=None if body is None else json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
            method=method,
        )
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:  # noqa: S310
                text = answer.read()
        except urllib.error.HTTPError as error:
            if error.code == 409 or path == "/":
                raise
            raise EmbeddedServerError(
                f"Kafka Connect refused {method} {path}", hint="read its answer", answer=error.read().decode()
            ) from error
        return json.loads(text) if text else None
