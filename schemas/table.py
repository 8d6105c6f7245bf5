"""TableSchema: what the producer publishes of a table so that a reader of its topic can decode the rows.

A record of the schemas topic: key ``<topic>/<fingerprint>``, value the JSON below. It is written before, or in the
same transaction as, the first row that needs it.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Any

import orjson

from tailrace.schemas.connect import ConnectField, ConnectSchema


@dataclass(frozen=True, slots=True)
class TableSchema:
    """Columns of one version of a table as Connect fields, in table order, and its key columns' names in key order."""

    topic: str
    database: str
    table: str
    columns: tuple[ConnectField, ...]
    key: tuple[str, ...]

    @property
    def fingerprint(self) -> str:
        """Return 16 hex digits that differ when anything a decoder needs differs."""
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
        """Return the key of the schemas-topic record."""
        return f"{self.topic}/{self.fingerprint}".encode()

    def to_json(self, *, version: int) -> bytes:
        """Return the value of the schemas-topic record; the greatest ``version`` of a table is its newest."""
        return orjson.dumps({**self._body(), "fingerprint": self.fingerprint, "version": version})

    @classmethod
    def from_json(cls, value: bytes | str) -> tuple[TableSchema, int]:
        """Read a schemas-topic value; return the schema and its version."""
        body = orjson.loads(value)
        schema = cls(
            topic=body["topic"],
            database=body["database"],
            table=body["table"],
            columns=tuple(ConnectField(c["field"], ConnectSchema.from_json(c)) for c in body["columns"]),
            key=tuple(body["key"]),
        )
        return schema, body["version"]
