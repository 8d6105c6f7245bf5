"""Transaction records: BEGIN and END in a topic of their own, and the block that ties a row to them."""

from __future__ import annotations

from collections.abc import Mapping

from producer.envelope.java_order import hash_order
from producer.envelope.plain_json import Struct


def transaction_key(gtid: str) -> Struct:
    """Return the key: ``io.debezium.connector.common.TransactionMetadataKey`` version 1."""
    return {"id": gtid}


def begin_value(gtid: str, ts_ms: int) -> Struct:
    """Return BEGIN: ``io.debezium.connector.common.TransactionMetadataValue`` version 1."""
    return {"status": "BEGIN", "id": gtid, "event_count": None, "data_collections": None, "ts_ms": ts_ms}


def end_value(gtid: str, counts: Mapping[str, int], ts_ms: int) -> Struct:
    """Return END with the number of row records, tombstones not counted, by ``db.table``."""
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
