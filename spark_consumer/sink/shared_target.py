"""Tables with the rows of several captured tables (shards).

What holds for the table of one topic holds for each shard by itself:

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
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from pyspark.sql import types as tp

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.sink.state import PROPERTIES
from tailrace.spark_consumer.sink.table_names import literal, quote

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
        if given.behavior == "exception":
            # The statement for it would drop the column of all shards.
            return replace(given, exclude=given.exclude | {ChangeKind.DROP.value})
        return replace(given, behavior="lenient") if given.behavior in {"evolve", "try_evolve"} else given

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
