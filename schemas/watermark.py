"""Watermark records: LOW, HIGH and END of a split, in the topic ``<prefix>.tailrace.watermarks``.

docs/events.md describes them. A record CREATED has no split.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Final

import orjson

from tailrace.schemas.known_fields import known_fields


class WatermarkKind(StrEnum):
    """Which of the three records of a split this is, or that a table was created."""

    LOW = "LOW"
    HIGH = "HIGH"
    END = "END"
    CREATED = "CREATED"


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """A position in a MySQL binlog: ``file`` and ``pos`` as the server reports them, the executed GTIDs, the server.

    ``gtids`` is None where file and position alone say which transactions precede: the server gives no GTIDs.
    """

    KIND: ClassVar = "mysql"

    epoch: int
    file: str
    pos: int
    gtids: str | None
    server_uuid: str

    def to_json(self) -> dict[str, Any]:
        """Return the position as it is written in records; ``kind`` names the kind of source."""
        return {"kind": self.KIND, **_values(self)}


@dataclass(frozen=True, slots=True)
class MariaDbPosition(BinlogPosition):
    """A position in a MariaDB binlog: ``gtids`` is the last GTID of each domain, ``server_uuid`` names the server."""

    KIND: ClassVar = "mariadb"


def _values(record: BinlogPosition | Watermark) -> dict[str, Any]:
    """Return the fields of a record; ``asdict`` copies all values, which takes longer than the rest of a watermark."""
    return {field.name: getattr(record, field.name) for field in fields(record)}


Position = BinlogPosition
"""A position in the log of a source; one class per kind of source."""

POSITIONS: Final[Mapping[str, type[Position]]] = {each.KIND: each for each in (BinlogPosition, MariaDbPosition)}
"""The classes by their ``kind``."""


class OtherKindError(ValueError):
    """A position is of another kind of source."""


def read_position(body: Mapping[str, Any], *kinds: str) -> Position:
    """Read what ``to_json`` of a position returned. Raises OtherKindError for a kind that is not one of these.

    Without ``kinds`` it may be any that is known.
    """
    fields = dict(body)
    kind = fields.pop("kind", None)
    if kind not in (kinds or POSITIONS):
        raise OtherKindError(f"a position of kind {kind!r} cannot be read, only of {', '.join(kinds or POSITIONS)}")
    return POSITIONS[kind](**known_fields(POSITIONS[kind], fields))


@dataclass(frozen=True, slots=True)
class Watermark:
    """One watermark record.

    ``lower`` and ``upper`` are lists of key column values as JSON (binary as ``{"hex": "…"}``), or None where open.
    ``rows`` and ``checksum`` are 0 in LOW. ``backfill`` counts the change records (tombstones not counted) that carry
    the header of the split; it is 0 in LOW and HIGH. ``snapshot`` names the snapshot run of the table: within one run
    splits are disjoint and each is read once. ``incremental``: the split belongs to an incremental snapshot.
    ``partitions`` is None in records other than LOW and CREATED, and in those of older releases. A topic that has more
    of them now may have records of one key in two partitions.
    """

    kind: WatermarkKind
    split: str
    snapshot: str
    topic: str
    database: str
    table: str
    number: int
    lower: list[Any] | None
    upper: list[Any] | None
    closed: bool
    position: Position
    rows: int
    checksum: int
    backfill: int
    schema: str
    ts_us: int
    incremental: bool = False
    lower_open: bool = False
    partitions: int | None = None

    def record_key(self) -> bytes:
        """Return the record key: all three records of a split share it."""
        return (self.split or self.topic).encode()

    def to_json(self) -> bytes:
        """Return the record value; the checksum as 16 hex digits, since JSON readers lose 64-bit numbers."""
        body = {
            **_values(self),
            "kind": self.kind.value,
            "position": self.position.to_json(),
            "checksum": f"{self.checksum:016x}",
        }
        for name in ("incremental", "lower_open", "partitions"):
            if not body[name]:
                del body[name]
        return orjson.dumps(body)

    @classmethod
    def from_json(cls, value: bytes | str) -> Watermark:
        """Read what ``to_json`` wrote."""
        body = orjson.loads(value)
        body["kind"] = WatermarkKind(body["kind"])
        body["checksum"] = int(body["checksum"], 16)
        body["position"] = read_position(body["position"])
        return cls(**known_fields(cls, body))
