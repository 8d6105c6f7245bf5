"""From the definition of a table to all that turns its rows into records.

Each step is a function of the results before it: description -> key -> projection -> schemas -> record format -> codec.
The snapshot reader starts with a table of the catalog, the binlog reader with a TABLE_MAP event; equal definitions give
equal records. Only the description reads the catalog, and only the record format calls the schema registry. A schema is
registered before the first row of its version is written, so no row follows a schema that the registry rejects.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import structlog

from tailrace.producer.config import ProducerConfig
from tailrace.producer.config.column_transforms import ColumnProjection
from tailrace.producer.errors import EarlierKeyError
from tailrace.producer.model.binlog_events import QueryEvent, TableVersion
from tailrace.producer.model.ddl import ColumnAction
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.mysql.types.conversion import ConversionFailures
from tailrace.producer.mysql.types.registry import as_in_catalog
from tailrace.producer.serialization.column_default import added_column
from tailrace.producer.serialization.column_transforms import ColumnTransforms
from tailrace.producer.serialization.envelope.headers import schema_header
from tailrace.producer.serialization.envelope.name_adjustment import field_name
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.serialization.envelope.topic_names import SHARED_TOPIC_HINT, TopicNames, TopicOwners
from tailrace.producer.serialization.envelope_frame import JsonFrame, RecordFormat
from tailrace.producer.serialization.key_memory import CatalogRead, KeyMemory
from tailrace.producer.serialization.schema_registry import SchemaId, SchemaIdSource
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.producer.serialization.table_schemas import TableSchemas, table_schemas
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.alteration import AlterationKind, ColumnChange

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class CapturedTable:
    """One version of a captured table."""

    table: Table
    topic: str
    codec: TableCodec
    source: SourceInfo
    schema_header: tuple[str, bytes]
    """On every record of this version."""

    @property
    def fingerprint(self) -> str:
        return self.schema_header[1].decode()


class TableDescription(NamedTuple):
    """One version of a table as its source describes it."""

    id: TableId
    columns: tuple[Column, ...]
    primary_key: tuple[str, ...]
    unique_key: tuple[str, ...]
    """The first unique index without NULLs; () if there is none, or if another key is used."""
    catalog: CatalogTable | None
    """The table in the catalog, which may have changed since; None if nothing is needed from it, or it is gone."""
    read: CatalogRead | None = None
    """When ``unique_key`` was read from the catalog; None: it was known, or the time is not."""


class CapturedTables:
    """Compiles table versions under one configuration."""

    def __init__(
        self,
        config: ProducerConfig,
        read_catalog: Callable[[TableId], CatalogTable],
        schema_id: SchemaId | None = None,
        *,
        source_offset: Callable[[], Offset] | None = None,
        triggers: Callable[[TableId], str] | None = None,
    ) -> None:
        """``triggers`` says why a change of a table may change others by triggers, '' if it does not.

        ``schema_id`` returns the id of an Avro schema; None: the id in the schema registry of the configuration.

        ``source_offset`` returns what the source has executed; the stream needs it to judge what the catalog says.
        """
        self._config = config
        self._transforms = ColumnTransforms(config.filters)
        self._read = read_catalog
        self._wait: Callable[[], None] = lambda: None
        self._names = TopicNames(config.topics)
        self.topics = TopicOwners(config)
        """The stream lets all captured tables own their topics before it reads; readers know only what they read."""
        self.failures = ConversionFailures()
        """The values that were replaced, of all versions."""
        self._schema_id: SchemaId = schema_id or SchemaIdSource(config.converters).schema_id
        self._source_offset = source_offset
        self._triggers = triggers
        self._last_formats: dict[TableId, RecordFormat] = {}
        self.keys = KeyMemory()
        """What the catalog said of keys at their first use."""

    def topic(self, table: TableId) -> str:
        return self._names.table(table)

    def version_of(self, definition: CatalogTable | TableVersion) -> CapturedTable:
        """Compile one version of a table.

        Raises SchemaError for a table without a key (unless allowed), for a column of an unsupported type, and if
        another table has the same topic; also what ``SchemaRegistryClient.schema_id`` raises.
        """
        described = self._describe(known_definition(definition, self.read_catalog))
        table = _with_key(described, self._config)
        if isinstance(definition, TableVersion) and not _configured_or_primary_key(described, self._config):
            self.keys.set_unique_key(table.id, described.unique_key, described.read)
        topic = self._own_topic(table.id)
        projection = self._transforms.project(table.id, table.columns, table.key)
        record_format = self._record_format(described, table, projection)
        options = CodecOptions(
            self._config.values.options,
            projection,
            tombstones=self._config.values.tombstones,
            skip_unchanged=self._config.filters.skip_unchanged,
            failures=self.failures,
        )
        codec = TableCodec(table, topic, options, record_format)
        source = self._source_info(table.id)
        return CapturedTable(table, topic, codec, source, schema_header(codec.schema))

    def read_behind(self, wait: Callable[[], None]) -> None:
        """Call ``wait`` before the catalog is read: it returns when the source has executed what the stream has read.

        The log has a statement before the catalog has it, which then has the definition before the statement.
        """
        self._wait = wait

    def read_catalog(self, table: TableId) -> CatalogTable:
        """Return what the catalog says of a table. Raises SchemaError if it says nothing."""
        self._wait()
        return self._read(table)

    def triggers(self, table: TableId) -> str:
        """Return why a change of a table may change others by triggers; '' if it does not."""
        return "the triggers of the source are not known" if self._triggers is None else self._triggers(table)

    def current_version(self, table: TableId) -> CapturedTable:
        """Compile the version that the catalog has now. Raises SchemaError if there is none, as ``version_of`` else."""
        return self.version_of(self.read_catalog(table))

    def key_of(self, found: CatalogTable) -> tuple[str, ...]:
        """Return the columns of the record key. Raises SchemaError for a table without one, unless allowed."""
        table = _with_key(_described(found), self._config)
        self._key_columns(table, table.columns)
        return table.key

    def key_now(self, table: TableId) -> tuple[str, ...] | None:
        """Return the key as the catalog has it; None if it has none."""
        try:
            return self.key_of(self.read_catalog(table))
        except SchemaError:
            return None

    def stand_in_key(self, found: CatalogTable) -> tuple[str, ...] | None:
        """Return the unique index that is the key, () if the whole row is; None: the binlog tells the key."""
        described = _described(found)
        is_logged = _configured_or_primary_key(described, self._config) or found.is_key_logged
        return None if is_logged else described.unique_key

    def has_unique_rows(self, version: TableVersion) -> bool:
        """Return whether a version has a primary key or a unique index, as far as it is known."""
        return bool(version.primary_key or self.keys.unique_key(version.id, version.columns))

    def lacks_stand_in_key(self, found: CatalogTable) -> bool:
        """Return whether the binlog does not tell the key of a table, and it is not remembered."""
        return self.stand_in_key(found) is not None and not self.keys.knows_unique_key(found.table.id)

    def remember_stand_in_key(self, found: CatalogTable, at: Offset) -> None:
        """Keep the unique index of a table for its first change: a later catalog may have another one."""
        unique = self.stand_in_key(found)
        if unique is not None and self.lacks_stand_in_key(found):
            self.keys.set_unique_key(found.table.id, unique, CatalogRead(at, written=True))

    def refresh_stand_in_keys(
        self,
        read: Callable[[Sequence[TableId]], Iterable[tuple[TableId, CatalogTable | SchemaError]]],
        tables: Iterable[TableId],
        at: Offset,
    ) -> None:
        """Read the remembered indexes again, behind a new offset: the stream does not tell what was altered before."""
        for _, found in read([table for table in tables if self.keys.forget_unique_key(table)]):
            if not isinstance(found, SchemaError):
                self.remember_stand_in_key(found, at)

    def added_column(self, table: TableId, action: ColumnAction) -> ColumnChange | None:
        """Return the change of ADD COLUMN with the value of the rows that exist; None if records lack the column.

        The catalog may have a later definition than the log, or one that cannot be captured: the next change decides.
        """
        name = self.field_name(action.column)
        try:
            found = self.read_catalog(table)
            columns = found.table.columns
            projection = self._transforms.project(table, columns, found.table.key)
        except SchemaError:
            return ColumnChange(AlterationKind.ADD, name)
        column = next((each for each in columns if each.name.lower() == action.column.lower()), None)
        if column is None:
            return ColumnChange(AlterationKind.ADD, name)
        if projection is not None and column.name in projection.dropped:
            return None
        transformed = projection is not None and column.name in projection.transforms
        return added_column(column, self.field_name(column.name), action, self._config, transformed=transformed)

    def publishes(self, table: TableId, column: str) -> bool:
        return self._transforms.publishes(table, column)

    def field_name(self, column: str) -> str:
        return field_name(column, self._config.converters.field_names)

    def _source_info(self, table: TableId) -> SourceInfo:
        return SourceInfo(self._config.topics.prefix, table, self._config.database.connector)

    def truncate_envelope(self, table: TableId, event: QueryEvent) -> bytes | None:
        """Return the value of a TRUNCATE record; None if the table, and with it the schema, is gone.

        The source's time has whole milliseconds. Raises what ``version_of`` raises.
        """
        envelope = self._source_info(table).event_envelope(
            ts_us=(event.commit_ts_us // 1000 or event.ts * 1000) * 1000,
            server_id=event.server_id,
            gtid=event.gtid,
            file=event.file,
            pos=event.query_pos,
        )
        if self._config.converters.forms[1] == "json":
            return JsonFrame().truncate(envelope)
        try:
            described = _described(self.read_catalog(table))
        except SchemaError:
            record_format = self._last_formats.get(table)
        else:
            version = _with_key(described, self._config)
            projection = self._transforms.project(table, version.columns, version.key)
            record_format = self._record_format(described, version, projection)
        return None if record_format is None else record_format.frame().truncate(envelope)

    def forget(self, table: TableId) -> None:
        self._last_formats.pop(table, None)

    def _describe(self, definition: CatalogTable | TableVersion) -> TableDescription:
        """Return the description; the catalog adds what a TABLE_MAP event lacks: unique indexes, defaults, comments.

        A unique index that is known from earlier counts, not that of the catalog, which may be of a later definition.
        """
        if isinstance(definition, CatalogTable):
            return _described(definition)
        table, columns = definition.id, definition.columns
        unique_key = self.keys.unique_key(table, columns)
        described = TableDescription(table, columns, definition.primary_key, unique_key or (), None)
        key_known = unique_key is not None or _configured_or_primary_key(described, self._config)
        if key_known and self._config.converters.plain:
            return described
        read = None
        self._wait()  # before the offset: the catalog has what is executed until it is read
        if not key_known and self._source_offset is not None:
            read = CatalogRead(self._source_offset(), written=True)
        try:
            catalog = self._read(table)
        except SchemaError as error:
            if not key_known:
                raise
            _warn_no_defaults(table, [column.name for column in columns], error.message)
            return described
        if not key_known and catalog.is_key_logged:
            # Invariant: such an index is no key of rows in which the log does not name it. They are from before it, and
            # may have NULLs and duplicates in its columns, or not have them.
            if self._config.filters.tables_without_key != "full-row":
                raise EarlierKeyError(table, (), catalog.index_key)
        elif unique_key is None:
            described = described._replace(unique_key=catalog.unique_key, read=read)
        return described._replace(catalog=catalog)

    def _own_topic(self, table: TableId) -> str:
        fault = self.topics.own(table)
        if fault:
            raise SchemaError(fault, hint=SHARED_TOPIC_HINT)
        return self.topic(table)

    def _record_format(
        self, described: TableDescription, table: Table, projection: ColumnProjection | None
    ) -> RecordFormat | None:
        """Return the format of a version's records; None for JSON without schemas."""
        if self._config.converters.plain:
            return None
        published = table.columns if projection is None else projection.visible(table.columns)
        columns = _catalog_columns(described, published)
        key = self._key_columns(table, columns)
        topic = self.topic(table.id)
        schemas = table_schemas(table, topic, columns, projection, self._config, key=key, transforms=self._transforms)
        record_format = self._last_formats[table.id] = self._with_ids(topic, schemas)
        return record_format

    def _key_columns(self, table: Table, columns: Sequence[Column]) -> Sequence[Column]:
        """Return the key columns with what decides their schema; keys without schema need no memory."""
        by_name = {column.name: column for column in columns}
        key = tuple(by_name[name] for name in table.key)
        return key if self._config.converters.forms[0] == "json" else self.keys.columns(table.id, key)

    def _with_ids(self, topic: str, schemas: TableSchemas) -> RecordFormat:
        """Register the schemas that are written as Avro."""
        key, value = self._config.converters.forms
        return RecordFormat(
            key=key,
            value=value,
            columns=schemas.columns,
            key_schema=schemas.key,
            value_schema=schemas.value,
            key_id=self._schema_id("key", topic, schemas.key) if key == "avro" else 0,
            value_id=self._schema_id("value", topic, schemas.value) if value == "avro" else 0,
            exact_nulls=self._config.converters.nulls == "debezium-exact",
        )


def _described(found: CatalogTable) -> TableDescription:
    return TableDescription(found.table.id, found.table.columns, found.primary_key, found.unique_key, found)


def _configured_or_primary_key(described: TableDescription, config: ProducerConfig) -> tuple[str, ...]:
    names = [column.name for column in described.columns]
    return tuple(config.filters.message_keys.columns(described.id, names)) or described.primary_key


def _with_key(described: TableDescription, config: ProducerConfig) -> Table:
    """Choose the record key: message.key.columns, the primary key, a unique index without NULLs, or all columns."""
    key = _configured_or_primary_key(described, config) or described.unique_key
    if not key and config.filters.tables_without_key == "full-row":
        key = tuple(column.name for column in described.columns)
    if not key:
        raise SchemaError(
            f"table {described.id} has neither a primary key nor a unique index without NULLs",
            hint=f"add a key, or name columns in message.key.columns ({described.id}:column), or exclude the table, "
            "or set tailrace.tables.without.key=full-row",
        )
    return float_keys(Table(described.id, described.columns, key))


def _catalog_columns(described: TableDescription, published: Sequence[Column]) -> Sequence[Column]:
    """Return the columns with their defaults and comments; without them if the catalog has another column by now."""
    if described.catalog is None or all(column.catalog is not None for column in published):
        return published
    known = {column.name: column for column in described.catalog.table.columns}
    changed = [column.name for column in published if known.get(column.name) != as_in_catalog(column)]
    if changed:
        _warn_no_defaults(described.id, changed, "the table was altered after this position of the binlog")
    return [column if column.name in changed else known[column.name] for column in published]


def _warn_no_defaults(table: TableId, columns: Sequence[str], reason: str) -> None:
    log.warning(
        "columns are published without defaults and comments", table=str(table), columns=list(columns), reason=reason
    )


# A FLOAT(M,D) is written as a double: its digits are in the catalog, not in a TABLE_MAP event.


def with_float_digits(columns: Iterable[Column], known: Iterable[Column]) -> tuple[Column, ...]:
    """Return columns of a TABLE_MAP event with the digits that columns of the catalog have, where both are the same."""
    digits = {column.name: column for column in known if column.data_type == "float"}
    return tuple(
        replace(column, precision=digits[column.name].precision, scale=digits[column.name].scale)
        if column.name in digits and _without_digits(digits[column.name]) == column
        else column
        for column in columns
    )


def known_definition(
    definition: CatalogTable | TableVersion, read_catalog: Callable[[TableId], CatalogTable]
) -> CatalogTable | TableVersion:
    """Return a definition with the digits of its FLOAT columns. Without a catalog entry they are written as floats."""
    if isinstance(definition, CatalogTable) or all(column.data_type != "float" for column in definition.columns):
        return definition
    try:
        known = read_catalog(definition.id).table.columns
    except SchemaError:
        return definition
    return definition._replace(columns=with_float_digits(definition.columns, known))


def float_keys(table: Table) -> Table:
    """Return a table whose key has no FLOAT(M,D) but FLOAT: the catalog of a later time must not change its bytes."""
    columns = (_without_digits(each) if each.name in table.key else each for each in table.columns)
    return replace(table, columns=tuple(columns))


def _without_digits(column: Column) -> Column:
    return replace(column, precision=0, scale=0) if column.data_type == "float" and column.precision else column
