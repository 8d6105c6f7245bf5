"""Table versions that the stream has read: compiled once, with their schema published before the first row.

A table has one version in use at a time. The schema is published whenever another one is put in use, also if the table
returns to an earlier one: a reader of the schemas topic sees which schema holds from which position on.
"""

from __future__ import annotations

from tailrace.producer.kafka.state_store import TableState, known_key_key, table_key
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.binlog_events import QueryEvent, RowsEvent, TableVersion
from tailrace.producer.model.codec import RowsEncoders
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.serialization.captured_tables import CapturedTable
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.topics import CaptureTopics
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.sequence import Sequence


class IncrementalKeyChangedError(Exception):
    """The key of a table under incremental snapshot changed: its changes cannot be matched to splits any more."""


class StreamedVersion:
    """A table version with everything that its rows events need."""

    __slots__ = ("captured", "definition", "encode", "headers", "tracked")

    def __init__(
        self, definition: TableVersion, captured: CapturedTable, tracked: TrackedTable, context_headers: Headers
    ) -> None:
        self.definition = definition
        self.captured = captured
        self.tracked = tracked
        self.encode: RowsEncoders = captured.codec.encoders
        self.headers: Headers = [captured.schema_header, *context_headers]
        """The headers that all records of the version share."""


class TableVersions:
    """Finds the version of a rows event; used by the stream's thread."""

    def __init__(self, context: StreamContext, topics: CaptureTopics) -> None:
        self._context = context
        self._topics = topics
        self.in_use: dict[int, StreamedVersion] = {}
        """The version in use of each table, by the id of its definition: the stream has one object for each."""
        self._known: dict[int, StreamedVersion] = {}
        """All versions, by the id of their definition."""
        self._by_table: dict[TableId, StreamedVersion] = {}
        """The version in use of each table."""

    def forget(self, table: TableId) -> None:
        """Forget a table's versions: the table left, or a snapshot begins whose keys must match them."""
        for versions in (self.in_use, self._known):
            for known in [known for known, version in versions.items() if version.definition.id == table]:
                del versions[known]
        self._by_table.pop(table, None)

    def change(self, event: RowsEvent) -> StreamedVersion:
        """Put the version of an event in use, and publish its schema unless the version before had the same.

        Raises IncrementalKeyChangedError, and SchemaError if the table has no key.
        """
        version = self._known.get(id(event.table)) or self._add(event)
        previous = self._by_table.get(event.table.id)
        if previous is None or previous.captured.fingerprint != version.captured.fingerprint:
            offset = self._context.transaction.offset
            self._publish(version.captured, Sequence.at(offset.epoch, event.file, event.pos, event.number))
        if previous is not None:
            self.in_use.pop(id(previous.definition), None)
        self.in_use[id(event.table)] = self._by_table[event.table.id] = version
        return version

    def on_statement(self, effect: DdlEffect) -> None:
        """Read unique indexes again that a statement may have changed: the binlog's definitions do not have them."""
        if effect.change in {Change.TRUNCATE, Change.DATABASE, Change.DROP_DATABASE}:
            return
        context = self._context
        for table in (effect.table, effect.renamed_from):
            if table is not None and context.tables.keys.forget_unique_key(table):
                self._save_keys()
                self.forget(table)

    def statement_headers(self, table: TableId, event: QueryEvent) -> Headers:
        """Return the headers that the record of a statement shares with the rows of its table.

        Before the first rows event they name the schema of the catalog, or none if the catalog has no valid one.
        """
        version = self._by_table.get(table)
        if version is not None:
            return version.headers
        context = self._context
        context_headers = context.settings.context_headers
        try:
            captured = context.tables.current_version(table)
        except SchemaError:
            return context_headers
        self._publish(captured, Sequence.at(context.transaction.offset.epoch, event.file, event.query_pos))
        return [captured.schema_header, *context_headers]

    def track(self, table: TableId) -> TrackedTable:
        """Return a captured table of the binlog as the registry tracks it."""
        context = self._context
        tracked = context.registry.tables.get(table)
        if tracked is None:
            # The table was created after the capture listed its tables: the binlog has all of its rows.
            tracked = context.registry.track(table, TableMode.STREAMING)
            self._topics.ensure_tables([table])
            context.transaction.store(table_key(table), TableState(TableMode.STREAMING).to_json())
        return tracked

    def _add(self, event: RowsEvent) -> StreamedVersion:
        context, definition = self._context, event.table
        captured = context.tables.version_of(definition)
        self._save_keys()
        tracked = self.track(definition.id)
        if tracked.order is not None:
            _require_same_key(tracked, captured)
        version = StreamedVersion(definition, captured, tracked, context.settings.context_headers)
        self._known[id(definition)] = version
        return version

    def _save_keys(self) -> None:
        context = self._context
        for name, value in context.tables.keys.take_unsaved():
            context.transaction.store(known_key_key(name), value)

    def _publish(self, captured: CapturedTable, sequence: Sequence) -> None:
        schema, context = captured.codec.schema, self._context
        topic = schemas_topic(context.settings.prefix)
        context.transaction.send(topic, schema.record_key(), schema.to_json(sequence=sequence))


def _require_same_key(tracked: TrackedTable, captured: CapturedTable) -> None:
    """Raise if changed keys can no longer be compared with the bounds of splits."""
    assert tracked.order is not None
    try:
        tracked.order.require_same_key(tracked.id, captured.table.key_columns)
    except SchemaError as error:
        if tracked.mode is not TableMode.INCREMENTAL:
            raise
        raise IncrementalKeyChangedError from error
