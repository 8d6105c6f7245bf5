"""What a target stores besides its rows: what it is (TargetState), and what it has applied (ledger.py).

A table format has the state in table properties and the ledger in each commit. A database has both in one row, and
upsert-kafka in one record of its ledger topic. All of them store the same texts, under names of their own. What a
reader of a text finds damaged is an error of that reader: a state is as it is stored.

A table can have the rows of several captured tables (shards). What holds for the table of one topic holds for each
shard by itself:

- A key has rows of one shard only, because key columns name the shard (transform/transforms.py). So a row of a snapshot
  that no record of its own topic precedes can be appended, and MERGE never meets a row of another shard.
- Each commit has the ledgers of all shards: of a shard that the newest one does not name, nothing is applied.
- What a property says of a topic is stored under a name with the topic: its columns, its last ALTER TABLE, its last
  truncate event, its initial load.
- A truncate event, and the values that ALTER TABLE gives to rows, concern the rows of the shard only.
- The table has the columns of all shards. No shard drops or renames a column: the old one stays, a new one is added.
- One shard at a time reads what the table has, changes its columns and commits.

Every target stores for each topic the values of its shard: those of another query are known by nothing else. A topic
with values that another one has is refused, because the rows of both would have the same keys.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Final, Self

from pyspark.sql import types as tp

from tailrace.schemas.sequence import Sequence as Position
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.policy import EvolutionPolicy
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.table_names import literal, quote

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
COMMIT_OF_ALTERATION: Final = "tailrace.alteration.snapshot"
"""The commit whose rows have all that ``last_alteration`` says is done, if a rollback keeps properties."""
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
    """The sequence of the last truncate event; records with a smaller sequence stay out. Table formats have it in the
    ledger, unless an earlier release has noted it."""
    last_alteration: str = ""
    """The position of the last ALTER TABLE that the target is done with."""
    made: str = ""
    """The position of the last ALTER TABLE whose steps a person has made (``read_mark``)."""
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

    def without_added(self, column: str) -> TargetState:
        """Return the state of a target that has lost a column that is none of the source."""
        return replace(self, added_columns=json.dumps([name for name in self.added if name != column]))

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


_TOPIC: Final = PROPERTIES["topic"]
_SHARD: Final = PROPERTIES["shard"]
OF_A_SHARD: Final = frozenset(
    stored for name, stored in PROPERTIES.items() if name not in {"key", "query", "shape", "added_columns"}
)
"""Table properties that each shard has."""
SEVERAL: Final = "several topics"
"""The owner of a shared table; as the owner that a shard sees: it has not written to the table yet."""

REMOVE_SHARD: Final = (
    "run the statement, which removes the rows of this table only: the next attempt loads them from the new topic"
)
"""What makes a shard go on with a topic that was created again."""
ALONE: Final = "{}"
"""The stored values of a topic that has a target for itself."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the tables of a shared target."""

    topic: str
    values: tuple[tuple[str, str], ...]
    """The columns that tell its rows from others, with their values as text."""

    @property
    def text(self) -> str:
        """The values as they are stored."""
        return json.dumps(dict(self.values))

    def condition(self, columns: tp.StructType) -> str:
        """Return the SQL condition of its rows in a table with some columns; '' if the table lacks one of its own.

        The column can have another type than the value: the text of 1 is 1.00 in a DECIMAL(9,2).
        """
        types = {column.name.lower(): column.dataType for column in columns}
        if any(name.lower() not in types for name, _ in self.values):
            return ""
        typed = ((name, value, types[name.lower()].simpleString()) for name, value in self.values)
        return " AND ".join(f"{quote(name)} = CAST({literal(value)} AS {kind})" for name, value, kind in typed)

    def require_own(self, owners: Mapping[str, str], target: str) -> None:
        """Raise SinkError if another topic has the values of this shard, or this topic had others.

        ``owners``: topics of a shared target with their values as they are stored; '' if they are not known, ``ALONE``
        for this topic if it had no shard.
        """
        values = dict(self.values)
        for topic, text in owners.items():
            stored: dict[str, str] = json.loads(text) if text else {}
            if topic == self.topic:
                if stored and stored != values:
                    raise SinkError(
                        f"{target} has the rows of {topic} under other values of its shard columns",
                        hint="set the former values in the transform, or another sink-table in the route",
                        stored=stored,
                        values=values,
                    )
            elif text and not are_disjoint(stored, values):
                raise SinkError(
                    f"{target} has rows of another table under the same values of the shard columns: their keys "
                    "could be the same",
                    hint="give each table a value of its own, such as __schema_name__ AS shard, or another sink-table",
                    values=values,
                    table_topic=topic,
                    batch_topic=self.topic,
                )

    def stored(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return properties as they are stored."""
        found = {self._name(name): value for name, value in properties.items()}
        return found | ({_TOPIC: SEVERAL} if _TOPIC in properties else {})

    def names(self, names: Iterable[str]) -> list[str]:
        """Return the names of properties as they are stored."""
        return [self._name(name) for name in names]

    def seen(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return stored properties as those of a table of the shard alone."""
        found = {name: value for name, value in properties.items() if name not in OF_A_SHARD}
        if _TOPIC in properties:
            found[_TOPIC] = properties[_TOPIC]
        own = {name: self._name(name) for name in OF_A_SHARD}
        return found | {name: properties[stored] for name, stored in own.items() if stored in properties}

    @staticmethod
    def owners(properties: Mapping[str, str]) -> dict[str, str]:
        """Return the shards that properties of a table name, for ``require_own``."""
        start = f"{_SHARD}."
        return {name.removeprefix(start): text for name, text in properties.items() if name.startswith(start)}

    @staticmethod
    def policy(given: EvolutionPolicy) -> EvolutionPolicy:
        """Return what the table does with a schema change: a shard removes no column that others have."""
        behavior = "lenient" if given.behavior in {"evolve", "try_evolve"} else given.behavior
        return replace(given, behavior=behavior, keeps_columns=True)

    def _name(self, name: str) -> str:
        return f"{name}.{self.topic}" if name in OF_A_SHARD else name


def are_disjoint(one: Mapping[str, str], other: Mapping[str, str]) -> bool:
    """Return whether no row can belong to both of two shards."""
    return any(one[name] != other[name] for name in one.keys() & other.keys())


def require_owner(topic: str, shard: Shard | None, owners: Mapping[str, str], target: str) -> None:
    """Raise SinkError if a topic cannot write to a target, which has it for itself or as a shard.

    ``owners``: topics that write to the target, with the values of their shards as for ``Shard.require_own``.
    """
    others = [name for name, text in owners.items() if name != topic and (shard is None or text == ALONE)]
    if others:
        raise SinkError(
            f"{target} belongs to another topic",
            hint="set a target for each table: another sink-table in the route, or {database} and {table} in its name",
            table_topic=others[0],
            batch_topic=topic,
        )
    if shard is not None:
        shard.require_own(owners, target)
