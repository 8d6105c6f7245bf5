"""Transaction records: BEGIN and END in a topic of their own, and the block that ties a row to them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from tailrace.producer.serialization.envelope.java_hash_order import hash_order
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.schemas.connect import ConnectField, ConnectSchema

TRANSACTION_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.TransactionMetadataKey",
    version=1,
    fields=(ConnectField("id", ConnectSchema("string")),),
)
_COUNTED: Final = ConnectSchema(
    "struct",
    optional=True,
    name="event.collection",
    version=1,
    fields=(
        ConnectField("data_collection", ConnectSchema("string")),
        ConnectField("event_count", ConnectSchema("int64")),
    ),
)
TRANSACTION_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.TransactionMetadataValue",
    version=1,
    fields=(
        ConnectField("status", ConnectSchema("string")),
        ConnectField("id", ConnectSchema("string")),
        ConnectField("event_count", ConnectSchema("int64", optional=True)),
        ConnectField("data_collections", ConnectSchema("array", optional=True, items=_COUNTED)),
        ConnectField("ts_ms", ConnectSchema("int64")),
    ),
)


def transaction_key(gtid: str) -> Struct:
    """Return a key of TRANSACTION_KEY."""
    return {"id": gtid}


def begin_value(gtid: str, ts_ms: int) -> Struct:
    """Return BEGIN, a value of TRANSACTION_VALUE."""
    return {"status": "BEGIN", "id": gtid, "event_count": None, "data_collections": None, "ts_ms": ts_ms}


def end_value(gtid: str, counts: Mapping[str, int], ts_ms: int) -> Struct:
    """Return END, a value of TRANSACTION_VALUE: the number of row records by ``db.table``, tombstones not counted."""
    return {
        "status": "END",
        "id": gtid,
        "event_count": sum(counts.values()),
        "data_collections": [
            {"data_collection": table, "event_count": counts[table]} for table in hash_order(list(counts))
        ],
        "ts_ms": ts_ms,
    }


def block(gtid: str, total_order: int, data_collection_order: int) -> bytes:
    """Return a row's ``transaction`` as JSON (``event.block`` version 1); both orders count from 1."""
    return b'{"id":"%b","total_order":%d,"data_collection_order":%d}' % (
        gtid.encode(),
        total_order,
        data_collection_order,
    )
