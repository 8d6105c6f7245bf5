"""What a target stores besides its rows: what it is (TargetState), and what it has applied (ledger.py).

A table format has the state in table properties and the ledger in each commit. A database has both in one row, and
upsert-kafka in one record of its ledger topic. All of them store the same texts, under names of their own. What a
reader of a text finds damaged is an error of that reader: a state is as it is stored.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Final, Self

from tailrace.schemas.sequence import Sequence as Position
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.sink.ledger import Ledger

PROPERTIES: Final = MappingProxyType(
    {
        "topic": "tailrace.topic",
        "shard": "tailrace.shard",
        "key": "tailrace.key",
        "query": "tailrace.query",
        "truncated": "tailrace.truncated",
        "last_alteration": "tailrace.altered",
        "made": "tailrace.made",
        "altering": "tailrace.altering",
        "names": "tailrace.columns",
        "shape": "tailrace.shape",
        "added_columns": "tailrace.addedColumns",
        "load_run": "tailrace.initialLoad.run",
        "load_start": "tailrace.initialLoad.start",
        "early_keys": "tailrace.initialLoad.earlyKeys",
    }
)
"""The names of table properties, by field."""
_OF_THE_LOAD: Final = ("load_run", "load_start", "early_keys")


@dataclass(frozen=True, slots=True)
class TargetState:
    """What a target is for one topic; all fields are texts, and empty ones are not known, or not the case."""

    topic: str = ""
    """The topic whose rows the target has; ``SEVERAL`` for the target of several topics."""
    shard: str = ""
    """The values of the columns that tell the rows of the topic from others, in a target of several (Shard.text)."""
    key: str = ""
    """The key columns as a JSON array."""
    query: str = ""
    """The id of the query that created the target."""
    truncated: str = ""
    """The sequence of the last truncate event; records with a smaller sequence stay out."""
    last_alteration: str = ""
    """The position of the last ALTER TABLE that the target is done with."""
    made: str = ""
    """That somebody has made the steps for some ALTER TABLE (Mark)."""
    altering: str = ""
    """What a plan of steps was made from that is not carried out yet (Attempt)."""
    names: str = ""
    """The columns of the source and what became of them (SourceNames); empty: those of the target."""
    shape: str = ""
    """The shape of the target; empty: scd1."""
    added_columns: str = ""
    """The columns that are not columns of the source, as a JSON array; also those of earlier settings."""
    load_run: str = ""
    load_start: str = ""
    early_keys: str = ""
    """The open initial load (initial_load.py)."""

    @classmethod
    def from_properties(cls, properties: Mapping[str, str]) -> Self:
        """Return the state that table properties have."""
        return cls(**{name: properties[stored] for name, stored in PROPERTIES.items() if stored in properties})

    @property
    def properties(self) -> dict[str, str]:
        """The table properties of a new target."""
        return self.since(TargetState())[0]

    def since(self, before: TargetState) -> tuple[dict[str, str], list[str]]:
        """Return the table properties that have changed since another state, and those that are gone.

        What ends an evolution is with its statement: a format can add what the table has then (iceberg_table.py).
        """
        changed = [each.name for each in fields(self) if getattr(self, each.name) != getattr(before, each.name)]
        ends_evolution = "names" in changed or ("altering" in changed and not self.altering)
        if ends_evolution and self.last_alteration and "last_alteration" not in changed:
            changed.append("last_alteration")
        gone = [name for name in changed if name in _OF_THE_LOAD and not getattr(self, name)]
        found = {PROPERTIES[name]: getattr(self, name) for name in changed if name not in gone}
        return found, [PROPERTIES[name] for name in gone]

    @property
    def added(self) -> list[str]:
        """The columns that are not columns of the source."""
        found: list[str] = json.loads(self.added_columns or "[]")
        return found

    @property
    def last_truncation(self) -> Position | None:
        """The sequence of the last truncate event that the target has had."""
        return Position.from_text(self.truncated) if self.truncated else None

    def with_layout(self, shape: str, columns: Sequence[str]) -> TargetState:
        """Return the state of a target with a shape, and with columns that are not columns of the source."""
        names = [*columns, *(name for name in self.added if name not in columns)]
        added = self.added_columns if names == self.added else json.dumps(names)
        return replace(self, shape="" if shape == "scd1" else shape, added_columns=added)

    def without_load(self) -> TargetState:
        """Return the state of a target whose initial load is closed."""
        return replace(self, **dict.fromkeys(_OF_THE_LOAD, ""))


def key_text(schema: TableSchema) -> str:
    """Return the key columns as a state has them."""
    return json.dumps(list(schema.key))


@dataclass(frozen=True, slots=True)
class Stored:
    """State and ledger of a target that has them in one place."""

    state: TargetState
    ledger: Ledger
