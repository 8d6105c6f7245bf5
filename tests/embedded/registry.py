"""A real schema registry with Confluent's interface (Apicurio, in memory), on a free port."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import tempfile
from pathlib import Path
from types import TracebackType
from typing import Any, Final, Self
from urllib.error import HTTPError, URLError
from urllib.request import ProxyHandler, Request, build_opener

from tests.embedded import leash
from tests.embedded.artifacts import fetch, unpack_once, unpack_tar
from tests.embedded.java import EmbeddedServerError, java

VERSION: Final = "2.6.13"

_API: Final = "/apis/ccompat/v7"
_OPENER: Final = build_opener(ProxyHandler({}))


class SchemaRegistry:
    """One registry on 127.0.0.1 that forgets everything when it stops; a context manager starts and stops it."""

    def __init__(self, *, port: int | None = None, heap_mb: int = 256) -> None:
        self.port = port or leash.free_port()
        self._heap_mb = heap_mb
        self._directory = Path(tempfile.mkdtemp(prefix="tailrace-registry-"))
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
    def url(self) -> str:
        """The root of the interface: what ``schema.registry.url`` names."""
        return f"http://127.0.0.1:{self.port}{_API}"

    def start(self, *, deadline_s: float = 120) -> Self:
        """Start the registry and wait until it answers."""
        command: list[str | Path] = [
            java(),
            f"-Xmx{self._heap_mb}m",
            "-Dquarkus.http.host=127.0.0.1",
            f"-Dquarkus.http.port={self.port}",
            "-cp",
            os.pathsep.join(map(str, _jars())),
            "io.quarkus.runner.GeneratedMain",
        ]
        with (self._directory / "registry.log").open("ab") as log:
            self._process = leash.spawn(command, output=log, cwd=self._directory)
        leash.wait_until(self._serves, what="an answer of the schema registry", deadline_s=deadline_s, pause_s=0.2)
        return self

    def stop(self) -> None:
        """Stop the registry; what it knew is gone."""
        if self._process is not None:
            leash.end(self._process, grace_s=10)

    def close(self) -> None:
        """Stop the registry and remove its files."""
        if self._process is not None:
            leash.kill(self._process)
        shutil.rmtree(self._directory, ignore_errors=True)

    def ask(self, path: str, body: object = None, *, method: str | None = None) -> Any:
        """Return the answer to a request under ``url``. Raises HTTPError where it is refused."""
        data = None if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/vnd.schemaregistry.v1+json"}
        request = Request(self.url + path, data=data, headers=headers, method=method)  # noqa: S310 - http, to itself
        with _OPENER.open(request, timeout=30) as response:
            return json.loads(response.read())

    def schema(self, schema_id: int) -> Any:
        """Return the Avro schema of an id."""
        return json.loads(self.ask(f"/schemas/ids/{schema_id}")["schema"])

    def _serves(self) -> bool:
        if self._process is None or self._process.poll() is not None:
            log = (self._directory / "registry.log").read_text(encoding="utf-8", errors="replace")
            raise EmbeddedServerError("the schema registry did not start", hint="read its log", log=log[-3000:])
        try:
            self.ask("/subjects")
        except (HTTPError, URLError, OSError, ValueError):
            return False
        return True


def _jars() -> list[Path]:
    """Return the registry's jars, unpacked into the cache the first time."""

    def unpack(folder: Path) -> None:
        [archive] = fetch("registry")
        with archive.open("rb") as stream:
            unpack_tar(stream, folder)

    return sorted(unpack_once(f"registry-{VERSION}", unpack).rglob("*.jar"))
