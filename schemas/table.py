"""The schema of a table, as the producer publishes it for readers of the table topic.

docs/events.md describes the record. ``key`` is empty if rows cannot be identified. ``sequence`` is where the table was
put under the schema, or where it was found under it. A reader that gets two records of one fingerprint keeps the
greater sequence.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.sequence import Sequence


@dataclass(frozen=True, slots=True)
class TableSchema:
    """One version of the schema of a table."""

    topic: str
    database: str
    table: str
    columns: tuple[ConnectField, ...]
    key: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """16 hex digits of a SHA-256 over everything that a decoder needs."""
        return hashlib.sha256(orjson.dumps(self._body())).hexdigest()[:16]

    def _body(self) -> dict[str, Any]:
        return {
            "topic": self.topic,
            "database": self.database,
            "table": self.table,
            "columns": [column.schema.to_json(column.name) for column in self.columns],
            "key": list(self.key),
        }

    def record_key(self) -> bytes:
        """Return the key of the record."""
        return f"{self.topic}/{self.fingerprint}".encode()

    def to_json(self, *, sequence: Sequence) -> bytes:
        """Return the value of the record; ``sequence`` is where the schema was in use."""
        return orjson.dumps({**self._body(), "fingerprint": self.fingerprint, "sequence": sequence._asdict()})

    @classmethod
    def from_json(cls, value: bytes | str) -> tuple[TableSchema, Sequence]:
        """Return the schema and the sequence of a record value."""
        body = orjson.loads(value)
        schema = cls(
            topic=body["topic"],
            database=body["database"],
            table=body["table"],
            columns=tuple(ConnectField(c["field"], ConnectSchema.from_json(c)) for c in body["columns"]),
            key=tuple(body["key"]),
        )
        return schema, Sequence(**body["sequence"])
