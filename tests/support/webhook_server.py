"""An HTTP server that takes the posts of a webhook."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class WebhookServer:
    """Answers each post with the next of some codes, and keeps its body; ``held``: it waits until it is released."""

    def __init__(self, codes: Sequence[int] = (), *, held: bool = False) -> None:
        """After ``codes`` every answer is 200."""
        self.bodies: list[dict[str, Any]] = []
        self.release = threading.Event()
        if not held:
            self.release.set()
        left = list(codes)
        server = self

        class Handler(BaseHTTPRequestHandler):
            """Takes one post."""

            def do_POST(self) -> None:
                """Keep the body and answer."""
                body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
                server.release.wait(60)
                server.bodies.append(body)
                code = left.pop(0) if left else 200
                self.send_response(code)
                if code == 302:
                    self.send_header("Location", "/elsewhere")
                self.send_header("Content-Length", "0")
                self.end_headers()

            def log_message(self, *_: object) -> None:
                """Print nothing."""

        self._http = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._http.handle_error = lambda *_: None  # type: ignore[method-assign]  # a client that has not waited
        self._thread = threading.Thread(target=self._http.serve_forever, name="webhook-server")
        self.url = f"http://127.0.0.1:{self._http.server_port}/hook/sesame"

    def __enter__(self) -> WebhookServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.release.set()
        self._http.shutdown()
        self._thread.join()
        self._http.server_close()
