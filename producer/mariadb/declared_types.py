"""The columns of UUID, INET4, INET6 and VECTOR: the binlog has them as BINARY and VARBINARY, and tells no difference.

The catalog tells them, as they are now. That holds at a place of the binlog if no statement that may change them lies
between the place and the reading; so the binlog is read ahead. What is known holds until such a statement follows, also
over a restart: the state has it. Where nothing is known, the rows of the table are refused: a guess would falsify them.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import closing
from typing import Final, NamedTuple, Protocol

import structlog

from tailrace.producer.errors import SourceUnavailableError, TableDefinitionError
from tailrace.producer.mariadb.gtid import GtidPosition
from tailrace.producer.model.binlog_events import Event, QueryEvent, TableVersion, TransactionCommit
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.types.fixed_binary import WIDTHS
from tailrace.schemas.sequence import file_number

log = structlog.get_logger(__name__)

Position = tuple[int, int]
"""Number of a binlog file, and a position in it."""
_START: Final[Position] = (0, 0)
_BINARY_WIDTHS: Final = frozenset(WIDTHS.values())
_TYPES: Final = frozenset({*WIDTHS, "vector"})
_TYPE_NAMES: Final = re.compile("|".join(_TYPES), re.IGNORECASE)
_WITH_VECTORS: Final = 110_700
"""The version of servers that have VECTOR."""
_NUMBER_BYTES: Final = 4
_KEEPS_TYPES: Final = frozenset({Change.INDEX, Change.TRUNCATE, Change.EXCHANGE, Change.DATABASE})
_REPLACES_COLUMNS: Final = frozenset({"drop", "rename", "modify"})
_WAIT_S: Final = 1.0
_MOST_WAIT_S: Final = 60.0
"""For the next part of the binlog."""


class DeclaredTypes(NamedTuple):
    """What the source said of the types of a table that its log does not tell from others."""

    types: tuple[tuple[str, str], ...]
    """Columns by name, and their types."""
    since: str
    """The GTID position before the part of the log in which it holds."""


class EnclosingTransaction(NamedTuple):
    """Where a table is described: a transaction."""

    file: str
    begin: int
    """Position of its GTID event."""
    gtid: str
    before: str
    """The GTID position before it."""
    version: int
    """Of the server that has written it."""


class TypeSource(Protocol):
    """Completes what the binlog says of a table."""

    def differs_in(self, gtid: str) -> bool:
        """Return whether definitions have other types in a transaction than in the one before."""

    def with_types(self, table: TableVersion, within: EnclosingTransaction) -> TableVersion:
        """Return a definition with its declared types. Raises TableDefinitionError if they are not known."""

    def on_statement(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> tuple[TableId, ...]:
        """Note what a statement at this place does to tables; return those whose types end here."""


class Catalog(Protocol):
    """What the source says now."""

    def column_types(self, table: TableId) -> tuple[dict[str, str], str, int]:
        """Return the types of the columns of a table by name, then the end of the binlog: file and position."""


class SecondStream(Protocol):
    """A second stream of the binlog."""

    @property
    def file(self) -> str:
        """The file that was reached."""

    @property
    def pos(self) -> int:
        """The position after the last event."""

    def poll(self, timeout_s: float) -> list[Event]:
        """Return the next events."""

    def ddl_effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        """Return what a statement does to tables."""

    def close(self) -> None:
        """Disconnect."""


class StatementsAhead:
    """The last statement on each captured table in what was read ahead that may change its declared types."""

    def __init__(self, open_log: Callable[[str, int], SecondStream], captures: Callable[[TableId], bool]) -> None:
        """``open_log`` opens the binlog at the beginning of a transaction."""
        self._open_log = open_log
        self._captures = captures
        self._reached: Position = _START
        self._boundary = ("", 0)
        """Where the last whole transaction ended that was read."""
        self._last: dict[TableId, Position] = {}
        """By table; a database by '' as the name of its table."""
        self._last_unknown: Position = _START
        """Of the last statement that names a table in bytes that are no text."""

    def last(self, table: TableId, within: EnclosingTransaction, end: tuple[str, int]) -> Position:
        """Return where the last statement on a table ends that is behind a place and before an end of the binlog."""
        target = _position(*end)
        if self._reached < target:
            start = (within.file, within.begin)
            self._read(max(start, self._boundary, key=lambda each: _position(*each)), target)
        whole = TableId(table.database, "")
        return max(self._last.get(table, _START), self._last.get(whole, _START), self._last_unknown)

    def _read(self, start: tuple[str, int], target: Position) -> None:
        log.info("the binlog is read ahead for statements on tables", file=start[0], pos=start[1], up_to=target)
        progress_at = time.monotonic()
        with closing(self._open_log(*start)) as stream:
            while self._reached < target:
                for event in stream.poll(_WAIT_S):
                    if isinstance(event, QueryEvent):
                        self._note(event, stream.ddl_effects(event))
                    if isinstance(event, TransactionCommit) or (
                        isinstance(event, QueryEvent) and not event.in_transaction
                    ):
                        self._boundary = (event.file, event.end)
                reached = _position(stream.file, stream.pos) if stream.file else _START
                if reached > self._reached:
                    self._reached, progress_at = reached, time.monotonic()
                elif time.monotonic() - progress_at > _MOST_WAIT_S:
                    raise SourceUnavailableError(
                        "the source does not send its binlog to its end",
                        hint="check the network between the producer and the source",
                        reached=reached,
                        end=target,
                    )

    def _note(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> None:
        at = _position(event.file, event.end)
        if event.has_replaced and effects:
            self._last_unknown = at
        for effect in filter(may_change_types, effects):
            for table in _tables(effect):
                if not table.table or self._captures(table):
                    self._last[table] = at


class CurrentTypes:
    """The declared types at the place that the stream has reached."""

    def __init__(
        self, stored: Iterable[TableVersion], catalog: Catalog, new_ahead: Callable[[], StatementsAhead]
    ) -> None:
        """``stored``: the definitions that hold at the start of the stream."""
        self._known = {each.id: DeclaredTypes(_types(each), each.since) for each in stored}
        self._catalog = catalog
        self._new_ahead = new_ahead
        self._ahead = new_ahead()
        self._last_statement: Position = _START

    def differs_in(self, gtid: str) -> bool:  # noqa: ARG002
        """Only statements change them."""
        return False

    def on_statement(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> tuple[TableId, ...]:
        """Forget the types that a statement may change; return the tables that had some."""
        before = set(self._known)
        self._last_statement = _position(event.file, event.end)
        if event.has_replaced and effects:
            self._known.clear()
        for effect in effects:
            if effect.change is Change.DROP_DATABASE:
                for table in [each for each in self._known if each.database == effect.table.database]:
                    del self._known[table]
            elif may_change_types(effect):
                for table in _tables(effect):
                    if not self._stays_without(table, effect):
                        self._known.pop(table, None)
        return tuple(sorted(before.difference(self._known)))

    def _stays_without(self, table: TableId, effect: DdlEffect) -> bool:
        """Whether a table that has none of the types has none of them after an ALTER either."""
        known = self._known.get(table)
        without = known is not None and not known.types and effect.change is Change.ALTER
        return without and _TYPE_NAMES.search(effect.sql) is None

    def with_types(self, table: TableVersion, within: EnclosingTransaction) -> TableVersion:
        """Return a definition with what is known, or with what the catalog says if that holds here."""
        if not _ambiguous(table, within.version):
            return table
        known = self._known.get(table.id)
        if known is None:
            known = self._known[table.id] = DeclaredTypes(self._read(table, within), within.before)
        return _declared(table, known)

    def at(self, table: TableVersion, within: EnclosingTransaction) -> DeclaredTypes:
        """Return the types that a table had in an earlier transaction, if it has had them since."""
        known = self._known.get(table.id)
        if known is None:
            raise _unknown(_ambiguous(table, within.version), table.id)
        if GtidPosition.parse(known.since).has(within.gtid):
            _, file, pos = self._catalog.column_types(table.id)
            if self._new_ahead().last(table.id, within, (file, pos)) > _START:
                raise _unknown(_ambiguous(table, within.version), table.id)
        return known

    def _read(self, table: TableVersion, within: EnclosingTransaction) -> tuple[tuple[str, str], ...]:
        found, file, pos = self._catalog.column_types(table.id)
        columns = _ambiguous(table, within.version)
        if any(WIDTHS.get(found.get(column.name, ""), column.length) != column.length for column in columns):
            raise _unknown(columns, table.id)
        if not {column.name for column in columns} <= found.keys():
            raise _unknown(columns, table.id)
        if self._ahead.last(table.id, within, (file, pos)) > self._last_statement:
            raise _unknown(columns, table.id)
        return tuple((column.name, found[column.name]) for column in columns if found[column.name] in _TYPES)


class EarlierTypes:
    """The declared types in a transaction that is read from an older place of the binlog; others have none."""

    def __init__(self, current: CurrentTypes, gtid: str = "") -> None:
        self._current = current
        self._gtid = gtid

    def differs_in(self, gtid: str) -> bool:
        """What was read on the way to the transaction has no types."""
        return gtid == self._gtid

    def on_statement(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> tuple[TableId, ...]:  # noqa: ARG002
        """The stream has read it."""
        return ()

    def with_types(self, table: TableVersion, within: EnclosingTransaction) -> TableVersion:
        """Return a definition with the types that the table has had since this place."""
        if within.gtid != self._gtid or not _ambiguous(table, within.version):
            return table
        return _declared(table, self._current.at(table, within))


def _types(version: TableVersion) -> tuple[tuple[str, str], ...]:
    return tuple((column.name, column.data_type) for column in version.columns if column.data_type in _TYPES)


def may_change_types(effect: DdlEffect) -> bool:
    """Return whether a statement may change which columns of a table have one of the types."""
    if effect.change is not Change.ALTER:
        return effect.change not in _KEEPS_TYPES
    replaces = any(action.kind in _REPLACES_COLUMNS for action in effect.columns)
    return replaces or _TYPE_NAMES.search(effect.sql) is not None


def _position(file: str, pos: int) -> Position:
    return (file_number(file), pos) if file else _START


def _tables(effect: DdlEffect) -> list[TableId]:
    if effect.change is Change.DROP_DATABASE:
        return [TableId(effect.table.database, "")]
    return [table for table in (effect.table, effect.renamed_from) if table is not None]


def _ambiguous(table: TableVersion, version: int) -> list[Column]:
    """Return the columns that may have one of the types."""
    return [column for column in table.columns if _may_be_another(column, version)]


def _may_be_another(column: Column, version: int) -> bool:
    if column.data_type == "varbinary" and version >= _WITH_VECTORS:
        return not column.compressed and column.length % _NUMBER_BYTES == 0
    return column.data_type == "binary" and column.length in _BINARY_WIDTHS


def _declared(table: TableVersion, known: DeclaredTypes) -> TableVersion:
    """Return a definition whose columns have their declared types; its fingerprint has them by their place."""
    types = dict(known.types)
    as_logged = {column.name: column for column in table.columns}
    if any(name not in as_logged or not _holds(as_logged[name], kind) for name, kind in known.types):
        raise _unknown([as_logged[name] for name in types if name in as_logged], table.id)
    columns = tuple(_with_type(column, types.get(column.name)) for column in table.columns)
    places = "".join(f"/{at}:{types[name]}" for at, name in enumerate(as_logged) if name in types)
    return table._replace(columns=columns, fingerprint=table.fingerprint + places.encode(), since=known.since)


def _holds(column: Column, kind: str) -> bool:
    if kind == "vector":
        return _may_be_another(column, _WITH_VECTORS) and column.data_type == "varbinary"
    return column.data_type == "binary" and column.length == WIDTHS[kind]


def _with_type(column: Column, kind: str | None) -> Column:
    if kind is None:
        return column
    return Column(column.name, kind, column.nullable, length=column.length if kind == "vector" else 0)


def _unknown(columns: Sequence[Column], table: TableId) -> TableDefinitionError:
    return TableDefinitionError(
        f"the types of columns of {table} are not known here: the binlog does not tell BINARY from UUID, INET4 and "
        "INET6, nor VARBINARY from VECTOR, and a later statement may have changed them",
        hint="let a statement that changes such a column follow when the producer has read the changes before it",
        columns=", ".join(column.name for column in columns),
    )
