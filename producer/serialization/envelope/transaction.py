"""Transaction metadata: the BEGIN and END records, and the ``transaction`` block of a row record."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.producer.serialization.envelope.json import Struct, hash_order
from tailrace.schemas.connect import ConnectField, ConnectSchema

TRANSACTION_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.TransactionMetadataKey",
    version=1,
    fields=(ConnectField.of("id", "string"),),
)
_COLLECTION_COUNT: Final = ConnectSchema(
    "struct",
    optional=True,
    name="event.collection",
    version=1,
    fields=(
        ConnectField.of("data_collection", "string"),
        ConnectField.of("event_count", "int64"),
    ),
)
TRANSACTION_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.TransactionMetadataValue",
    version=1,
    fields=(
        ConnectField.of("status", "string"),
        ConnectField.of("id", "string"),
        ConnectField.of("event_count", "int64", optional=True),
        ConnectField("data_collections", ConnectSchema("array", optional=True, items=_COLLECTION_COUNT)),
        ConnectField.of("ts_ms", "int64"),
    ),
)


def transaction_key(gtid: str) -> Struct:
    """Return a key of TRANSACTION_KEY."""
    return {"id": gtid}


def begin_value(gtid: str, ts_ms: int) -> Struct:
    """Return a BEGIN record: a value of TRANSACTION_VALUE."""
    return {"status": "BEGIN", "id": gtid, "event_count": None, "data_collections": None, "ts_ms": ts_ms}


def end_value(gtid: str, counts: Mapping[str, int], ts_ms: int) -> Struct:
    """Return an END record: a value of TRANSACTION_VALUE. ``counts``: row records by ``db.table``, no tombstones."""
    return {
        "status": "END",
        "id": gtid,
        "event_count": sum(counts.values()),
        "data_collections": [
            {"data_collection": table, "event_count": counts[table]} for table in hash_order(list(counts))
        ],
        "ts_ms": ts_ms,
    }


def transaction_block(gtid: str, total_order: int, data_collection_order: int) -> bytes:
    """Return ``transaction`` of a row record as JSON (``event.block`` version 1); both orders start at 1."""
    return b'{"id":"%b","total_order":%d,"data_collection_order":%d}' % (
        gtid.encode(),
        total_order,
        data_collection_order,
    )
