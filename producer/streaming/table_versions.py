"""Table versions that the stream has read: compiled once, with their schema published before the first row.

A table has one version in use at a time. The schema is published whenever another one is put in use, also if the table
returns to an earlier one: a reader of the schemas topic sees which schema holds from which position on.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Final, NamedTuple

import structlog

from tailrace.producer.errors import EarlierKeyError
from tailrace.producer.kafka.state_store import known_key_key
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.binlog_events import QueryEvent, RowsEvent, TableVersion
from tailrace.producer.model.codec import KeyReaders, RowsEncoders
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.native.loader import codec
from tailrace.producer.serialization.captured_tables import CapturedTable
from tailrace.producer.serialization.envelope.headers import event_header
from tailrace.producer.serialization.key_memory import CatalogRead
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.new_tables import NewTables
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.runtime.errors import KafkaRequestError, SchemaError
from tailrace.schemas.names import EVENT_HEADER, schemas_topic
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import Sequence

if TYPE_CHECKING:
    from collections.abc import Set as AbstractSet

    from tailrace.producer.native.codec import ImageEncoder, TableEmitter, Template

log = structlog.get_logger(__name__)

_CHANGES_KEYS: Final = re.compile(r"\b(?:unique|key|index|drop|change|modify|rename)\b", re.IGNORECASE)
"""Words without which a statement leaves the unique indexes of a table as they are."""

MAX_COLUMNS: Final = 15_000
"""Columns of the versions in use: above it, those without a recent change are evicted (about 4 KB for each column)."""


def _nothing(_table: TableId) -> bool:
    return False


class IncrementalKeyChangedError(Exception):
    """The key of a table under incremental snapshot changed: its changes cannot be matched to splits any more."""


class StreamedVersion:
    """A table version with everything that its rows events need."""

    __slots__ = (
        "_epoch",
        "_event_headers",
        "_number",
        "captured",
        "definition",
        "emitter",
        "encode",
        "headers",
        "key_readers",
        "tracked",
    )

    def __init__(
        self,
        definition: TableVersion,
        captured: CapturedTable,
        tracked: TrackedTable,
        context_headers: Headers,
        *,
        epoch: int,
    ) -> None:
        self.definition = definition
        self.captured = captured
        self.tracked = tracked
        self.encode: RowsEncoders = captured.codec.encoders
        self.key_readers: KeyReaders = captured.codec.key_readers
        self.headers: Headers = [captured.schema_header, *context_headers]
        """The headers that all records of the version share."""
        self._epoch, self._number = epoch, -1
        self._event_headers: Headers = []
        self.emitter: TableEmitter | None = None
        """What the compiled extension emits the changes of the version with; None: it does not."""

    def headers_of(self, number: int) -> Headers:
        """Return the headers of the records of an event by its number in its transaction; they are not changed.

        Most transactions have one event, so the headers of the last one are kept.
        """
        if number != self._number:
            self._number, self._event_headers = number, [event_header(self._epoch, number), *self.headers]
        return self._event_headers


class _Current(NamedTuple):
    """What is remembered of the version in use of a table, also if the version itself is evicted."""

    schema: str
    """The fingerprint of the schema that is published; empty: the next one is published in any case."""
    definition: bytes
    """The fingerprint of its definition."""
    headers: Headers


class TableVersions:
    """Finds the version of a rows event; used by the stream's thread."""

    def __init__(self, context: StreamContext, new_tables: NewTables) -> None:
        self._context = context
        self.new_tables = new_tables
        self.in_use: dict[bytes, StreamedVersion] = {}
        """Versions in use, by the fingerprint of their definition."""
        self.emits: Callable[[TableId], bool] = _nothing
        """Whether the versions of a table get an ``emitter``."""
        self._columns = 0
        """Columns of ``in_use``, which its memory is proportional to."""
        self._unused: dict[bytes, StreamedVersion] = {}
        """Versions that were in use, and have not been since ``in_use`` was full the last time."""
        self._current: dict[TableId, _Current] = {}

    def forget(self, table: TableId) -> None:
        """Forget a table's versions: the table left, or a snapshot begins whose keys must match them."""
        if self._current.pop(table, None) is None:
            return  # it has none
        for versions in (self.in_use, self._unused):
            for known in [known for known, version in versions.items() if version.definition.id == table]:
                del versions[known]

    def definition(self, table: TableId) -> TableVersion | None:
        """Return the definition in use of a table; None if it is not known."""
        version = self._version(table)
        return None if version is None else version.definition

    def _version(self, table: TableId) -> StreamedVersion | None:
        current = self._current.get(table)
        if current is None:
            return None
        return self.in_use.get(current.definition) or self._unused.get(current.definition)

    def republish(self, table: TableId) -> None:
        """Publish the schema of the next rows event of a table, also if it is the one in use."""
        current = self._current.get(table)
        if current is not None:
            self._current[table] = current._replace(schema="")
            self._put_aside(table)

    def _put_aside(self, table: TableId) -> None:
        """Put the version in use in use again with the next rows event, not before."""
        current = self._current.get(table)
        version = self.in_use.pop(current.definition, None) if current is not None else None
        if version is not None:
            self._unused[version.definition.fingerprint] = version

    def change(self, event: RowsEvent) -> StreamedVersion | None:
        """Put the version of an event in use, and publish its schema unless the version before had the same.

        None: the event is skipped, since its table waits for its snapshot or is in error.
        Raises IncrementalKeyChangedError, and SchemaError if a table that is captured lost its key.
        """
        version = self._unused.pop(event.table.fingerprint, None) or self._add(event)
        if version is None:
            return None
        previous = self._current.get(event.table.id)
        if previous is None or previous.schema != version.captured.fingerprint:
            offset = self._context.transaction.offset
            self._publish(version.captured, Sequence.at(offset.epoch, event.file, event.pos, event.number))
        replaced = self.in_use.pop(previous.definition, None) if previous is not None else None
        self._use(version)
        self._context.tables.keys.set_definition(event.table)
        self._save_keys()
        if replaced is not None:
            self._unused[replaced.definition.fingerprint] = replaced  # the table may return to it
        return version

    def _use(self, version: StreamedVersion) -> None:
        definition = version.definition
        columns = len(definition.columns)
        if self._columns + columns > MAX_COLUMNS:
            self._unused, self.in_use, self._columns = self.in_use, {}, 0
        self._columns += columns
        self.in_use[definition.fingerprint] = version
        self._current[definition.id] = _Current(version.captured.fingerprint, definition.fingerprint, version.headers)

    def forget_definitions(self, tables: Iterable[TableId]) -> None:
        """Forget proven definitions that a statement may have changed: a restart behind it must not use them."""
        for table in tables:
            if self._context.tables.keys.forget_definition(table):
                self._put_aside(table)  # with the next event its definition is kept again
        self._save_keys()

    def on_statement(self, event: QueryEvent, effect: DdlEffect) -> None:
        """Read unique indexes again that a statement may have changed: the binlog's definitions do not have them."""
        if effect.change in {Change.TRUNCATE, Change.DATABASE, Change.DROP_DATABASE}:
            return
        keys = self._context.tables.keys
        for table in (effect.table, effect.renamed_from):
            if table is None:
                continue
            read = keys.read_after(table, event.gtid)
            if read is not None:  # the catalog had the result of the statement already
                if read.written:
                    self._report_early_key(table, event, effect)
            elif keys.forget_unique_key(table):
                self._save_keys()
                self.forget(table)

    def _report_early_key(self, table: TableId, event: QueryEvent, effect: DdlEffect) -> None:
        """Say that the key of a table was perhaps in use before the statement that defined it."""
        version = self._version(table)
        if version is None or version.definition.primary_key or not _CHANGES_KEYS.search(effect.sql):
            return  # no row was written, or with another key
        log.error(
            "changes may have been written with the key of a later definition: the binlog does not tell unique indexes",
            table=str(table),
            key=list(version.captured.table.key),
            statement=effect.sql[:200],
            gtid=event.gtid,
            hint="delete topic and target tables, since they may have rows of the table under two keys, and take a new "
            "snapshot; give the table a primary key, or name columns in message.key.columns",
        )

    def plan_key(self, table: TableId, unique: tuple[str, ...], at: Offset) -> None:
        """Use the unique index that an initial snapshot is planned on; the catalog was read after ``at``."""
        self._context.tables.keys.set_unique_key(table, unique, CatalogRead(at, written=False))
        self._save_keys()

    def statement_headers(self, table: TableId, event: QueryEvent) -> Headers:
        """Return the headers that the record of a statement shares with the rows of its table.

        Before the first rows event they name the schema of the catalog, or none if the catalog has no valid one.
        """
        current = self._current.get(table)
        if current is not None:
            return current.headers
        context = self._context
        context_headers = context.settings.context_headers
        try:
            captured = context.tables.current_version(table)
        except SchemaError:
            return context_headers
        self._publish(captured, Sequence.at(context.transaction.offset.epoch, event.file, event.query_pos))
        return [captured.schema_header, *context_headers]

    def fail(self, table: TableId, fault: TableFault) -> None:
        """Put a captured table in error; its next change is checked again."""
        self.new_tables.fail(table, fault)
        self.forget(table)

    def _add(self, event: RowsEvent) -> StreamedVersion | None:
        context, definition = self._context, event.table
        tracked = context.registry.tables.get(definition.id)
        if tracked is None or tracked.mode is TableMode.ERROR:
            found = self._add_table(definition)
            if found is None:
                context.status.change_skipped(definition.id)
                return None
            captured, tracked = found
        elif tracked.mode is TableMode.WAITING:
            return None  # its definition may be one that could not be captured
        else:
            captured = context.tables.version_of(definition)
        self._save_keys()
        if tracked.order is not None:
            self._require_same_key(tracked, captured)
        epoch = context.transaction.offset.epoch
        version = StreamedVersion(definition, captured, tracked, context.settings.context_headers, epoch=epoch)
        if self.emits(definition.id):
            version.emitter = new_table_emitter(
                captured, version.headers, epoch, skipped=context.settings.skipped_operations
            )
        return version

    def _require_same_key(self, tracked: TrackedTable, captured: CapturedTable) -> None:
        """Raise if changed keys can no longer be compared with the bounds of splits."""
        assert tracked.order is not None
        key = captured.table.key
        try:
            tracked.order.require_same_key(tracked.id, captured.table.key_columns)
        except SchemaError as error:
            is_incremental = tracked.mode is TableMode.INCREMENTAL
            if is_incremental and tracked.fault is None:
                raise IncrementalKeyChangedError from error  # without the snapshot, its changes need no key of splits
            now = self._context.tables.key_now(tracked.id)
            if now is not None and now != key:
                raise EarlierKeyError(tracked.id, key, now) from error
            if is_incremental:
                raise IncrementalKeyChangedError from error
            raise

    def _add_table(self, definition: TableVersion) -> tuple[CapturedTable, TrackedTable] | None:
        """Capture a table with its first change; None: it cannot be captured."""
        if not self.new_tables.may_try(definition):
            return None
        self.new_tables.on_first_change(definition)
        try:
            return self._context.tables.version_of(definition), self.new_tables.capture(definition.id)
        except (SchemaError, KafkaRequestError) as error:
            self.new_tables.reject(definition, error)
            return None

    def _save_keys(self) -> None:
        context = self._context
        for name, value in context.tables.keys.take_unsaved():
            context.transaction.store(known_key_key(name), value)

    def _publish(self, captured: CapturedTable, sequence: Sequence) -> None:
        schema, context = captured.codec.schema, self._context
        topic = schemas_topic(context.settings.prefix)
        context.transaction.send(topic, schema.record_key(), schema.to_json(sequence=sequence))


OPS: Final = (Op.CREATE, Op.UPDATE, Op.DELETE)
"""The operations of rows events, in the order that the extension knows them by."""
_MAX_HEADERS: Final = 27


def new_table_emitter(
    captured: CapturedTable, headers: Headers, epoch: int, *, skipped: AbstractSet[str]
) -> TableEmitter | None:
    """Return what the extension emits the changes of a version with; None if it cannot encode the table.

    ``headers`` are those that all its records share. ``skipped`` are operations that are not written. The encoders are
    made for the first event of their operation.
    """
    loops = captured.codec.native
    if loops is None or len(headers) > _MAX_HEADERS:
        return None
    constants = captured.source.constants

    def prepare(op: int) -> tuple[ImageEncoder, Template, Template] | None:
        encoder = None if OPS[op] in skipped else loops.images(OPS[op])
        return None if encoder is None else (encoder, *loops.template(constants, OPS[op]))

    return codec.TableEmitter(captured.topic, headers, EVENT_HEADER, epoch, prepare)
