"""Record headers: Debezium's own that say who wrote a record, and the one that completes its place in the log."""

from __future__ import annotations

from producer.envelope.source import CONNECTOR
from schemas.names import EVENT_HEADER


def event_header(epoch: int, event: int) -> tuple[str, bytes]:
    """Return the header with the parts of a row's sequence that ``source`` lacks; runs once for each rows event."""
    return EVENT_HEADER, b"%d.%d" % (epoch, event)


def context_headers(prefix: str, *, run_id: str, task_id: str = "0", enabled: bool = True) -> list[tuple[str, bytes]]:
    """Return Debezium's ``__debezium.context.*`` headers, which row and schema change records carry; [] when off.

    ``run_id`` is made once for each start of the process. The list is equal for every record: make it once.
    """
    if not enabled:
        return []
    return [
        ("__debezium.context.connectorLogicalName", prefix.encode()),
        ("__debezium.context.taskId", task_id.encode()),
        ("__debezium.context.connectorName", CONNECTOR.encode()),
        ("__debezium.context.runId", run_id.encode()),
    ]
