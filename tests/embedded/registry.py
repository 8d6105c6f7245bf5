"""A real schema registry with Confluent's API (Apicurio, in memory)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any, Final
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from tests.embedded.artifacts import fetch, unpack_once, unpack_tar
from tests.embedded.java import java
from tests.embedded.server import Launch, SupervisedServer

VERSION: Final = "2.6.13"

API: Final = "/apis/ccompat/v7"
_OPENER: Final = build_opener(ProxyHandler({}))


class SchemaRegistry(SupervisedServer):
    """One registry on 127.0.0.1. It keeps its schemas in memory until it stops."""

    kind = "registry"
    title = "the schema registry"
    grace_s = 10
    pause_s = 0.2

    def __init__(self, *, port: int | None = None, heap_mb: int = 256) -> None:
        super().__init__(port=port)
        self._heap_mb = heap_mb

    @property
    def url(self) -> str:
        """The root of the API: the value of ``schema.registry.url``."""
        return f"http://{self.host}:{self.port}{API}"

    def request(self, path: str, body: object = None, *, method: str | None = None) -> Any:
        """Return the response to a request under ``url``. Raises HTTPError for an error status."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - http, to itself
        with _OPENER.open(request, timeout=60) as response:
            return json.loads(response.read())

    def schema(self, schema_id: int) -> Any:
        """Return the Avro schema of an id."""
        return json.loads(self.request(f"/schemas/ids/{schema_id}")["schema"])

    def _launch(self) -> Launch:
        command: list[str | Path] = [
            java(),
            f"-Xmx{self._heap_mb}m",
            f"-Dquarkus.http.host={self.host}",
            f"-Dquarkus.http.port={self.port}",
            "-cp",
            os.pathsep.join(map(str, _jars())),
            "io.quarkus.runner.GeneratedMain",
        ]
        return Launch(command)

    def _answers(self) -> bool:
        try:
            self.request("/subjects")
        except (HTTPError, URLError, OSError, ValueError):
            return False
        return True


def prepare() -> None:
    """Put everything that a start needs into the cache."""
    _jars()


def _jars() -> list[Path]:
    """Return the registry's jars; the first call unpacks them into the cache."""

    def unpack(folder: Path) -> None:
        [archive] = fetch("registry")
        with archive.open("rb") as stream:
            unpack_tar(stream, folder)

    return sorted(unpack_once(f"registry-{VERSION}", unpack).rglob("*.jar"))
