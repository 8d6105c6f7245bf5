"""Changes that cannot be written: what happens to them, and to their tables.

One setting decides, ``event.processing.failure.handling.mode``. A fault that belongs to one captured table puts that
table in error and leaves the others alone (``table``, the default). Nothing is lost by that: the table is read again
from its beginning before it is streamed again (``new_tables.py``). What is missing is the history in between.
Where snapshot readers may be active on the table, or the Kafka transaction cannot be committed any more, the session
ends, and the next one begins with the table in error.

A change whose tables are not all known stops the producer, since no reading would bring back what it did to the others:
a statement logged as text may change further tables by triggers, views and functions, and an XA transaction that was
purged may have been prepared before the capture. Only one that certainly changes a single table stops that table.

With ``warn`` or ``skip`` a change that can be left out alone is skipped, and an incremental snapshot of its tables is
requested in the Kafka transaction of the offset behind the event. So the request is as durable as the skip. The
snapshot writes each row as it is then; rows that a skipped event deleted stay in the topic. With ``fail`` every fault
stops the producer.
"""

from __future__ import annotations

import re
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Final, NoReturn

import structlog

from tailrace.producer.errors import (
    BinlogError,
    RecordRefusedError,
    RecordTooLargeError,
    RefusedChange,
    TableAccessError,
    TableDefinitionError,
    TableFailedError,
    TopicsRefusedError,
    as_definition,
)
from tailrace.producer.model.binlog_events import ChangeRefused, Event, QueryEvent, RowsEvent, TransactionBegin
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.streaming.context import SnapshotProgressListener, StreamContext
from tailrace.producer.streaming.table_versions import TableVersions
from tailrace.runtime.errors import SchemaError, TailraceError
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

log = structlog.get_logger(__name__)

_REPLACED: Final = "\ufffd"
"""Stands for bytes of a statement that are no text."""
_PROPERTY: Final = "event.processing.failure.handling.mode"
_WAY_ON: Final = (
    "let the table be read again: with its next change if its definition or its topic was the cause, else with a "
    "signal execute-snapshot for it, an ALTER TABLE, or a start with another configuration"
)
_ABSENT_S: Final = 1.0
"""A table may have many refused events, and each asks the catalog for it; that of a new table is soon there."""
_POSITION: Final = ("file", "pos", "gtid", "split")


def table_fault(table: TableId, error: TailraceError, fingerprint: str) -> TableFault:
    """Say that a table is in error; return what the state and the status keep of it."""
    log.error(
        "a table is in error: its changes are skipped, those of other tables are written",
        table=str(table),
        reason=error.message,
        hint=f"{error.hint}; {_WAY_ON}" if error.hint else _WAY_ON,
        **{name: str(value) for name, value in error.context.items() if name != "table"},
    )
    at: dict[str, str] = {name: str(error.context[name]) for name in _POSITION if name in error.context}
    defined = isinstance(error, TableDefinitionError | TopicsRefusedError)
    return TableFault(error.message, at, defined=defined, settings=fingerprint)


def location(event: Event, begin: TransactionBegin | None) -> dict[str, object]:
    """Return where an event of a transaction is, for an error."""
    found: dict[str, object] = {"table": event.table.id} if isinstance(event, RowsEvent) else {}
    if isinstance(event, RowsEvent | QueryEvent | ChangeRefused):
        found.update(file=event.file, pos=event.pos)
    if begin is not None:
        found["gtid"] = begin.gtid
    return found


class RefusedChanges:
    """Decides on refused changes; used by the stream's thread."""

    def __init__(
        self,
        context: StreamContext,
        versions: TableVersions,
        listener: SnapshotProgressListener,
        signals: TableId | None = None,
    ) -> None:
        """``signals``: the table whose inserts are signals."""
        self._signals = signals
        self._context = context
        self._versions = versions
        self._listener = listener
        self._registry = context.registry
        self._mode = context.settings.processing_failures
        self._lost: set[TableId] = set()
        """Tables that were reported: they are gone."""
        self._absent: dict[TableId, float] = {}
        """Tables that the catalog does not have, and until when that is believed, unless a statement follows."""

    def refuse(
        self, error: TailraceError, tables: Iterable[TableId], *, others: bool = False, triggers: bool = False
    ) -> None:
        """Leave out an event of these tables, () for all of them; ``others``: it may have changed others too.

        ``triggers``: it has if the tables are views, or have triggers. Raises ``error`` if that stops the producer.
        """
        named = tuple(tables)
        captured = [table for table in named if self._is_captured(table)] if named else sorted(self._registry.tables)
        error.context["tables"] = ", ".join(map(str, captured or named)) if named else "unknown"
        if triggers and self._mode == "table":
            others = self._have_triggers(error, named)
        if self._mode == "fail" or (self._mode == "table" and (others or not named)):
            skip = f"set {_PROPERTY}=warn: the event is skipped, and its tables are read again"
            error.hint = f"{error.hint}; or {skip}" if error.hint else skip
            raise error
        for table in captured:
            self._versions.new_tables.track(table)
        if isinstance(error, TableDefinitionError):
            self._versions.forget_definitions(captured)  # a restart would compare it, and refuse rows once more
        if self._signals in named:
            log.error(
                "signals are lost: send those again that were not answered",
                table=str(self._signals),
                reason=error.message,
                hint=error.hint,
                **{name: str(error.context[name]) for name in _POSITION if name in error.context},
            )
        for table in {*named}.difference(captured):
            self._versions.new_tables.lose(table)
        for table in {*named}.difference(captured, self._lost, {self._signals}):
            self._lost.add(table)
            log.warning("changes of a table are lost: it is not captured", table=str(table), reason=error.message)
        self._context.status.change_refused()
        if self._mode == "table":
            for table in captured:
                self.fail_table(error, table)
            return
        (log.warning if self._mode == "warn" else log.debug)(
            "a change cannot be written: it is skipped, and its tables are read again",
            reason=error.message,
            hint=error.hint,
            **{name: str(value) for name, value in error.context.items()},
        )
        # The splits of a table that waits for its initial snapshot will contain the change.
        read_later = {TableMode.WAITING, TableMode.RESTARTING, TableMode.ERROR}
        modes = {table: self._registry.tables[table].mode for table in captured}
        self._listener.on_change_skipped([table for table, mode in modes.items() if mode not in read_later])

    def _have_triggers(self, error: TailraceError, tables: Iterable[TableId]) -> bool:
        """Return whether a change of these tables may have changed others, and let ``error`` say why."""
        for table in tables:
            if table not in self._registry.tables:  # a table that is dropped by now, or a view
                reason = f"{table} is no table that is captured now"
            elif not (reason := self._context.tables.triggers(table)):
                continue
            error.context["others"] = reason
            return True
        return False

    def known_effects(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> Sequence[DdlEffect]:
        """Return the effects on tables whose names are known; refuse the others.

        A name with bytes that are no text may be that of each captured table that has the rest of it.
        """
        self._absent.clear()
        if not event.has_replaced:
            return effects
        known = []
        for effect in effects:
            names = [table for table in (effect.renamed_from, effect.table) if table is not None]
            if not any(_REPLACED in str(table) for table in names):
                known.append(effect)
                continue
            former = effect.renamed_from
            if former is not None and _REPLACED not in str(former):
                known.append(DdlEffect(Change.DROP, former, None, effect.sql))
                names = [effect.table]
            meant = [table for table in sorted(self._registry.tables) if any(_may_be(table, name) for name in names)]
            if meant and effect.change is not Change.DATABASE:
                self.refuse(_unknown_name(event, names), meant)
        return known

    @contextmanager
    def confined_to(self, table: TableId, event: Event) -> Iterator[None]:
        """Put a table in error where what an event needs of it alone fails: its definition, schema, a record's size.

        Invariant: the stream compiles and writes what belongs to one table in here, for rows and statements, so that no
        table stops the others. Other errors of Kafka are not caught: they may be those of a commit, which must not be
        passed over; nor are those of a record of another table, which is written while this one waits.
        """
        try:
            yield
        except (SchemaError, RecordTooLargeError) as error:
            if isinstance(error, RecordTooLargeError) and (
                isinstance(error, RecordRefusedError) or not self._belongs_to(error, table)
            ):
                raise
            error.add_context(**location(event, self._context.transaction.offset.transaction))
            self.fail_table(as_definition(error), table)

    def fail_table(self, error: TailraceError, table: TableId) -> None:
        """Put a captured table in error. Raises ``error`` if it shall stop the producer.

        Raises TableFailedError if readers may be active on the table: the next session begins with it in error.
        """
        if self._mode == "fail":
            skip = f"set {_PROPERTY}=table: this table is in error, and the others go on"
            error.hint = f"{error.hint}; or {skip}" if error.hint else skip
            raise error
        tracked = self._registry.tables.get(table)
        if tracked is None or tracked.mode is TableMode.WAITING:
            return  # what its splits will read contains the change
        self._context.status.change_skipped(table)
        if tracked.mode is TableMode.ERROR:
            return
        if tracked.mode is not TableMode.STREAMING:
            raise TableFailedError(table, error)
        position = self._context.transaction.offset.position.to_json()
        error.add_context(file=position["file"], pos=position["pos"])
        self._versions.fail(table, table_fault(table, error, self._context.settings.fingerprint))
        self._listener.on_table_removed(table, incremental=False)

    def raise_too_large(self, error: RecordTooLargeError) -> NoReturn:
        """Raise TableFailedError for a record that Kafka does not take, unless that stops the producer.

        Its transaction may have parts of what was read, or be refused as a whole: a new session reads it again.
        """
        context = self._context
        table = next((table for table in self._registry.tables if self._belongs_to(error, table)), None)
        if isinstance(error, RecordRefusedError):  # its place is unknown: between what is stored and what is read
            stored = context.transaction.stored.to_json()
            error.add_context(
                file=stored["file"], pos=stored["pos"], read_up_to=context.transaction.offset.position.to_json()
            )
        if table is None:
            raise error
        error.add_context(table=table)
        if self._mode == "fail":
            raise error
        failed = TableFailedError(table, error)
        offset = context.transaction.offset
        within = offset.transaction is not None
        failed.refused = RefusedChange(offset.position, within, error.message, error.hint)
        raise failed from error

    def _belongs_to(self, error: RecordTooLargeError, table: TableId) -> bool:
        """Return whether a record is a row of a table, or what readers or the next start need of this table alone.

        One of the second kind that the broker refuses is known to the next session, which refuses it at its place.
        """
        prefix, own = self._context.settings.prefix, self._context.tables.topic(table)
        topic = error.context.get("topic")
        if topic == own or topic not in {state_topic(prefix), watermarks_topic(prefix), schemas_topic(prefix)}:
            return topic == own
        if isinstance(error, RecordRefusedError):
            return False
        key = error.key.decode(errors="replace")
        key = key.partition("/")[2] if topic == state_topic(prefix) else key
        # A table, a split of it, or its topic: alone, or with what tells its schemas and alterations from each other.
        return not {str(table), own}.isdisjoint({key, key.rsplit(":", 2)[0], key.partition("/")[0]})

    def _is_captured(self, table: TableId) -> bool:
        """Return whether a table is captured; the words of a statement are perhaps no tables at all."""
        if not self._context.settings.table_filter.includes(table):
            return False
        if table in self._registry.tables:
            return True
        if time.monotonic() < self._absent.get(table, 0.0):
            return False
        try:
            self._context.tables.current_version(table)
        except TableAccessError:
            return True  # it is in error until the account may read it
        except SchemaError:
            self._absent[table] = time.monotonic() + _ABSENT_S
            return False
        return True


def _may_be(table: TableId, name: TableId) -> bool:
    """Return whether a name with replaced bytes may be that of a table; without a table it is that of a database."""
    pairs = [(table.database, name.database), (table.table, name.table or _REPLACED)]
    return all(re.fullmatch(".*".join(map(re.escape, part.split(_REPLACED))), own, re.DOTALL) for own, part in pairs)


def _unknown_name(event: QueryEvent, names: Sequence[TableId]) -> BinlogError:
    return BinlogError(
        "a statement names a table in bytes that are no text of its client's character set",
        hint="use SET NAMES utf8mb4 for such names",
        names=", ".join(map(str, names)),
        file=event.file,
        pos=event.query_pos,
        gtid=event.gtid,
    )
