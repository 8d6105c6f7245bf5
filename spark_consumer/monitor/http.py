"""The consumer's HTTP endpoints."""

from __future__ import annotations

from tailrace.runtime.http import Endpoints
from tailrace.spark_consumer.monitor.status import Status


def endpoints(status: Status) -> Endpoints:
    """Return the endpoints of a status."""
    return Endpoints(
        status=status.as_dict,
        metrics=status.registry,
        is_live=lambda: status.alive,
        is_ready=lambda: status.ready,
    )
