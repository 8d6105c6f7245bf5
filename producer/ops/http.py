"""The HTTP port for people, Prometheus and orchestrators: /status, /metrics, /livez, /readyz."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Final

import orjson

from tailrace.producer.ops.metrics import exposition, registry
from tailrace.producer.ops.status import Status
from tailrace.runtime.errors import ConfigError

_TEXT: Final = "text/plain; charset=utf-8"


class HttpServer:
    """Serves one status in a thread of its own; port 0 opens nothing unless ``any_port``."""

    def __init__(self, status: Status, *, address: str, port: int, any_port: bool = False) -> None:
        self._server: ThreadingHTTPServer | None = None
        if port == 0 and not any_port:
            return
        metrics = registry(status)

        class Handler(BaseHTTPRequestHandler):
            """Answers GET from the status; there is nothing else to ask."""

            def do_GET(self) -> None:
                """Answer one request."""
                path = self.path.partition("?")[0]
                if path == "/status":
                    body = orjson.dumps(status.snapshot(), option=orjson.OPT_INDENT_2 | orjson.OPT_APPEND_NEWLINE)
                    self._answer(200, "application/json", body)
                elif path == "/metrics":
                    self._answer(200, "text/plain; version=0.0.4; charset=utf-8", exposition(metrics))
                elif path == "/livez":
                    self._answer(200, _TEXT, b"live\n")
                elif path == "/readyz":
                    ready = status.ready
                    self._answer(200 if ready else 503, _TEXT, b"ready\n" if ready else b"not ready\n")
                else:
                    self._answer(404, _TEXT, b"/status /metrics /livez /readyz\n")

            def _answer(self, code: int, kind: str, body: bytes) -> None:
                self.send_response(code)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
                """Keep requests out of the log: probes come every few seconds."""

        try:
            self._server = ThreadingHTTPServer((address, port), Handler)
        except OSError as error:
            fault = f"tailrace.http.port: port {port} of {address} cannot be opened: {error.strerror}"
            raise ConfigError([fault]) from None
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="http", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is open, or 0."""
        return int(self._server.server_address[1]) if self._server is not None else 0

    def close(self) -> None:
        """Stop serving."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._thread.join()
            self._server = None

    def __enter__(self) -> HttpServer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
