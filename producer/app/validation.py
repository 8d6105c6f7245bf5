"""What must hold of captured tables before anything is written: keys, topics, rules of columns; all faults at once."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from tailrace.producer.config import ProducerConfig
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.catalog import CatalogTable
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic


class TableValidation(NamedTuple):
    """What was found: ``faults`` keep the producer from starting, ``notes`` are to be told."""

    faults: list[str]
    notes: list[str]


def validate_tables(
    config: ProducerConfig, tables: CapturedTables, captured: Sequence[TableId], read: Callable[[TableId], CatalogTable]
) -> TableValidation:
    """Look at every captured table; ``read`` asks the catalog."""
    prefix, rules, keys = config.topics.prefix, config.filters.columns, config.filters.message_keys
    reserved = [name(prefix) for name in (state_topic, schemas_topic, watermarks_topic)]
    faults = TopicNames(config.topics).collisions(captured, reserved=reserved)
    notes: list[str] = []
    every: list[tuple[TableId, Column]] = []
    for table in captured:
        try:
            found = read(table)
            columns = found.table.columns
            every += [(table, column) for column in columns]
            faults += keys.problems(table, [column.name for column in columns])
            key = tables.key_of(found)
        except SchemaError as error:
            faults.append(f"{error.message}: {error.hint}")
            continue
        faults += rules.problems(table, columns, key)
        changed = rules.transformed_keys(table, columns, key)
        if changed:
            notes.append(
                f"{table}: key columns are masked, hashed or cut in rows only, keys show them as they are: "
                f"{', '.join(changed)}"
            )
        if not found.index_key and len(key) == len(columns):
            notes.append(f"{table}: the table has no key, equal rows are held to be one row")
    idle = (*rules.unmatched(every), *keys.unmatched(every))
    notes += [f"no captured column has a name that this is for: {setting}" for setting in idle]
    return TableValidation(faults, notes)
