"""What a Debezium MySQL connector keeps in Kafka Connect's offset topic, read strictly. Pure.

Key ``["<connector>",{"server":"<topic.prefix>"}]``; value, where ``pos`` and ``gtids`` are those of the begin of the
transaction the connector was in (else of the end of the last one)::

    {"ts_sec":…,"file":"binlog.000003","pos":1549,"gtids":"uuid:1-17","event":4,"row":2,"server_id":1}

``event`` counts every event of that transaction that is done, its BEGIN included and whatever its kind; ``row`` counts
the rows that are done of the one after them. Both are absent where they are 0.
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
    "or delete its topics and start `tailrace produce` without adopting, which takes a snapshot of its own"
)
_GTIDS: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:\d+(-\d+)?)+", re.IGNORECASE)


class ConnectorPartition(NamedTuple):
    """Whose offset a record is."""

    connector: str
    prefix: str


@dataclass(frozen=True, slots=True)
class ConnectorOffset:
    """Where a connector stopped; ``events`` and ``rows`` as described above, ``gtids`` '' where there are none."""

    owner: ConnectorPartition
    file: str
    pos: int
    gtids: str
    events: int
    rows: int
    ts: int
    """Whole seconds since the epoch of the last change, 0 where it is not told."""
    counts: Mapping[str, int]
    """Records of the transaction so far, by table; only kept with provide.transaction.metadata."""

    @property
    def within(self) -> bool:
        """Tell whether a part of a transaction is done: more than its BEGIN, which gives no record."""
        return self.events > 1 or self.rows > 0


def read_partition(key: bytes | None) -> ConnectorPartition | None:
    """Return whose offset a record of the offset topic is; None where it is of no Debezium connector."""
    try:
        match _payload(orjson.loads(key or b"")):
            case [str(connector), {"server": str(prefix)}]:
                return ConnectorPartition(connector, prefix)
    except orjson.JSONDecodeError:
        return None
    return None


def read_offset(owner: ConnectorPartition, value: bytes) -> ConnectorOffset:
    """Read an offset. Raises AdoptError for one of another kind of connector, of an unfinished snapshot, or damaged."""
    fields = _fields(owner, value)
    _require_streaming(owner, fields)
    file = fields.get("file")
    if not isinstance(file, str) or not file.rpartition(".")[2].isdigit():
        raise _unfit(owner, "file", file, "the name of a binlog file")
    rows, events = _number(owner, fields, "row"), _number(owner, fields, "event")
    if rows and not events:
        raise TakeoverError(
            "the connector stopped within an XA transaction, which it does not count",
            hint="start the connector again, and stop it after a change outside XA",
            connector=owner.connector,
            row=rows,
        )
    counts = {
        name.removeprefix(_COUNT_PREFIX): _number(owner, fields, name)
        for name in fields
        if name.startswith(_COUNT_PREFIX)
    }
    return ConnectorOffset(
        owner,
        file=file,
        pos=_number(owner, fields, "pos", needed=True),
        gtids=_gtids(owner, fields.get("gtids")),
        events=events,
        rows=rows,
        ts=_number(owner, fields, "ts_sec"),
        counts=counts,
    )


def _payload(value: Any) -> Any:
    """Return what an envelope with a schema holds; workers of old could be told to write one."""
    if isinstance(value, dict) and value.keys() == {"schema", "payload"}:
        return value["payload"]
    return value


def _fields(owner: ConnectorPartition, value: bytes) -> Mapping[str, Any]:
    try:
        fields = _payload(orjson.loads(value))
    except orjson.JSONDecodeError as error:
        raise TakeoverError(
            "the connector's offset is not JSON",
            hint="name the worker's offset.storage.topic in --offset-topic",
            connector=owner.connector,
            seen=value[:200],
        ) from error
    if not isinstance(fields, dict) or not {"file", "pos"} <= fields.keys():
        raise TakeoverError(
            "the connector's offset is not that of a MySQL connector: it has no file and pos",
            hint="name the right connector in --connector",
            connector=owner.connector,
            seen=value[:200].decode(errors="replace"),
        )
    return fields


def _require_streaming(owner: ConnectorPartition, fields: Mapping[str, Any]) -> None:
    snapshot = fields.get("snapshot")
    if snapshot not in {None, False, "false", ""}:
        raise TakeoverError(
            "the connector's snapshot was not finished when it stopped",
            hint=_SNAPSHOT_HINT,
            connector=owner.connector,
            snapshot=snapshot,
        )
    if any(name.startswith("incremental_snapshot_") and fields[name] is not None for name in fields):
        raise TakeoverError(
            "an incremental snapshot of the connector was under way when it stopped",
            hint="start the connector again and let it finish, or end it by a stop-snapshot signal",
            connector=owner.connector,
            collections=fields.get("incremental_snapshot_collections"),
        )


def _number(owner: ConnectorPartition, fields: Mapping[str, Any], name: str, *, needed: bool = False) -> int:
    """Return a count; like the connector, take it from text too, and 0 for one that is absent."""
    value = fields.get(name)
    if value is None and not needed:
        return 0
    if isinstance(value, str) and value.isascii() and value.isdigit():
        return int(value)
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    raise _unfit(owner, name, value, "a whole number that is not negative")


def _gtids(owner: ConnectorPartition, value: object) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise _unfit(owner, "gtids", value, "a GTID set")
    text = "".join(value.split())
    for part in filter(None, text.split(",")):
        if not _GTIDS.fullmatch(part):
            raise _unfit(owner, "gtids", part, "a GTID set of MySQL without tags (MariaDB's GTIDs are others)")
    return str(GtidSet.parse(text))


def _unfit(owner: ConnectorPartition, name: str, seen: object, wanted: str) -> TakeoverError:
    return TakeoverError(
        f"the connector's offset has a field {name} that is not {wanted}",
        hint="look at the record in the offset topic; a connector that runs writes a whole one with its next change",
        connector=owner.connector,
        seen=seen,
    )
