"""A real Kafka Connect worker (standalone) that runs Debezium MySQL connectors, one per configuration given."""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
import urllib.error
import urllib.request
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self

from tests.embedded import leash
from tests.embedded.java import EmbeddedServerError, java
from tests.oracle.artifacts import connect_classpath, plugin_path

CONNECTOR_CLASS: Final = "io.debezium.connector.mysql.MySqlConnector"


class ConnectWorker:
    """One Connect process on 127.0.0.1; connectors are posted to it as to any other. A context manager."""

    main: str = "org.apache.kafka.connect.cli.ConnectStandalone"

    def __init__(self, bootstrap: str, *, heap_mb: int = 768) -> None:
        self.port = leash.free_port()
        self.directory = Path(tempfile.mkdtemp(prefix="tailrace-connect-"))
        self._bootstrap = bootstrap
        self._heap_mb = heap_mb
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def log_file(self) -> Path:
        """What the worker and its connectors say."""
        return self.directory / "connect.log"

    def storage(self) -> Mapping[str, object]:
        """Return where the worker keeps what it knows."""
        return {"offset.storage.file.filename": self.directory / "offsets"}

    def start(self, *, deadline_s: float = 120) -> Self:
        """Start the worker and wait until its REST interface answers."""
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
        with self.log_file.open("ab") as log:
            self._process = leash.spawn(command, output=log, cwd=self.directory)
        leash.wait_until(self._answers, what="an answer of Kafka Connect", deadline_s=deadline_s, pause_s=0.3)
        return self

    def close(self) -> None:
        """End the worker and remove its files."""
        if self._process is not None:
            leash.kill(self._process)
        shutil.rmtree(self.directory, ignore_errors=True)

    def put(self, name: str, config: Mapping[str, str]) -> None:
        """Start connector ``name`` with ``config``."""
        self._request("PUT", f"/connectors/{name}/config", dict(config))

    def remove(self, name: str) -> None:
        """Stop connector ``name`` and forget it; its offsets stay."""
        self._request("DELETE", f"/connectors/{name}")

    def check(self, name: str) -> None:
        """Raise where connector ``name`` or its task has failed."""
        status = self._request("GET", f"/connectors/{name}/status")
        for part in (status["connector"], *status["tasks"]):
            if part["state"] == "FAILED":
                raise EmbeddedServerError(f"connector {name} failed", hint="read its trace", trace=part.get("trace"))

    def _answers(self) -> bool:
        if self._process is not None and self._process.poll() is not None:
            log = self.log_file.read_text(encoding="utf-8", errors="replace")
            raise EmbeddedServerError("Kafka Connect did not start", hint="read its log", log=log[-4000:])
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
