"""Validates captured tables before anything is written: keys, topics, column transforms; all problems at once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import NamedTuple

import structlog

from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import PrerequisiteError, TableAccessError
from tailrace.producer.model.protocols import SnapshotSession, Source
from tailrace.producer.model.table import CatalogTable, Column, TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.column_transforms import ColumnTransforms
from tailrace.producer.serialization.envelope.topic_names import TopicOwners
from tailrace.runtime.errors import SchemaError

log = structlog.get_logger(__name__)

DescribeAll = Callable[[Sequence[TableId]], Iterator[tuple[TableId, CatalogTable | SchemaError]]]
"""Reads the definitions of the tables that exist."""


class TableValidation(NamedTuple):
    """``problems`` prevent the start, ``notes`` are warnings."""

    tables: list[TableId]
    """The tables that still exist."""
    problems: list[str]
    notes: list[str]
    faults: Mapping[TableId, list[str]]
    """The problems that concern one table alone."""
    unreadable: Mapping[TableId, TableAccessError]
    """Tables that the account may not read."""
    stand_ins: Sequence[TableId]
    """Tables whose keys the binlog lacks, and ``tables`` do not remember."""


def check_source(
    config: ProducerConfig,
    source: Source,
    session: SnapshotSession,
    tables: CapturedTables,
    captured: Sequence[TableId],
) -> TableValidation:
    """Check the source, and validate the captured tables. Raises PrerequisiteError for problems of the source."""
    try:
        notes = source.check(captured)
    except PrerequisiteError as error:
        found = validate_tables(config, tables, captured, session.describe_all)
        raise PrerequisiteError([*error.problems, *found.problems]) from None
    validation = validate_tables(config, tables, captured, session.describe_all)
    # The offset is read before the keys that it belongs to, and it may take a wait: most captures need neither.
    if validation.stand_ins:
        offset = session.current_offset()
        for _, described in session.describe_all(validation.stand_ins):
            if not isinstance(described, SchemaError):
                tables.remember_stand_in_key(described, offset)
    return validation._replace(notes=[*notes, *validation.notes])


def validate_tables(
    config: ProducerConfig,
    tables: CapturedTables,
    captured: Sequence[TableId],
    read: DescribeAll,
) -> TableValidation:
    """Validate every captured table; ``read`` reads the catalog. A table that was dropped meanwhile is left out."""
    rules, keys = ColumnTransforms(config.filters), config.filters.message_keys
    problems = list(TopicOwners(config).own_all(sorted(captured)).values())
    faults: defaultdict[TableId, list[str]] = defaultdict(list)
    notes: list[str] = []
    every: list[tuple[TableId, Column]] = []
    present: list[TableId] = []
    unreadable: dict[TableId, TableAccessError] = {}
    stand_ins: list[TableId] = []
    for table, found in read(captured):
        present.append(table)
        try:
            if isinstance(found, SchemaError):
                raise found
            columns = found.table.columns
            if keys.entries or not rules.trivial:
                every += [(table, column) for column in columns]
            faults[table] += keys.problems(table, [column.name for column in columns])
            key = tables.key_of(found)
            if tables.lacks_stand_in_key(found):
                stand_ins.append(table)
        except SchemaError as error:
            faults[table].append(f"{error.message}; {error.hint}")
            if isinstance(error, TableAccessError):
                unreadable[table] = error
            continue
        faults[table] += rules.problems(table, columns, key)
        changed = rules.transformed_keys(table, columns, key)
        if changed:
            notes.append(
                f"{table}: key columns are masked, hashed or truncated in rows only, "
                f"record keys contain the original values: {', '.join(changed)}"
            )
        if not found.index_key and len(key) == len(columns):
            notes.append(f"{table}: the table has no key, so equal rows count as one row")
    unmatched = (*rules.unmatched(every), *keys.unmatched(every))
    notes += [f"no captured column matches {setting}" for setting in unmatched]
    problems += [fault for table in captured for fault in faults[table]]
    faulty = {table: found for table, found in faults.items() if found}
    return TableValidation(present, problems, notes, faulty, unreadable, stand_ins)


def faults_of_new_tables(
    config: ProducerConfig, validation: TableValidation, captured: Sequence[TableId], known: Collection[str]
) -> dict[TableId, str]:
    """Return why tables cannot be captured that are not yet; ``known`` are the others.

    Invariant: what the stream survives is no reason to refuse a start. So neither such a table stops the capture of the
    others, nor a known one whose definition is at fault, also under a rule for its columns: the stream decides, when it
    comes to the first change that it cannot write. One that cannot be read is in error. Raises PrerequisiteError if any
    other problem was found, or if every fault shall stop the producer.
    """
    known_first = sorted(captured, key=lambda table: (str(table) not in known, table))
    shared = TopicOwners(config).own_all(known_first)
    found: dict[TableId, str] = {}
    for table in captured:
        faults = [*validation.faults.get(table, ()), *([shared[table]] if table in shared else ())]
        if not faults:
            continue
        if str(table) not in known:
            found[table] = "; ".join(faults)
        elif table in shared or config.values.processing_failures == "fail":
            raise PrerequisiteError(validation.problems)
        elif table not in validation.unreadable:
            log.warning(
                "a captured table cannot be captured as it is defined: its next change puts it in error",
                table=str(table),
                error="; ".join(faults),
            )
    return found
