"""Captured tables: which key a table has, its topic, and its codec, compiled once per version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from tailrace.producer.config import ProducerConfig
from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.model.codec import EventEnvelope, TableCodec
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.mysql.catalog import CatalogTable
from tailrace.producer.mysql.key_order import KeyColumn, can_split_on
from tailrace.producer.serialization.converter_codec import compile_converter_codec, envelope_frame
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.serialization.envelope.topic_names import TopicNames
from tailrace.producer.serialization.envelope_frame import JsonFrame
from tailrace.producer.serialization.json_codec import compile_table
from tailrace.producer.serialization.table_schemas import TableSchemaBuilder
from tailrace.runtime.errors import SchemaError


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """One version of a captured table with all that turns its rows into records."""

    table: Table
    topic: str
    codec: TableCodec
    source: SourceInfo


class CapturedTables:
    """Makes captured tables; the same rules for rows from the catalog's side and from the log's."""

    def __init__(self, config: ProducerConfig, read_catalog: Callable[[TableId], CatalogTable]) -> None:
        self._config = config
        self._names = TopicNames(config.topics)
        self._keys = config.filters.message_keys
        self._read_catalog = read_catalog
        self._unique: dict[TableId, tuple[str, ...]] = {}
        self._owners: dict[str, TableId] = {}
        self._values = config.values.options
        converters = config.converters
        self._publication = (
            None
            if converters.plain
            else TableSchemaBuilder(
                converters,
                self._values,
                read_catalog,
                comments=config.values.schema_comments,
                rules=config.filters.columns,
            )
        )

    def topic(self, table: TableId) -> str:
        """Return the data topic of a table."""
        return self._names.table(table)

    def capture(self, table: TableId, columns: Sequence[Column], primary_key: Sequence[str]) -> CapturedTable:
        """Compile one version of a table. Raises SchemaError for a table without a key, unless configured otherwise."""
        key = self.key(table, columns, primary_key)
        topic = self.topic(table)
        owner = self._owners.setdefault(topic, table)
        if owner != table:  # of tables that were there at the start, the start has made sure
            raise SchemaError(
                f"the topic {topic} would serve both {owner} and {table}",
                hint="exclude one of them by table.exclude.list, or capture it under another topic.prefix",
            )
        version = Table(table, tuple(columns), tuple(key))
        codec = self._codec(version, topic, self._config.filters.columns.project(table, columns, key))
        return CapturedTable(version, topic, codec, SourceInfo(self._config.topics.prefix, table))

    def _codec(self, version: Table, topic: str, shape: ColumnProjection | None) -> TableCodec:
        tombstones, changed_only = self._config.values.tombstones, self._config.filters.skip_unchanged
        if self._publication is None:
            return compile_table(
                version, topic, self._values, tombstones=tombstones, shape=shape, skip_unchanged=changed_only
            )
        columns = version.columns if shape is None else shape.visible(version.columns)
        wire = self._publication.wire(version.id, topic, columns, version.key, shape)
        return compile_converter_codec(
            version, topic, self._values, wire, tombstones=tombstones, shape=shape, skip_unchanged=changed_only
        )

    def emptied(self, table: TableId, stamp: EventEnvelope) -> bytes | None:
        """Return the envelope of ``op: t``; None where the table is gone by now, and its schema with it.

        Raises what ``capture`` raises.
        """
        if self._publication is None or self._config.converters.forms[1] == "json":
            return JsonFrame().emptied(stamp)
        try:
            found = self._read_catalog(table)
        except SchemaError:
            wire = self._publication.last(table)
        else:
            columns = found.table.columns
            key = self.key(table, columns, found.primary_key)
            shape = self._config.filters.columns.project(table, columns, key)
            kept = columns if shape is None else shape.visible(columns)
            wire = self._publication.wire(table, self.topic(table), kept, key, shape)
        return None if wire is None else envelope_frame(wire).emptied(stamp)

    def key(self, table: TableId, columns: Sequence[Column], primary_key: Sequence[str]) -> Sequence[str]:
        """Return the columns of the record key: message.key.columns, primary key, unique index, or the whole row."""
        names = [column.name for column in columns]
        found = self._keys.columns(table, names) or tuple(primary_key) or self._unique_key(table)
        if found:
            return found
        if self._config.filters.tables_without_key == "full-row":
            return names
        raise SchemaError(
            f"table {table} has neither a primary key nor a unique index without NULLs",
            hint=f"add a key, or name columns in message.key.columns ({table}:column), or exclude the table, "
            "or set tailrace.tables.without.key=full-row",
        )

    def invalidate_catalog(self) -> None:
        """Forget what was read from the catalog: a statement may have changed it."""
        self._unique.clear()

    def _unique_key(self, table: TableId) -> tuple[str, ...]:
        """Return the unique index that stands in for a primary key; a TABLE_MAP event does not tell it."""
        if table not in self._unique:
            self._unique[table] = self._read_catalog(table).unique_key
        return self._unique[table]


def splitting_columns(found: CatalogTable, key: Sequence[str]) -> tuple[KeyColumn, ...]:
    """Return the columns whose ranges cut the table: the usable beginning of its key; empty: read in one piece.

    Splits must be ranges of an index that identifies rows, so a record key chosen by message.key.columns or made of the
    whole row is not cut.
    """
    if tuple(key) != tuple(found.index_key):
        return ()
    usable: list[KeyColumn] = []
    for name in key:
        column = replace(found.table.column(name), catalog=None)
        if name in found.prefix_columns or not can_split_on(column):
            break
        order = found.collations.get(name)
        usable.append(
            KeyColumn(column, order.name, order.pads, order.max_chars) if order is not None else KeyColumn(column)
        )
    return tuple(usable)
