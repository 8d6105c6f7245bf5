"""What an ALTER TABLE did to the columns of a table, as the producer publishes it for readers of the table topic.

MySQL writes no row events for the rows that ALTER TABLE changes. docs/events.md describes the record. All changes of a
record happen at once: ``old`` and the column of a ``drop`` are names before the statement, the others are names after
it. The record is written in the transaction of the statement, before the first row with the new schema.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any, Final

import orjson

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.sequence import Sequence


class AlterationKind(Enum):
    """What happened to a column."""

    ADD = "add"
    DROP = "drop"
    RENAME = "rename"
    CONVERT = "convert"


class Unknown(Enum):
    """The type of UNKNOWN."""

    UNKNOWN = "unknown"


UNKNOWN: Final = Unknown.UNKNOWN
"""Stands for a value that the producer does not know; None is NULL."""


@dataclass(frozen=True, slots=True)
class ColumnChange:
    """The change of one column."""

    kind: AlterationKind
    column: str
    old: str = ""
    """Rename: the name before the statement."""
    schema: ConnectSchema | None = None
    """Add: the type of ``value``."""
    value: Any = UNKNOWN
    """Add: the value of the rows that existed, as parsed JSON of a record."""

    @property
    def needs_rows(self) -> bool:
        """Whether only reading the table again gives the values of the rows that existed."""
        return self.kind is AlterationKind.CONVERT or (self.kind is AlterationKind.ADD and self.value is UNKNOWN)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON object."""
        body: dict[str, Any] = {"kind": self.kind.value, "column": self.column}
        if self.old:
            body["old"] = self.old
        if self.schema is not None:
            body["schema"] = self.schema.to_json()
        if self.value is not UNKNOWN:
            body["value"] = self.value
        return body

    @classmethod
    def from_json(cls, body: dict[str, Any]) -> ColumnChange:
        """Return the change of a JSON object."""
        schema = body.get("schema")
        return cls(
            AlterationKind(body["kind"]),
            body["column"],
            body.get("old", ""),
            None if schema is None else ConnectSchema.from_json(schema),
            body.get("value", UNKNOWN),
        )


@dataclass(frozen=True, slots=True)
class Alteration:
    """The changes of one statement."""

    topic: str
    database: str
    table: str
    statement: str
    changes: tuple[ColumnChange, ...]
    sequence: Sequence
    reread: bool = False

    def record_key(self) -> bytes:
        """Return the key of the record."""
        return f"{self.topic}/altered/{self.sequence.epoch}.{self.sequence.file}.{self.sequence.pos}".encode()

    def to_json(self) -> bytes:
        """Return the value of the record."""
        return orjson.dumps(
            {
                "topic": self.topic,
                "database": self.database,
                "table": self.table,
                "statement": self.statement,
                "reread": self.reread,
                "changes": [change.to_json() for change in self.changes],
                "sequence": self.sequence._asdict(),
            }
        )

    @classmethod
    def from_json(cls, value: bytes | str) -> Alteration | None:
        """Return the alteration of a record of the schemas topic; None if the record is a schema."""
        body = orjson.loads(value)
        if "changes" not in body:
            return None
        return cls(
            topic=body["topic"],
            database=body["database"],
            table=body["table"],
            statement=body["statement"],
            changes=tuple(ColumnChange.from_json(change) for change in body["changes"]),
            sequence=Sequence(**body["sequence"]),
            reread=body["reread"],
        )


def field_of(change: ColumnChange) -> ConnectField | None:
    """Return the added column as a field; None if its type is unknown."""
    return None if change.schema is None else ConnectField(change.column, change.schema)
