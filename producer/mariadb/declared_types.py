"""The columns of UUID, INET4, INET6 and VECTOR: the binlog has them as BINARY and VARBINARY, and tells no difference.

The catalog tells them, as they are now. That holds at a place of the binlog if no statement that may change the table
lies between the place and the reading; so the binlog is read ahead. What is known holds until such a statement follows,
also over a restart: the state has it. Where nothing is known, the rows of the table are refused: a guess would falsify
them. Which statements may change a table ``mysql/binlog/named_tables.py`` says: no grammar decides that types stay.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final, NamedTuple, Protocol

from tailrace.producer.errors import BinlogError, ServerIdInUseError, SourceUnavailableError, TableDefinitionError
from tailrace.producer.mariadb.gtid import GtidPosition
from tailrace.producer.model.binlog_events import QueryEvent, TableVersion
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.binlog.log_ahead import Coordinates, LogAhead
from tailrace.producer.mysql.binlog.named_tables import NamedTables, named_by
from tailrace.producer.mysql.binlog.proven_definitions import UnprovenError
from tailrace.producer.mysql.types.fixed_binary import WIDTHS
from tailrace.schemas.sequence import file_number

_BINARY_WIDTHS: Final = frozenset(WIDTHS.values())
_TYPES: Final = frozenset({*WIDTHS, "vector"})
_WITH_VECTORS: Final = 110_700
"""The version of servers that have VECTOR."""
_NUMBER_BYTES: Final = 4
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

    def on_statement(self, event: QueryEvent) -> tuple[TableId, ...]:
        """End the types of tables that a statement at this place may change; return the tables."""


class Catalog(Protocol):
    """What the source says now."""

    def column_types(self, table: TableId) -> tuple[dict[str, str], str, int]:
        """Return the types of the columns of a table by name, then the end of the binlog: file and position."""


class CurrentTypes:
    """The declared types at the place that the stream has reached."""

    def __init__(self, stored: Iterable[TableVersion], catalog: Catalog, new_ahead: Callable[[], LogAhead]) -> None:
        """``stored``: the definitions that hold at the start of the stream."""
        self._known = {each.id: DeclaredTypes(_types(each), each.since) for each in stored}
        self._names = NamedTables(self._known)
        self._uncompared = set(self._known)
        """Tables whose stored types were not yet used."""
        self._catalog = catalog
        self._new_ahead = new_ahead
        self._ahead = new_ahead()
        self._last_statement: Coordinates = (0, 0)

    def differs_in(self, gtid: str) -> bool:  # noqa: ARG002
        """Only statements change them."""
        return False

    def on_statement(self, event: QueryEvent) -> tuple[TableId, ...]:
        """Forget the types that a statement may change; return the tables that may be stored with some."""
        self._last_statement = file_number(event.file), event.query_pos
        ended = self._names.changed_by(named_by(event))
        for table in ended & self._known.keys():
            self._forget(table)
        return tuple(sorted(ended))

    def with_types(self, table: TableVersion, within: EnclosingTransaction) -> TableVersion:
        """Return a definition with what is known, or with what the catalog says if that holds here."""
        if not _ambiguous(table, within.version):
            return table
        known = self._known.get(table.id)
        if known is not None and not _fits(table, known):
            self._forget(table.id)  # a statement that is not logged has changed it
            known = None
        if known is None:
            types = self._read(table, within, self._ahead, max(_begin(within), self._last_statement))
            known = self._known[table.id] = DeclaredTypes(types, within.before)
            self._names.add(table.id)
        elif table.id in self._uncompared:
            self._compare(table, known, within)
        return _declared(table, known)

    def at(self, table: TableVersion, within: EnclosingTransaction) -> DeclaredTypes:
        """Return the types that a table had in an earlier transaction, if it has had them since."""
        known = self._known.get(table.id)
        if known is None:
            return DeclaredTypes(self._read(table, within, self._new_ahead(), _begin(within)), within.before)
        if not _fits(table, known):
            raise _unknown(_ambiguous(table, within.version), table.id)
        if GtidPosition.parse(known.since).has(within.gtid):
            _, file, pos = self._catalog.column_types(table.id)
            if _is_followed(table, within, self._new_ahead(), _begin(within), (file_number(file), pos)):
                raise _unknown(_ambiguous(table, within.version), table.id)
        return known

    def _forget(self, table: TableId) -> None:
        del self._known[table]
        self._uncompared.discard(table)

    def _compare(self, table: TableVersion, known: DeclaredTypes, within: EnclosingTransaction) -> None:
        """Refuse stored types that the catalog does not have, unless a statement follows that may have changed them."""
        found, file, pos = self._catalog.column_types(table.id)
        if dict(_found_types(_ambiguous(table, within.version), found)) != dict(known.types):
            at = max(_begin(within), self._last_statement)
            if not _is_followed(table, within, self._ahead, at, (file_number(file), pos)):
                self._forget(table.id)
                raise UnprovenError(
                    f"the types of columns of {table.id} have changed, and the binlog has no statement that changed "
                    "them",
                    hint="run no DDL with sql_log_bin=0",
                    since=known.since,
                )
        self._uncompared.discard(table.id)

    def _read(
        self, table: TableVersion, within: EnclosingTransaction, ahead: LogAhead, at: Coordinates
    ) -> tuple[tuple[str, str], ...]:
        found, file, pos = self._catalog.column_types(table.id)
        columns = _ambiguous(table, within.version)
        for column in columns:
            kind = found.get(column.name, "")
            if kind != column.data_type and not (kind in _TYPES and _holds(column, kind)):
                raise _unknown(columns, table.id)
        if _is_followed(table, within, ahead, at, (file_number(file), pos)):
            raise _unknown(_ambiguous(table, within.version), table.id)
        return _found_types(_ambiguous(table, within.version), found)


def _is_followed(
    table: TableVersion, within: EnclosingTransaction, ahead: LogAhead, at: Coordinates, end: Coordinates
) -> bool:
    """Return whether a statement between a place and an end of the binlog may change a table."""

    def found() -> bool:
        return ahead.changes(table.id, at)

    progress_at, reached = time.monotonic(), ahead.reached
    try:
        for _ in ahead.read((within.file, within.begin), end, found):
            if ahead.reached > reached:
                progress_at, reached = time.monotonic(), ahead.reached
            elif time.monotonic() - progress_at > _MOST_WAIT_S:
                raise SourceUnavailableError(
                    "the source does not send its binlog to its end",
                    hint="check the network between the producer and the source",
                    reached=reached,
                    end=end,
                )
    except ServerIdInUseError:
        raise  # it says nothing of the binlog
    except BinlogError as error:
        raise _unknown(
            _ambiguous(table, within.version), table.id, f"the binlog cannot be read to its end: {error.message}"
        ) from error
    return found()


def _begin(within: EnclosingTransaction) -> Coordinates:
    return file_number(within.file), within.begin


class EarlierTypes:
    """The declared types in a transaction that is read from an older place of the binlog; others have none."""

    def __init__(self, current: CurrentTypes, gtid: str = "") -> None:
        self._current = current
        self._gtid = gtid

    def differs_in(self, gtid: str) -> bool:
        """What was read on the way to the transaction has no types."""
        return gtid == self._gtid

    def on_statement(self, event: QueryEvent) -> tuple[TableId, ...]:  # noqa: ARG002
        """The stream has read it."""
        return ()

    def with_types(self, table: TableVersion, within: EnclosingTransaction) -> TableVersion:
        """Return a definition with the types that the table has had since this place."""
        if within.gtid != self._gtid or not _ambiguous(table, within.version):
            return table
        return _declared(table, self._current.at(table, within))


def _types(version: TableVersion) -> tuple[tuple[str, str], ...]:
    return tuple((column.name, column.data_type) for column in version.columns if column.data_type in _TYPES)


def _found_types(columns: Sequence[Column], found: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    return tuple((column.name, found[column.name]) for column in columns if found.get(column.name) in _TYPES)


def _fits(table: TableVersion, known: DeclaredTypes) -> bool:
    as_logged = {column.name: column for column in table.columns}
    return all(name in as_logged and _holds(as_logged[name], kind) for name, kind in known.types)


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
    columns = tuple(_with_type(column, types.get(column.name)) for column in table.columns)
    places = "".join(f"/{at}:{types[name]}" for at, name in enumerate(c.name for c in table.columns) if name in types)
    return table._replace(columns=columns, fingerprint=table.fingerprint + places.encode(), since=known.since)


def _holds(column: Column, kind: str) -> bool:
    if kind == "vector":
        return _may_be_another(column, _WITH_VECTORS) and column.data_type == "varbinary"
    return column.data_type == "binary" and column.length == WIDTHS[kind]


def _with_type(column: Column, kind: str | None) -> Column:
    if kind is None:
        return column
    return Column(column.name, kind, column.nullable, length=column.length if kind == "vector" else 0)


def _unknown(
    columns: Sequence[Column], table: TableId, why: str = "a later statement may have changed them"
) -> TableDefinitionError:
    return TableDefinitionError(
        f"the types of columns of {table} are not known here: the binlog does not tell BINARY from UUID, INET4 and "
        f"INET6, nor VARBINARY from VECTOR, and {why}",
        hint="let a statement that changes such a column follow when the producer has read the changes before it",
        columns=", ".join(column.name for column in columns),
    )
