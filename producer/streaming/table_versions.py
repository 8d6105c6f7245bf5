"""Table versions that the stream has read: compiled once, with their schema published before the first row."""

from __future__ import annotations

from tailrace.producer.kafka.state_store import TableState, table_key
from tailrace.producer.model.binlog_events import RowsEvent, TableVersion
from tailrace.producer.model.codec import RowsEncoders
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.serialization.captured_tables import CapturedTable
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.topics import CaptureTopics
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import schemas_topic


class IncrementalKeyChangedError(Exception):
    """The key of a table under incremental snapshot changed: its changes cannot be matched to splits any more."""


class StreamedVersion:
    """A table version with everything that its rows events need."""

    __slots__ = ("captured", "definition", "encode", "tracked")

    def __init__(self, definition: TableVersion, captured: CapturedTable, tracked: TrackedTable) -> None:
        self.definition = definition
        self.captured = captured
        self.tracked = tracked
        self.encode: RowsEncoders = captured.codec.encoders


class TableVersions:
    """Finds the version of a rows event; used by the stream's thread."""

    def __init__(self, context: StreamContext, topics: CaptureTopics) -> None:
        self._context = context
        self._topics = topics
        self.known: dict[int, StreamedVersion] = {}
        """By the id of the event's table definition; the stream has one object for each definition."""
        self._published: set[str] = set()

    def forget(self, table: TableId) -> None:
        """Forget a table's versions: the table left, or a snapshot begins whose keys must match them."""
        for known in [known for known, version in self.known.items() if version.definition.id == table]:
            del self.known[known]

    def add(self, event: RowsEvent) -> StreamedVersion:
        """Add the table version of an event. Raises IncrementalKeyChangedError, and SchemaError if it has no key."""
        context, definition = self._context, event.table
        captured = context.tables.version_of(definition)
        tracked = context.registry.tables.get(definition.id)
        if tracked is None:
            # The table was created after the capture listed its tables: the binlog has all of its rows.
            tracked = context.registry.track(definition.id, TableMode.STREAMING)
            self._topics.ensure_tables([definition.id])
            context.transaction.store(table_key(definition.id), TableState(TableMode.STREAMING).to_json())
        elif tracked.order is not None:
            _require_same_key(tracked, captured)
        self._publish(event, captured)
        version = StreamedVersion(definition, captured, tracked)
        self.known[id(definition)] = version
        return version

    def _publish(self, event: RowsEvent, captured: CapturedTable) -> None:
        schema = captured.codec.schema
        if schema.fingerprint in self._published:
            return
        context = self._context
        begin = context.transaction.offset.transaction
        version = (begin.commit_ts_us if begin else 0) or event.ts * 1_000_000
        topic = schemas_topic(context.settings.prefix)
        context.transaction.send(topic, schema.record_key(), schema.to_json(version=version))
        self._published.add(schema.fingerprint)


def _require_same_key(tracked: TrackedTable, captured: CapturedTable) -> None:
    """Raise if changed keys can no longer be compared with the bounds of splits."""
    assert tracked.order is not None
    try:
        tracked.order.require_same_key(tracked.id, captured.table.key_columns)
    except SchemaError as error:
        if tracked.mode is not TableMode.INCREMENTAL:
            raise
        raise IncrementalKeyChangedError from error
