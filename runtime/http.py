"""The HTTP endpoints of a process: /status, /metrics, /livez, /readyz.

The server of the standard library is enough for four read-only endpoints; a web framework would add dependencies.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Final, NamedTuple

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from tailrace.runtime.errors import ConfigError

CONNECTIONS: Final = 32
"""Connections that are served at once."""
TIMEOUT_S = 10.0
"""A client that sends nothing for so long is disconnected."""

_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the endpoints return."""

    status: Callable[[], Mapping[str, Any]]
    metrics: CollectorRegistry
    is_live: Callable[[], bool]
    is_ready: Callable[[], bool]

    def response(self, path: str) -> Response:
        """Return the response to a request."""
        match path:
            case "/status":
                body = orjson.dumps(self.status(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
                return Response(200, "application/json", body)
            case "/metrics":
                return Response(200, CONTENT_TYPE_LATEST, generate_latest(self.metrics))
            case "/livez":
                return _probe("live", self.is_live())
            case "/readyz":
                return _probe("ready", self.is_ready())
        return Response(404, _TEXT, b"/status /metrics /livez /readyz\n")


class Response(NamedTuple):
    """The response to a request."""

    status: int
    content_type: str
    body: bytes


def _probe(word: str, good: bool) -> Response:
    return Response(200, _TEXT, f"{word}\n".encode()) if good else Response(503, _TEXT, f"not {word}\n".encode())


class HttpServer:
    """Serves the endpoints on a thread of its own until it is closed. Port 0 is any free port."""

    def __init__(self, endpoints: Endpoints, *, address: str, port: int, port_property: str) -> None:
        """Raises ConfigError with the name of ``port_property`` if the port cannot be opened."""
        try:
            self._server = _Server((address, port), _handler(endpoints))
        except OSError as error:
            problem = f"{port_property}: port {port} of {address} cannot be opened: {error.strerror}"
            raise ConfigError([problem]) from None
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The open port."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Server(ThreadingHTTPServer):
    """Serves a bounded number of connections at once; those above are closed at once."""

    daemon_threads = True
    request_queue_size = 64

    def __init__(self, address: tuple[str, int], handler: type[BaseHTTPRequestHandler]) -> None:
        self._free = threading.BoundedSemaphore(CONNECTIONS)
        super().__init__(address, handler)

    def process_request(self, request: Any, client_address: Any) -> None:
        """Start a thread for a connection, if one is free."""
        if not self._free.acquire(blocking=False):
            self.shutdown_request(request)
            return
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._free.release()
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._free.release()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing of a client that is gone or does not speak HTTP."""


def _handler(endpoints: Endpoints) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET and HEAD requests."""

        timeout = TIMEOUT_S

        def do_GET(self) -> None:
            """Answer one request."""
            self.wfile.write(self._write_head().body)

        def do_HEAD(self) -> None:
            """Answer one request without the body."""
            self._write_head()

        def _write_head(self) -> Response:
            response = endpoints.response(self.path.partition("?")[0])
            self.send_response(response.status)
            self.send_header("Content-Type", response.content_type)
            self.send_header("Content-Length", str(len(response.body)))
            self.end_headers()
            return response

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the name of the base class
            """Do not log requests: probes arrive every few seconds."""

    return Handler
