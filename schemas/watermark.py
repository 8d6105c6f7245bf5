"""Watermark records: LOW, HIGH and END of a split, in the topic ``<prefix>.tailrace.watermarks``.

LOW and HIGH are written in the same Kafka transaction as the split's rows; END when the log reader has passed HIGH.
END is the split's certificate: so many rows with this checksum, so many backfill events between the watermarks.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

import orjson


class WatermarkKind(StrEnum):
    """Which of a split's three records this is."""

    LOW = "LOW"
    HIGH = "HIGH"
    END = "END"


@dataclass(frozen=True, slots=True)
class BinlogPosition:
    """A place in the source's log: ``file`` and ``pos`` as the server names them, the GTID set seen, the server."""

    epoch: int
    file: str
    pos: int
    gtids: str
    server_uuid: str


@dataclass(frozen=True, slots=True)
class Watermark:
    """One watermark record.

    ``lower`` (inclusive) and ``upper`` are lists of key column values as JSON (binary as ``{"hex": "…"}``), or None
    where open; ``upper`` is exclusive unless ``closed``. ``rows`` and ``checksum`` are 0 in LOW; ``checksum`` is the
    sum modulo 2**64 of the CRC-32 of each row's ``after`` JSON. ``backfill`` counts the change records (tombstones not
    counted) that carry the split's header, and is 0 but in END. ``snapshot`` names the snapshot run of the table:
    within one run splits are disjoint and each is read once. ``again``: the table was read before, and its records
    carry ``tailrace.incremental`` in place of ``tailrace.split``.
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
    position: BinlogPosition
    rows: int
    checksum: int
    backfill: int
    schema: str
    ts_us: int
    incremental: bool = False

    def record_key(self) -> bytes:
        """Return the record key: all three records of a split share it."""
        return self.split.encode()

    def to_json(self) -> bytes:
        """Return the record value; the checksum as 16 hex digits, since JSON readers lose 64-bit numbers."""
        body = {**asdict(self), "kind": self.kind.value, "checksum": f"{self.checksum:016x}"}
        if not self.incremental:
            del body["incremental"]
        return orjson.dumps(body)

    @classmethod
    def from_json(cls, value: bytes | str) -> Watermark:
        """Read what ``to_json`` wrote."""
        body = orjson.loads(value)
        body["kind"] = WatermarkKind(body["kind"])
        body["checksum"] = int(body["checksum"], 16)
        body["position"] = BinlogPosition(**body["position"])
        return cls(**body)
