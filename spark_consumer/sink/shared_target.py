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
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

from tailrace.spark_consumer.evolution.policy import ChangeKind, EvolutionPolicy
from tailrace.spark_consumer.sink.initial_load import PROPERTIES
from tailrace.spark_consumer.sink.table_names import literal, quote
from tailrace.spark_consumer.sink.table_properties import LAST_ALTERATION, NAMES, TOPIC, TRUNCATED

OF_A_SHARD: Final = frozenset({TOPIC, TRUNCATED, LAST_ALTERATION, NAMES, *PROPERTIES})
"""Table properties that each shard has."""
SEVERAL: Final = "several topics"
"""The owner of a shared table; as the owner that a shard sees: it has not written to the table yet."""


@dataclass(frozen=True, slots=True)
class Shard:
    """One of the tables of a shared target."""

    topic: str
    values: tuple[tuple[str, str], ...]
    """The columns that tell its rows from others, with their values as text."""

    @property
    def condition(self) -> str:
        """The SQL condition of its rows."""
        return " AND ".join(f"CAST({quote(name)} AS STRING) = {literal(value)}" for name, value in self.values)

    def stored(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return properties as they are stored."""
        found = {self._name(name): value for name, value in properties.items()}
        return found | ({TOPIC: SEVERAL} if TOPIC in properties else {})

    def names(self, names: Iterable[str]) -> list[str]:
        """Return the names of properties as they are stored."""
        return [self._name(name) for name in names]

    def seen(self, properties: Mapping[str, str]) -> dict[str, str]:
        """Return stored properties as those of a table of the shard alone."""
        found = {name: value for name, value in properties.items() if name not in OF_A_SHARD}
        if TOPIC in properties:
            found[TOPIC] = properties[TOPIC]
        own = {name: self._name(name) for name in OF_A_SHARD}
        return found | {name: properties[stored] for name, stored in own.items() if stored in properties}

    @staticmethod
    def policy(given: EvolutionPolicy) -> EvolutionPolicy:
        """Return what the table does with a schema change: a shard removes no column that others have."""
        if given.behavior == "exception":
            # The statement for it would drop the column of all shards.
            return replace(given, exclude=given.exclude | {ChangeKind.DROP.value})
        return replace(given, behavior="lenient") if given.behavior in {"evolve", "try_evolve"} else given

    def _name(self, name: str) -> str:
        return f"{name}.{self.topic}" if name in OF_A_SHARD else name
