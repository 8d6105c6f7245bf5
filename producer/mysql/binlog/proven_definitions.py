"""Definitions for what TABLE_MAP events do not say of a table: from the catalog, if they are proven.

MySQL leaves out the names with binlog_row_metadata=MINIMAL, MariaDB which binary strings are of types of its own. The
catalog has the definition of now. It is that of a TABLE_MAP event if no statement between the event and the end of
the log could have changed the table, an end that is asked for after the catalog is read. So the log is read ahead up to
there, over a second connection, for its statements. What is proven stays in force until the stream reads a statement
that may change the table; it is stored with the offset, and a start compares it with the catalog in the same way.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Generator, Iterable, Iterator, Mapping
from typing import Final, NamedTuple

import structlog

from tailrace.producer.errors import BinlogError, DefinitionLockedError, ServerIdInUseError, TableDefinitionError
from tailrace.producer.model.binlog_events import QueryEvent, TableVersion
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.log_ahead import Coordinates, LogAhead
from tailrace.producer.mysql.binlog.named_tables import NamedTables, changes, named_by
from tailrace.producer.mysql.binlog.table_map import DefinitionDiffersError
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.sequence import file_number

log = structlog.get_logger(__name__)

_COMMIT_WAIT_S: Final = 10.0
"""How long the catalog may lack a table whose rows the log has: CREATE … SELECT is logged before its commit."""
_LOCK_WAIT_S: Final = 5.0
"""How long a statement may lock a table whose definition is wanted."""
_MOST_S: Final = 1800.0
"""How long the log is read ahead for one table."""
_PROGRESS_S: Final = 10.0
"""How often that tells how far it is."""
_PAUSE_S: Final = 0.1
RETRY_S: Final = 10.0
"""After which time a definition that could not be proven is looked for again."""

Found = Mapping[TableId, TableVersion | SchemaError]
ReadCatalog = Callable[[Collection[TableId] | None], tuple[Found, tuple[str, int]]]
"""Reads tables, None: all that are captured, and then the end of the log."""


class Missing(NamedTuple):
    """What the log does not say of a table, and what to do if the catalog does not have it for a row."""

    what: str
    hint: str


class UnsettledError(Exception):
    """The definition of a table is to be proven before its TABLE_MAP event can be read."""


class UnprovenError(TableDefinitionError):
    """No definition is proven for a TABLE_MAP event, but perhaps for a later one with the same bytes."""


class _LogTooLongError(BinlogError):
    """The log ahead was not read to its end."""


class Wanted(NamedTuple):
    """A TABLE_MAP event that needs a definition."""

    table: TableId
    file: str
    pos: int
    begin: int
    """Where its transaction begins."""


class ProvenDefinitions:
    """The definitions of one parser; used by the stream's thread."""

    def __init__(
        self, read_catalog: ReadCatalog, ahead: LogAhead, stored: Iterable[TableVersion] | None, missing: Missing
    ) -> None:
        """``stored`` are in force where the stream begins; None: it reads again what is perhaps long ago."""
        self._missing = missing
        self._read_catalog = read_catalog
        self._ahead = ahead
        self._in_force = {definition.id: definition for definition in stored or ()}
        self._known = set(self._in_force)
        """Tables whose definition may be stored: a statement that may change them ends it there."""
        self._names = NamedTables(self._known)
        self._ended: set[TableId] = set()
        """Tables whose definition has ended: it is looked for with that of another table."""
        self._unproven: dict[TableId, SchemaError] = {}
        """Until a statement that may change the table, or the time in ``_retry_at``: others change its reasons too."""
        self._retry_at: dict[TableId, float] = {}
        self._unlogged: dict[TableId, SchemaError] = {}
        """Until rows of the table were refused: then a definition is looked for again."""
        self._compared = stored is None
        """What is in force was compared with the catalog."""
        self._reads_all = stored is not None
        self._uncompared: set[TableId] = set()
        """Tables whose stored definition is still to be compared: they were locked, or the log was too long."""
        self._created: Collection[str] = ()
        """The words of the last CREATE, which the catalog may not have yet."""
        self._work: Iterator[None] | None = None
        self.on_ended: Callable[[], None] = lambda: None
        """Called when a definition ends without a statement: it may be in use."""

    def of(self, table: TableId) -> TableVersion:
        """Return the definition in force. Raises SchemaError, or UnsettledError: it is wanted then."""
        if not self._compared:
            raise UnsettledError
        if time.monotonic() > self._retry_at.get(table, math.inf):
            del self._retry_at[table], self._unproven[table]
        error = self._unlogged.get(table) or self._unproven.get(table)
        if error is not None:
            raise UnprovenError(error.message, hint=error.hint, **error.context)
        if table not in self._in_force:
            raise UnsettledError
        return self._in_force[table]

    def on_refused(self, table: TableId, error: SchemaError) -> None:
        """Rows were refused with an error of ``of``, so that their table is read again."""
        unlogged = self._unlogged.get(table)
        if unlogged is not None and (unlogged.message, unlogged.context) == (error.message, error.context):
            del self._unlogged[table]

    def differs(self, wanted: Wanted, error: DefinitionDiffersError) -> None:
        """A TABLE_MAP event does not have the definition in force: the next one is compared with the catalog again.

        If the catalog was read for this one, it does not help until a statement changes the table.
        """
        definition = self._in_force.pop(wanted.table)
        self.on_ended()
        if definition.since == _since(wanted):
            self._unproven[wanted.table] = error
            self._names.add(wanted.table)

    def on_statement(self, event: QueryEvent) -> tuple[TableId, ...]:
        """End the definitions that a statement may change; return their tables."""
        named = named_by(event)
        if "create" in named:
            self._created = named
        changed = self._names.changed_by(named)
        for table in changed:
            self._in_force.pop(table, None)
            self._unproven.pop(table, None)
            self._retry_at.pop(table, None)
            self._unlogged.pop(table, None)
            self._uncompared.discard(table)
            self._names.discard(table)
        ended = self._known.intersection(changed)
        self._known -= ended
        self._ended |= ended
        return tuple(sorted(ended))

    def want(self, wanted: Wanted) -> None:
        """Prove a definition with the next calls of ``settle``."""
        self._work = self._settle(wanted)

    def settle(self) -> bool:
        """Work for a moment on what is wanted; return whether it is done."""
        if self._work is not None and next(self._work, self) is self:
            self._work = None
        return self._work is None

    def close(self) -> None:
        """End what is being read."""
        if isinstance(self._work, Generator):
            self._work.close()

    def _settle(self, wanted: Wanted) -> Iterator[None]:
        at = file_number(wanted.file), wanted.pos
        if self._compared and self._ahead.changes(wanted.table, at):
            self._refuse(wanted, _FOLLOWED)
            return
        tables = None
        if not self._reads_all:
            others = ((self._known | self._ended) - self._in_force.keys()) | self._uncompared
            tables = [wanted.table, *(others - {wanted.table})]
        try:
            found = yield from self._read(wanted, at, tables)
        except ServerIdInUseError:
            raise  # it says nothing of the log
        except (BinlogError, SchemaError) as error:
            self._on_failure(wanted, error)
            return
        is_changed = self._ahead.changes(wanted.table, at)
        if wanted.table in self._in_force:
            pass  # it was only to be compared
        elif is_changed:
            self._refuse(wanted, _FOLLOWED)
        elif wanted.table not in found:
            self._refuse(wanted, "it is not there, or the account may not see it")
        if not self._compared or not is_changed:  # else the log was not read to its end
            self._ended.clear()
            for table, described in found.items():
                if not self._ahead.changes(table, at):
                    self._decide(wanted, table, described)
        self._compared, self._reads_all = True, False

    def _on_failure(self, wanted: Wanted, error: BinlogError | SchemaError) -> None:
        if isinstance(error, _LogTooLongError):
            self._uncompared.update(() if self._compared else self._in_force)
        elif not self._compared:
            self._in_force = {}  # what could not be compared is not used
        self._compared = True
        if wanted.table not in self._in_force:
            self._refuse(wanted, error.message)

    def _read(
        self, wanted: Wanted, at: Coordinates, tables: Collection[TableId] | None
    ) -> Generator[None, None, Found]:
        """Read the catalog, then the log ahead: all of it, or up to a statement that changes the wanted table.

        Then perhaps once more for the wanted table. What was read of others stays valid: the log is read further.
        """
        found: dict[TableId, TableVersion | SchemaError] = {}
        waiting_since = math.inf
        while True:
            found.pop(wanted.table, None)
            read, end = self._read_catalog(tables)
            found.update(read)
            yield from self._read_ahead(wanted, at, end)
            waiting_since = min(waiting_since, time.monotonic())
            if isinstance(found.get(wanted.table), DefinitionLockedError):
                longest = _LOCK_WAIT_S
            elif wanted.table not in found and changes(wanted.table, self._created):
                longest = _COMMIT_WAIT_S
            else:
                return found
            if self._ahead.changes(wanted.table, at) or time.monotonic() - waiting_since > longest:
                return found
            tables = [wanted.table]
            time.sleep(_PAUSE_S)
            yield

    def _read_ahead(self, wanted: Wanted, at: Coordinates, end: tuple[str, int]) -> Iterator[None]:
        began = reported = time.monotonic()

        def enough() -> bool:
            return self._compared and self._ahead.changes(wanted.table, at)

        for _ in self._ahead.read((wanted.file, wanted.begin), (file_number(end[0]), end[1]), enough):
            now = time.monotonic()
            if now - began > _MOST_S:
                raise _LogTooLongError("the log ahead is too long to be read", end_file=end[0], end_pos=end[1])
            if now - reported >= _PROGRESS_S:
                reported = now
                log.warning(
                    "no change is written while the log is read ahead for the definition of a table",
                    table=str(wanted.table),
                    file_number=self._ahead.reached[0],
                    pos=self._ahead.reached[1],
                    end_file=end[0],
                    end_pos=end[1],
                    hint=self._missing.hint,
                )
            yield

    def _refuse(self, wanted: Wanted, why: str | SchemaError) -> None:
        if isinstance(why, str):
            why = TableDefinitionError(
                f"the log does not say {self._missing.what}, and the catalog does not have it for rows of "
                f"{wanted.table}: {why}",
                hint=self._missing.hint,
                file=wanted.file,
                pos=wanted.pos,
            )
        self._unproven[wanted.table] = why
        self._retry_at[wanted.table] = time.monotonic() + RETRY_S
        self._names.add(wanted.table)

    def _decide(self, wanted: Wanted, table: TableId, described: TableVersion | SchemaError) -> None:
        """Use what the catalog has: no statement follows that may change the table."""
        former = self._in_force.get(table)
        if isinstance(described, SchemaError):
            if table == wanted.table and (former is None or not isinstance(described, DefinitionLockedError)):
                self._in_force.pop(table, None)
                self._refuse(wanted, described)
            elif former is not None:
                self._uncompared.add(table)
            return
        definition = described._replace(since=_since(wanted))
        self._uncompared.discard(table)
        self._known.add(table)
        self._names.add(table)
        if former is None:
            self._in_force[table] = definition
        elif former[:3] != definition[:3]:
            del self._in_force[table]
            self.on_ended()
            self._unlogged[table] = TableDefinitionError(
                f"the definition of {table} has changed, and the log has no statement that changed it",
                hint="run no DDL with sql_log_bin=0",
                since=former.since,
            )


_FOLLOWED: Final = "a statement that follows changes it, or names it"


def _since(wanted: Wanted) -> str:
    return f"{wanted.file}:{wanted.pos}"
