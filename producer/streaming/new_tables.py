"""Tables that the stream meets without having captured them: created, arriving with rows, or not possible to capture.

A table whose CREATE the stream has read is empty: the binlog has all of its rows. Any other table arrives with rows
that the binlog does not have: it was renamed into the capture, the account could not see it before, or its rows were
moved into it. Such a table is streamed at once, and an incremental snapshot reads it concurrently. So is a table of
CREATE TABLE IF NOT EXISTS: the server logs that statement also if the table existed, with rows.

A table that cannot be captured must not stop the others. It is in error, and its changes are skipped. A statement that
alters it, a later change of it, or a request to read it takes it up; it then arrives with rows.

Invariant: a captured table that is put in error has left (``former_tables.py``), and returns by ``_capture`` alone,
which has all of it read. So no change that was skipped is missing, a delete no more than an insert. It keeps its fault
until it is read: if the reading ends early, the table is in error again.

Invariant: what Kafka has refused is sent once in a process. The next session reads it again, up to where the one before
has read: until then nothing takes the table up, also if it is dropped and created.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from contextlib import closing
from types import MappingProxyType
from typing import Final, NamedTuple

import structlog

from tailrace.producer.errors import RefusedChange, TableAccessError
from tailrace.producer.kafka.state_store import TableState, table_key
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.protocols import Offset, Source
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.serialization.envelope.topic_names import SHARED_TOPIC_HINT
from tailrace.producer.streaming import former_tables
from tailrace.producer.streaming.context import SnapshotProgressListener, StreamContext
from tailrace.producer.streaming.topics import CaptureTopics
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.runtime.errors import KafkaRequestError, Retryable, SchemaError, TailraceError

log = structlog.get_logger(__name__)

_PLANNED_LATER: Final = frozenset({TableMode.WAITING, TableMode.RESTARTING})
"""Modes of tables that begin with the plan of their initial snapshot: it will contain what is there then."""
_MOST_FORMER: Final = 1_000
"""Former tables that are kept without a look at their topics."""
_RETRY_S: Final = 10.0
"""How often a change of a table in error checks whether it can be captured now."""


class Arrival(NamedTuple):
    """What a statement brings with a table."""

    read: bool = True
    """The topic may lack rows of the table, or have other values: it is read."""
    same: bool = False
    """The table has the rows of the one that it replaces: what the topic has is not gone."""
    empty: bool = False
    """The table certainly has no rows."""


_ARRIVAL: Final = Arrival()


class NewTables:
    """Decides how a table enters the capture; used by the stream's thread."""

    def __init__(
        self,
        context: StreamContext,
        topics: CaptureTopics,
        listener: SnapshotProgressListener,
        source: Source,
        *,
        reads: Callable[[TableId], bool],
        held: Mapping[TableId, RefusedChange] = MappingProxyType({}),
    ) -> None:
        """``reads``: of a table that has never been captured. ``held``: what Kafka has refused before."""
        self._held = held
        self._source = source
        self._context = context
        self._registry = context.registry
        self._topics = topics
        self._listener = listener
        self._reads = reads
        self._created: dict[TableId, bool] = {}
        """Tables that are not captured yet whose CREATE the stream has read, and whether they may have rows that it has
        not: because they may have existed before, or because changes were skipped."""
        self._incomplete: set[TableId] = set()
        """Tables whose end the stream has read before their initial snapshot was complete, and that are not captured
        again: a copy that replaces one is read, whatever rows it has."""
        self._most_former = _MOST_FORMER
        self._rejected: dict[TableId, tuple[bytes, float]] = {}
        """Tables in error: the fingerprint of the definition that was rejected, and when to try it again."""

    # -- statements --------------------------------------------------------------------------------------------------

    def on_created(self, table: TableId, at: Offset, *, may_exist: bool = False) -> None:
        """The binlog has the CREATE of a table, which ends at ``at``; ``may_exist``: it may have had rows before."""
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.mode is TableMode.ERROR:
            self._created[table] = may_exist and self._created.get(table, True)
            if self._reject_shared_topic(table) or tracked is not None or str(table) not in self._registry.former:
                return
            if not may_exist:
                self._begin_empty(table, at)
            elif self._reads(table):
                self._try_to_capture(table, at)  # it may never have a change, and readers have the former rows
        else:
            self._come_back(tracked, at, follow=not may_exist or self._reads(table), may_exist=may_exist)

    def _begin_empty(self, table: TableId, at: Offset) -> None:
        """A table is certainly new and empty: a start before its first change does not know that any more."""
        if self.ensure_topic(table):
            former_tables.enter(self._context, table, at)

    def ensure_topic(self, table: TableId) -> bool:
        """Create the topic of a table if it is missing; False: Kafka refuses it, and the new table is in error."""
        try:
            self._topics.ensure_tables([table])
        except KafkaRequestError as error:
            tracked = self._registry.tables.get(table)
            if tracked is not None and tracked.mode is not TableMode.ERROR:
                raise  # it had its topic when the session began
            self._reject(table, error)
            return False
        return True

    def is_empty(self, table: TableId | None) -> bool:
        """Whether the stream has read the CREATE of a table, and no change of it since."""
        return table is not None and self._created.get(table) is False and table not in self._registry.tables

    def is_read(self, table: TableId) -> bool:
        return self._reads(table)

    def lacks_rows(self, table: TableId) -> bool:
        """Whether the topic of a table is not complete, or has a former one, until the table is read.

        Invariant: no copy replaces such a table without a reading, since the request to read it goes with its name.
        """
        tracked = self._registry.tables.get(table)
        if tracked is None:
            return self._reads(table) and not self.is_empty(table)
        is_former = str(table) in self._registry.former
        has_fault = tracked.mode is TableMode.ERROR or tracked.fault is not None
        return has_fault or is_former or self._listener.requires_reading(table)

    def _come_back(self, tracked: TrackedTable, at: Offset, *, follow: bool, may_exist: bool = False) -> None:
        """A table that the stream has not ceased to track has its name from ``at`` on: it is perhaps another one.

        The splits of its initial snapshot may have read the new table when the log was not at ``at`` yet: readers take
        such rows for those of the former one, and the changes that the rows contain are skipped. So it is read again,
        as is one that may have existed: its rows are not in the binlog.
        """
        if tracked.mode in _PLANNED_LATER:
            return
        is_another = str(tracked.id) in self._registry.former
        former_tables.enter(self._context, tracked.id, at, follow=follow)
        if is_another and (tracked.mode is TableMode.SNAPSHOT or (may_exist and follow)):
            self._listener.request_reading(tracked.id)

    def read_whole(self, table: TableId, at: Offset) -> None:
        """The rows of a table that readers have from before ``at`` are not right: all of them are read."""
        tracked = self._registry.tables.get(table)
        if tracked is not None and tracked.mode is not TableMode.ERROR:  # that is read when it returns
            former_tables.leave(self._context, table)
            self._come_back(tracked, at, follow=True, may_exist=True)

    def on_dropped(self, table: TableId) -> None:
        self._created.pop(table, None)
        self._rejected.pop(table, None)
        self._context.tables.forget(table)
        tracked = self._registry.tables.get(table)
        if tracked is not None:
            self._incomplete.discard(table)
            if tracked.mode not in {TableMode.STREAMING, TableMode.INCREMENTAL, TableMode.ERROR}:
                self._incomplete.add(table)
        if len(self._registry.former) >= self._most_former:
            former_tables.forget_without_topic(self._context.transaction, self._registry.former, self._topics)
            self._most_former = max(_MOST_FORMER, 2 * len(self._registry.former))
        if tracked is None and not self._reads(table) and self._context.settings.table_filter.includes(table):
            # It was there before the start, and gone at it. Of a table that is not read the state has nothing.
            former_tables.leave(self._context, table)

    def on_database_dropped(self, database: str) -> None:
        for table in [table for table in self._created if table.database == database]:
            self.on_dropped(table)

    def on_definition_changed(self, table: TableId, at: Offset) -> None:
        """The definition of a table changed up to ``at``: if it is in error, try to capture it."""
        tracked = self._registry.tables.get(table)
        if tracked is not None and tracked.mode is TableMode.ERROR:
            self._rejected.pop(table, None)
            self._try_to_capture(table, at)

    def on_arrived(self, table: TableId, at: Offset, arrival: Arrival = _ARRIVAL) -> None:
        """A table has, or may have, rows from ``at`` on that the binlog does not have."""
        self._created.pop(table, None)
        if self._reject_shared_topic(table):
            return
        tracked = self._registry.tables.get(table)
        if tracked is None and table in self._incomplete:
            self._try_to_capture(table, at, arrival._replace(read=True, same=False))
        elif tracked is None:
            self._try_to_capture(table, at, arrival)
        elif tracked.mode is TableMode.ERROR:
            self.on_definition_changed(table, at)
        elif tracked.mode not in _PLANNED_LATER:
            if arrival.same:
                former_tables.stay(self._context, table)
            self._come_back(tracked, at, follow=self._all_follow(table, arrival))
            if arrival.read:
                self._request(table)

    def _reject_shared_topic(self, table: TableId) -> bool:
        """Put a new table in error if its topic is that of another table: nothing of it may be written there."""
        fault = "" if table in self._registry.tables else self._context.tables.topics.fault(table)
        if fault:
            self._reject(table, SchemaError(fault, hint=SHARED_TOPIC_HINT))
        return bool(fault)

    def _try_to_capture(self, table: TableId, at: Offset, arrival: Arrival = _ARRIVAL) -> None:
        """Capture a table as the catalog has it, or put it in error."""
        try:
            found = self._context.tables.read_catalog(table)
        except SchemaError:
            return  # renamed or dropped by a later statement, or not visible: its first change decides
        try:
            self._context.tables.version_of(found)
            self._capture(table, at, arrival)
        except (SchemaError, KafkaRequestError) as error:
            self._reject(table, error)

    # -- changes -----------------------------------------------------------------------------------------------------

    def may_try(self, definition: TableVersion) -> bool:
        """Whether a change of a table that is not captured should be compiled."""
        tracked = self._registry.tables.get(definition.id)
        if tracked is not None and tracked.fault is not None and not tracked.fault.defined:
            return False  # the fault is not in the definition
        rejected = self._rejected.get(definition.id)
        return rejected is None or rejected[0] != definition.fingerprint or time.monotonic() >= rejected[1]

    def on_first_change(self, definition: TableVersion) -> None:
        """Know that a table has no key if the catalog has it no more: it was created, filled and dropped at once.

        The log has the primary key, and the unique index that stands in for it.
        """
        tables = self._context.tables
        if definition.primary_key or self._created.get(definition.id) is not False:
            return
        try:
            tables.read_catalog(definition.id)
        except SchemaError:
            tables.keys.set_unique_key(definition.id, ())

    def capture(self, table: TableId) -> TrackedTable:
        """Capture a table with its first change; its definition is valid."""
        arrival = Arrival(read=self._created.get(table, True))
        if self.lacks_rows(table) or (arrival.read and self._reads(table)):
            denied = access_error(self._context.tables.read_catalog, table)
            if denied is not None:
                raise denied  # its change would be captured alone
        return self._capture(table, self._context.transaction.offset.position, arrival)

    def on_granted(self, at: Offset) -> list[TableId]:
        """Try the tables in error that the account may read up to ``at``; return those that only a new session may.

        A session sees new privileges on a table, and not new global ones.
        """
        unreadable = []
        for table, tracked in list(self._registry.tables.items()):
            if tracked.mode is TableMode.ERROR and (tracked.fault is None or tracked.fault.defined):
                if access_error(self._context.tables.read_catalog, table) is None:
                    self.on_definition_changed(table, at)
                else:
                    unreadable.append(table)
        if not unreadable:
            return []
        with closing(self._source.open_snapshot_session()) as session:
            return [table for table in unreadable if access_error(session.describe, table) is None]

    def reject(self, definition: TableVersion, error: TailraceError) -> None:
        """Put a table in error: its change cannot be captured. Raises ``error`` if a retry of the capture may help."""
        self._reject(definition.id, error, definition.fingerprint)

    # -- modes -------------------------------------------------------------------------------------------------------

    def fail(self, table: TableId, fault: TableFault) -> None:
        """Put a captured table in error; no reader is active on it."""
        tracked = self._registry.tables[table]
        tracked.move_to(TableMode.ERROR)
        tracked.end_snapshot()
        tracked.fault = fault
        former_tables.leave(self._context, table)
        self._context.transaction.store(table_key(table), TableState(TableMode.ERROR, fault=fault).to_json())
        self._context.status.table_failed(table, fault.reason, fault.at)

    def take_up(self, table: TableId) -> bool:
        """Capture a table in error, because its rows are about to be read; False: it stays in error."""
        tracked = self._registry.tables[table]
        at = self._context.transaction.offset.position
        if tracked.mode is TableMode.ERROR and self._refused_before(table, at) is None and self.ensure_topic(table):
            self._capture(table, at, _ARRIVAL)
        return tracked.mode is not TableMode.ERROR

    def lose(self, table: TableId) -> None:
        """A change of a table that is not captured yet was refused: it is read when it is captured."""
        if table in self._created:
            self._created[table] = True

    def track(self, table: TableId) -> None:
        """Capture a table of the binlog unless it is, or put it in error."""
        try:
            if table not in self._registry.tables and self.ensure_topic(table):
                self.capture(table)
        except (SchemaError, KafkaRequestError) as error:
            self._reject(table, error)

    def restore(self, required: Iterable[TableId]) -> None:
        """Let tables enter that left when the reading of all their rows was requested, and try those in error again.

        One whose initial snapshot is not complete enters with its plan, and one in error when it is taken up.
        """
        for table in required:
            tracked = self._registry.tables.get(table)
            if tracked is not None and tracked.mode not in {*_PLANNED_LATER, TableMode.ERROR}:
                former_tables.enter(self._context, table, self._context.transaction.offset.position)
        self.retry()

    def retry(self) -> None:
        """Try the captured tables whose error was a definition that has changed, or under another configuration."""
        for table, tracked in list(self._registry.tables.items()):
            fault = tracked.fault if tracked.mode is TableMode.ERROR else None
            if fault is not None and (fault.defined or fault.settings != self._context.settings.fingerprint):
                self.on_definition_changed(table, self._context.transaction.offset.position)

    def _refused_before(self, table: TableId, at: Offset) -> RefusedChange | None:
        """Return what Kafka has refused of a table behind ``at``, or in a transaction there that was read in part."""
        held = self._held.get(table)
        if held is None or not held.read_up_to.same_server(at):
            return None
        is_behind = at.before(held.read_up_to) or (held.within and not held.read_up_to.before(at))
        return held if is_behind else None

    def _capture(self, table: TableId, at: Offset, arrival: Arrival) -> TrackedTable:
        if refused := self._refused_before(table, at):
            raise KafkaRequestError(refused.message, hint=refused.hint)
        context, created = self._context, self._created.get(table)
        self._topics.ensure_tables([table])
        tracked = self._registry.tables.get(table)
        if tracked is None:
            tracked = self._registry.track(table, TableMode.STREAMING)
        else:
            tracked.move_to(TableMode.STREAMING)
        self._created.pop(table, None)
        self._incomplete.discard(table)
        self._rejected.pop(table, None)
        context.transaction.store(table_key(table), TableState(TableMode.STREAMING, fault=tracked.fault).to_json())
        context.status.table_mode(table, TableMode.STREAMING)
        follow = created is False or tracked.fault is not None or self._all_follow(table, arrival)
        if arrival.same:
            former_tables.stay(context, table)
        else:
            former_tables.enter(context, table, at, follow=follow, known=False)
        if tracked.fault is not None:
            log.info("a table in error is captured again: it is read", table=str(table), error=tracked.fault.reason)
            self._listener.request_reading(table)
        elif arrival.read:
            self._request(table)
        return tracked

    def _all_follow(self, table: TableId, arrival: Arrival) -> bool:
        """Whether all rows that a table has will be in its topic."""
        return arrival.empty or (arrival.read and self._reads(table))

    def _request(self, table: TableId) -> None:
        if self._reads(table):
            log.info("a table has rows that the binlog does not have: it is read", table=str(table))
            self._listener.request_reading(table)

    def _reject(self, table: TableId, error: TailraceError, definition: bytes = b"") -> None:
        if isinstance(error, Retryable):
            raise error
        self.lose(table)
        if table not in self._registry.tables:
            self._registry.track(table, TableMode.ERROR)
        fault = self._registry.tables[table].fault
        if self._registry.tables[table].mode is TableMode.ERROR and fault is None:
            self._context.tables.topics.release(table)  # nothing of it is in its topic
            self._context.transaction.store(table_key(table), TableState(TableMode.ERROR).to_json())
        if self._context.status.table_failed(table, error.message, fault.at if fault is not None else None):
            log.error("a table is not captured: its changes are skipped", table=str(table), error=error)
        self._rejected[table] = (definition, time.monotonic() + _RETRY_S)


def access_error(read: Callable[[TableId], object], table: TableId) -> TableAccessError | None:
    """Return why the account may not read a table; None if it may, or the table is gone: then the log has its end."""
    try:
        read(table)
    except SchemaError as error:
        return error if isinstance(error, TableAccessError) else None
    return None
