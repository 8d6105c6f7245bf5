"""The HTTP endpoints of a process: /status, /metrics, /livez, /readyz.

Tornado serves them on one thread: a connection costs no thread, and a request must be complete ``REQUEST_TIMEOUT_S``
after its connection is open, and its response taken in the same time. So slow clients keep nobody out. Probes are
answered on that thread; /status and /metrics, which take longer with many tables, on others.
"""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, NamedTuple

import orjson
from prometheus_client import (
    CONTENT_TYPE_LATEST,
    CollectorRegistry,
    Info,
    PlatformCollector,
    ProcessCollector,
    generate_latest,
)
from prometheus_client.registry import Collector
from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.netutil import bind_sockets
from tornado.web import Application, RequestHandler

from tailrace.runtime.errors import ConfigError, PortInUseError
from tailrace.runtime.versions import program_version

REQUEST_TIMEOUT_S: Final = 10.0
"""A client whose request is not complete so long after it connected, or after its last response, is disconnected.

So is one that has not taken a response so long after it was written.
"""

_MAX_REQUEST: Final = 16 << 10
"""Bytes of the head of a request, and of its body, which no endpoint reads."""

_TEXT: Final = "text/plain; charset=utf-8"


@dataclass(frozen=True, slots=True)
class Endpoints:
    """What the endpoints return."""

    status: Callable[[], Mapping[str, Any]]
    metrics: CollectorRegistry
    is_live: Callable[[], bool]
    is_ready: Callable[[], bool]

    def response(self, path: str) -> Response:
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


def program_registry(program: str, status: Collector) -> CollectorRegistry:
    """Return the metrics of this process: the status of the program, its version, memory and CPU, Python's version."""
    made = CollectorRegistry(auto_describe=False)
    made.register(status)
    info = Info("tailrace_build", "1 for the program that runs, and its version", registry=made)
    info.info({"program": program, "version": program_version()})
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    return made


_FOREIGN: Final = Response(403, _TEXT, b"the Host header names another host; ask for localhost or an address\n")


def _probe(word: str, good: bool) -> Response:
    return Response(200, _TEXT, f"{word}\n".encode()) if good else Response(503, _TEXT, f"not {word}\n".encode())


class HttpServer:
    """Serves the endpoints on a thread of its own until it is closed. Port 0 is any free port.

    On a loopback address a request must name localhost or an address in ``Host``: otherwise a page of another site,
    whose name resolves to this machine, could read the answers in a browser.
    """

    def __init__(
        self,
        endpoints: Endpoints,
        *,
        address: str,
        port: int,
        port_property: str,
        request_timeout_s: float = REQUEST_TIMEOUT_S,
    ) -> None:
        """Raises PortInUseError or ConfigError, with ``port_property``, if the port cannot be opened."""
        try:
            self._sockets = bind_sockets(port, address)
        except OSError as error:
            problem = f"{port_property}: port {port} of {address} cannot be opened: {error.strerror}"
            if error.errno in {errno.EADDRINUSE, errno.EADDRNOTAVAIL}:
                hint = "end what listens there, wait until this machine has the address, or choose another one"
                raise PortInUseError(problem, hint=hint) from None
            raise ConfigError([problem]) from None
        self.port = int(self._sockets[0].getsockname()[1])
        local = all(ipaddress.ip_address(each.getsockname()[0]).is_loopback for each in self._sockets)
        arguments = {"endpoints": endpoints, "any_host": not local, "timeout_s": request_timeout_s}
        self._application = Application([(".*", _Handler, arguments)], log_function=lambda _handler: None)
        self._request_timeout_s = request_timeout_s
        self._loop = asyncio.new_event_loop()
        self._closing = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name="http", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=lambda: self._loop) as runner:
            runner.run(self._serve())

    async def _serve(self) -> None:
        server = HTTPServer(
            self._application,
            idle_connection_timeout=self._request_timeout_s,
            body_timeout=self._request_timeout_s,
            max_header_size=_MAX_REQUEST,
            max_body_size=_MAX_REQUEST,
        )
        server.add_sockets(self._sockets)
        await self._closing.wait()
        server.stop()
        await server.close_all_connections()

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._closing.set)
        self._thread.join()

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


class _Handler(RequestHandler):
    """Answers GET and HEAD requests."""

    def initialize(self, endpoints: Endpoints, *, any_host: bool, timeout_s: float) -> None:
        """Tornado calls this for each request."""
        self._timeout_s = timeout_s
        self._endpoints = endpoints
        self._any_host = any_host

    async def get(self) -> None:
        """Answer one request; Tornado leaves out the body of a response to HEAD."""
        if not (self._any_host or _is_local(self.request.host_name)):
            await self._send(_FOREIGN)
        elif self.request.path in {"/status", "/metrics"}:
            await self._send(await asyncio.to_thread(self._endpoints.response, self.request.path))
        else:
            await self._send(self._endpoints.response(self.request.path))

    head = get

    async def _send(self, response: Response) -> None:
        self.set_status(response.status)
        self.set_header("Content-Type", response.content_type)
        connection = self.request.connection
        assert isinstance(connection, HTTP1Connection), "no other protocol is served"
        written = self.finish(response.body)
        # Tornado has no deadline for this: it would keep the body for as long as the client is connected.
        if not (await asyncio.wait([written], timeout=self._timeout_s))[0]:
            connection.stream.close()

    def compute_etag(self) -> None:
        """Return no ETag: nobody caches these answers."""

    def set_default_headers(self) -> None:
        """Do not name the server."""
        self.clear_header("Server")


def _is_local(host: str) -> bool:
    if host == "localhost":
        return True
    try:
        ipaddress.ip_address(host.strip("[]"))
    except ValueError:
        return False
    return True
