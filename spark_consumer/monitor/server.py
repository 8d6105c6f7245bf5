"""HTTP: /status (JSON), /metrics (Prometheus), /livez and /readyz."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import orjson
from prometheus_client import CONTENT_TYPE_LATEST, generate_latest

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.monitor.status import Status


class MonitorServer:
    """Serves a status on a thread of its own until closed."""

    def __init__(self, status: Status, host: str, port: int) -> None:
        try:
            self._server = ThreadingHTTPServer((host, port), _handler(status))
        except OSError as error:
            raise ConfigError([f"monitor.port: {host}:{port} cannot be listened on: {error.strerror}"]) from error
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="monitor", daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """The port that is listened on."""
        return int(self._server.server_address[1])

    def close(self) -> None:
        """Stop serving."""
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()


def _handler(status: Status) -> type[BaseHTTPRequestHandler]:
    class Handler(BaseHTTPRequestHandler):
        """Answers GET."""

        def do_GET(self) -> None:
            """Answer one request."""
            if self.path == "/status":
                self._answer(200, "application/json", orjson.dumps(status.as_dict()))
            elif self.path == "/metrics":
                self._answer(200, CONTENT_TYPE_LATEST, generate_latest(status.registry))
            elif self.path in {"/livez", "/readyz"}:
                good = status.alive if self.path == "/livez" else status.ready
                self._answer(200 if good else 503, "text/plain", b"ok\n" if good else b"no\n")
            else:
                self._answer(404, "text/plain", b"not found\n")

        def _answer(self, code: int, kind: str, body: bytes) -> None:
            self.send_response(code)
            self.send_header("Content-Type", kind)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002 - the base class's name
            """Say nothing: scrapes are not news."""

    return Handler
