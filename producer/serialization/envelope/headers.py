"""Headers of row records and schema change records."""

from __future__ import annotations

from typing import Final

from tailrace.producer.serialization.envelope.source_info import CONNECTOR
from tailrace.schemas.names import EVENT_HEADER, SCHEMA_HEADER
from tailrace.schemas.table import TableSchema

NEW_KEY_HEADER: Final = "__debezium.newkey"
"""On the delete and the tombstone of a changed key: the new key."""
OLD_KEY_HEADER: Final = "__debezium.oldkey"
"""On the insert of a changed key: the old key."""


def event_header(epoch: int, event: int) -> tuple[str, bytes]:
    """Return the header with the parts of a row's sequence that ``source`` does not contain."""
    return EVENT_HEADER, b"%d.%d" % (epoch, event)


def schema_header(schema: TableSchema) -> tuple[str, bytes]:
    return SCHEMA_HEADER, schema.fingerprint.encode()


def context_headers(
    prefix: str, *, run_id: str, connector: str = CONNECTOR, enabled: bool = True
) -> list[tuple[str, bytes]]:
    """Return Debezium's ``__debezium.context.*`` headers, the same for all records; [] if disabled.

    ``run_id`` is new for each start of the process.
    """
    if not enabled:
        return []
    return [
        ("__debezium.context.connectorLogicalName", prefix.encode()),
        ("__debezium.context.taskId", b"0"),
        ("__debezium.context.connectorName", connector.encode()),
        ("__debezium.context.runId", run_id.encode()),
    ]
