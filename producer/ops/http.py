"""The producer's HTTP endpoints."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import structlog

from tailrace.producer.ops.metrics import registry
from tailrace.producer.ops.status import Status
from tailrace.runtime.http import Endpoints, HttpServer

log = structlog.get_logger(__name__)


def endpoints(status: Status) -> Endpoints:
    """Return the endpoints of a status."""
    return Endpoints(
        status=status.snapshot, metrics=registry(status), is_live=lambda: status.live, is_ready=lambda: status.ready
    )


@contextmanager
def open_http_port(status: Status, *, address: str, port: int) -> Iterator[None]:
    """Serve the endpoints, unless the port is 0. Raises ConfigError if the port cannot be opened."""
    if port == 0:
        yield
        return
    with HttpServer(endpoints(status), address=address, port=port, port_property="tailrace.http.port"):
        log.info("http port open", address=address, port=port)
        yield
