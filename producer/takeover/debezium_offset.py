"""The offset that a Debezium MySQL connector stores in Kafka Connect's offset topic, read strictly. No I/O.

The key is ``["<connector>",{"server":"<topic.prefix>"}]``. In the value, ``pos`` and ``gtids`` belong to the begin of
the transaction the connector was in, else to the end of the last one::

    {"ts_sec":…,"file":"binlog.000003","pos":1549,"gtids":"uuid:1-17","event":4,"row":2,"server_id":1}

``event`` counts all events of that transaction that are done, of any type, its BEGIN included. ``row`` counts the done
rows of the next event. Both are absent if they are 0.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import orjson

from tailrace.producer.errors import TakeoverError
from tailrace.producer.mysql.gtid import GtidSet

_COUNT_PREFIX: Final = "transaction_data_collection_order_"
_SNAPSHOT_HINT: Final = (
    "start the connector again, let it finish the snapshot and stream at least one change, and stop it then; "
    "or delete its topics and start `tailrace produce` without a takeover: it takes a snapshot of its own"
)
_GTIDS: Final = re.compile(
    r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(?=:)(:\d+(-\d+)?)*(:[a-z_][a-z0-9_]{0,31}(:\d+(-\d+)?)+)*",
    re.IGNORECASE,
)


class ConnectorPartition(NamedTuple):
    """The source partition of an offset record: which connector it belongs to."""

    connector: str
    prefix: str


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """Where a connector stopped; ``events`` and ``rows`` as described above, ``gtids`` '' if there are none."""

    partition: ConnectorPartition
    file: str
    pos: int
    gtids: str
    events: int
    rows: int
    ts: int
    """Time of the last change in whole seconds since the epoch, 0 if unknown."""
    counts: Mapping[str, int]
    """Records of the transaction so far, by table; only with provide.transaction.metadata."""

    @property
    def in_transaction(self) -> bool:
        """Return whether part of a transaction is done: more than its BEGIN, which gives no record."""
        return self.events > 1 or self.rows > 0


def read_partition(key: bytes | None) -> ConnectorPartition | None:
    """Return the partition of a record of the offset topic; None if no Debezium connector wrote it."""
    try:
        match _payload(orjson.loads(key or b"")):
            case [str(connector), {"server": str(prefix)}]:
                return ConnectorPartition(connector, prefix)
    except orjson.JSONDecodeError:
        return None
    return None


def read_offset(partition: ConnectorPartition, value: bytes) -> ConnectorOffset:
    """Read an offset. Raises TakeoverError if it is damaged, or of another connector or an unfinished snapshot."""
    fields = _fields(partition, value)
    _require_streaming(partition, fields)
    file = fields.get("file")
    if not isinstance(file, str) or not file.rpartition(".")[2].isdigit():
        raise _invalid(partition, "file", file, "the name of a binlog file")
    rows, events = _number(partition, fields, "row"), _number(partition, fields, "event")
    if rows and not events:
        raise TakeoverError(
            "the connector stopped within an XA transaction, whose events it does not count",
            hint="start the connector again, and stop it after a change outside XA",
            connector=partition.connector,
            row=rows,
        )
    counts = {
        name.removeprefix(_COUNT_PREFIX): _number(partition, fields, name)
        for name in fields
        if name.startswith(_COUNT_PREFIX)
    }
    return ConnectorOffset(
        partition,
        file=file,
        pos=_number(partition, fields, "pos", required=True),
        gtids=_gtids(partition, fields.get("gtids")),
        events=events,
        rows=rows,
        ts=_number(partition, fields, "ts_sec"),
        counts=counts,
    )


def _payload(value: Any) -> Any:
    """Return the payload of an envelope with schema, which old workers could be configured to write."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def _fields(partition: ConnectorPartition, value: bytes) -> Mapping[str, Any]:
    try:
        fields = _payload(orjson.loads(value))
    except orjson.JSONDecodeError as error:
        raise TakeoverError(
            "the connector's offset is not JSON",
            hint="pass the worker's offset.storage.topic as --offset-topic",
            connector=partition.connector,
            seen=value[:200],
        ) from error
    if not isinstance(fields, dict) or not {"file", "pos"} <= fields.keys():
        raise TakeoverError(
            "the offset does not belong to a MySQL connector: it has no file and pos",
            hint="pass the name of the MySQL connector as --connector",
            connector=partition.connector,
            seen=value[:200].decode(errors="replace"),
        )
    return fields


def _require_streaming(partition: ConnectorPartition, fields: Mapping[str, Any]) -> None:
    snapshot = fields.get("snapshot")
    if snapshot not in {None, False, "false", ""}:
        raise TakeoverError(
            "the connector stopped before its snapshot was finished",
            hint=_SNAPSHOT_HINT,
            connector=partition.connector,
            snapshot=snapshot,
        )
    if any(name.startswith("incremental_snapshot_") and fields[name] is not None for name in fields):
        raise TakeoverError(
            "the connector stopped during an incremental snapshot",
            hint="start the connector again and let it finish, or send a stop-snapshot signal",
            connector=partition.connector,
            collections=fields.get("incremental_snapshot_collections"),
        )


def _number(partition: ConnectorPartition, fields: Mapping[str, Any], name: str, *, required: bool = False) -> int:
    """Return a count, 0 if it is absent; like the connector, accept text."""
    value = fields.get(name)
    if value is None and not required:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _invalid(partition, name, value, "a non-negative integer")


def _gtids(partition: ConnectorPartition, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _invalid(partition, "gtids", value, "a GTID set")
    text = "".join(value.split())
    for part in filter(None, text.split(",")):
        if not _GTIDS.fullmatch(part):
            raise _invalid(partition, "gtids", part, "a MySQL GTID set (MariaDB has other GTIDs)")
    return str(GtidSet.parse(text))


def _invalid(partition: ConnectorPartition, name: str, seen: object, expected: str) -> TakeoverError:
    return TakeoverError(
        f"the field {name} of the connector's offset is not {expected}",
        hint="look at the record in the offset topic; a running connector writes a complete one with its next change",
        connector=partition.connector,
        seen=seen,
    )
