"""The binlog of MariaDB: its own events, and the request by a GTID position.

::

    GTID  [ANNOTATE_ROWS  TABLE_MAP  rows v1…]…  XID | COMMIT    a transaction: there is no BEGIN
    GTID (standalone)  statement                                 DDL, XA COMMIT, XA ROLLBACK
    GTID (XA)  rows…  XA END  XA_PREPARE                         rows that are valid only if an XA COMMIT follows

Since 11.7 the events within a transaction do not say where they end. Everything else is as in MySQL.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Final

from tailrace.producer.errors import BinlogError
from tailrace.producer.mariadb.catalog import LoggedTables, hidden_column
from tailrace.producer.mariadb.declared_types import declared, is_ambiguous
from tailrace.producer.mariadb.gtid import Gtid, GtidPosition
from tailrace.producer.mariadb.offset import MariaDbOffset, require_server
from tailrace.producer.mariadb.statement import own_statement
from tailrace.producer.model.binlog_events import Event, QueryEvent, TableVersion, TransactionBegin
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId, quote
from tailrace.producer.mysql.binlog import event_types
from tailrace.producer.mysql.binlog.definition_cache import DefinitionCache
from tailrace.producer.mysql.binlog.packets import EVENT_BODY, FIRST_EVENT, dump_from_file
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.mysql.binlog.proven_definitions import ProvenDefinitions
from tailrace.producer.mysql.binlog.query_event import POST_HEADER, Query
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.binlog.table_map import packed, unnamed
from tailrace.producer.mysql.binlog.transaction_parser import EventPosition, TransactionParser
from tailrace.producer.mysql.connection import SourceSettings
from tailrace.producer.mysql.text.sql_tokens import SqlDialect, tokens

ANNOTATE_ROWS: Final = 160
GTID: Final = 162
QUERY_COMPRESSED: Final = 165
ROWS_COMPRESSED_V1: Final = {166: 23, 167: 24, 168: 25}
"""Compressed rows events, and what they are uncompressed."""
IGNORED: Final = frozenset(
    {
        161,  # BINLOG_CHECKPOINT: for the recovery of the server
        163,  # GTID_LIST: the GTID position at the start of a file
        164,  # START_ENCRYPTION: the server sends decrypted events
    }
)
_FILE_FORMAT: Final = {event_types.QUERY: 13, event_types.TABLE_MAP: 8, 23: 8, 24: 8, 25: 8, GTID: 19}
"""Lengths of post-headers."""

_GTID_BODY: Final = struct.Struct("<QIB")
_STANDALONE, _GROUP_COMMIT, _PREPARED_XA, _COMPLETED_XA = 1, 2, 64, 128
_GROUP_BYTES: Final = 8
_XA: Final = struct.Struct("<iBB")
_TWO_PHASE_ALTER: Final = 2 | 4 | 8
"""Extra flags of an ALTER that is logged when it starts, and when it ends."""
_SEND_ANNOTATIONS: Final = 2


class MariaDbTransactions(TransactionParser):
    """The current transaction, which its GTID event begins."""

    def __init__(self, captures: Callable[[TableId], bool], start: GtidPosition) -> None:
        """``start`` is what precedes the first event."""
        super().__init__(captures)
        self._position = start
        self.before = start
        """What precedes the current transaction."""
        self.begun: Sequence[TransactionBegin] = ()
        """What the last GTID event began: nothing if a statement follows that is a transaction by itself."""

    def gtid(self, data: bytes, start: int, stop: int, position: EventPosition) -> None:
        """Read a GTID event: sequence u64, domain u32, flags u8; by these a group's number u64, an xid, more flags."""
        sequence, domain, flags = _GTID_BODY.unpack_from(data, start)
        gtid = str(Gtid(domain, position.server_id, sequence))
        if self._position.has(gtid):
            raise BinlogError(
                "the sequence numbers of a GTID domain are not in order: the offset cannot say what was read",
                hint="SET GLOBAL gtid_strict_mode = ON, and give each server that is written to a gtid_domain_id of "
                f"its own; then {event_types.NEW_SNAPSHOT}",
                gtid=gtid,
                before=str(self._position),
            )
        self.before, self._position = self._position, self._position.with_gtid(gtid)
        self._on_gtid(gtid, 0, position)
        at = start + _GTID_BODY.size + (_GROUP_BYTES if flags & _GROUP_COMMIT else 0)
        xid = ""
        if flags & (_PREPARED_XA | _COMPLETED_XA):
            self.has_xa = True
            xid, at = _xid(data, at)
        if at < stop and data[at] & _TWO_PHASE_ALTER:
            raise BinlogError(
                "an ALTER is logged before it takes effect",
                hint="SET GLOBAL binlog_alter_two_phase = OFF, also for sessions that set it; then "
                + event_types.NEW_SNAPSHOT,
                gtid=gtid,
            )
        self.begun = () if flags & _STANDALONE else (self._begin(None, position, xid),)

    def _read_query(self, data: bytes, start: int, stop: int) -> Query:
        query = super()._read_query(data, start, stop)
        return query._replace(sql=own_statement(query.sql, self._dialect(query)))

    def _dialect(self, query: Query) -> SqlDialect:
        return super()._dialect(query)._replace(mariadb=True)


def _xid(data: bytes, at: int) -> tuple[str, int]:
    """Return an xid as the statements XA COMMIT and XA ROLLBACK of the binlog have it, and the offset behind it."""
    number, first, second = _XA.unpack_from(data, at)
    at += _XA.size
    middle, end = at + first, at + first + second
    return f"X'{data[at:middle].hex()}',X'{data[middle:end].hex()}',{number}", end


_SEQUENCE: Final = (
    "next_not_cached_value",
    "minimum_value",
    "maximum_value",
    "start_value",
    "increment",
    "cache_size",
    "cycle_option",
    "cycle_count",
)
"""The columns of a sequence."""
_HASH_COLUMN: Final = re.compile(r"DB_ROW_HASH_\d+")
"""A hidden column, for a unique key on values that are too long for an index."""


class LoggedDefinitions(DefinitionCache):
    """The definitions of one parser, without sequences; an error for tables that the binlog does not tell rightly."""

    _shape_has_charset = True

    def __init__(
        self,
        captures: Callable[[TableId], bool],
        tables: LoggedTables,
        proven: ProvenDefinitions | None,
        server_version: Callable[[], int],
    ) -> None:
        """``proven`` has the types that the binlog does not tell; ``server_version``: of the server that wrote it."""
        super().__init__(captures, proven)
        self._unnamed = unnamed
        self._tables = tables
        self._server_version = server_version

    def on_statement(self, event: QueryEvent) -> tuple[TableId, ...]:
        """Forget all definitions: the same bytes may describe another kind of table behind a statement."""
        self.forget()
        return super().on_statement(event)

    def _describe(self, body: bytes) -> TableVersion | None:
        table = super()._describe(body)
        if table is None:
            return None
        if tuple(column.name for column in table.columns) == _SEQUENCE and self._tables.is_sequence(table.id):
            return None
        if any(_HASH_COLUMN.fullmatch(column.name) for column in table.columns):
            raise hidden_column(table.id)
        self._tables.require_readable(table.id)
        if self._proven is None or not is_ambiguous(table, self._server_version()):
            return table
        return declared(table, self._proven.of(table.id), self._server_version())


class MariaDbParser(BinlogParser):
    """Parses the events of MariaDB; those that it has in common with MySQL as they are there."""

    def __init__(
        self,
        captures: Callable[[TableId], bool],
        start: GtidPosition,
        tables: LoggedTables,
        *,
        proven: ProvenDefinitions | None = None,
        only: str = "",
    ) -> None:
        """``only``: the GTID of the transaction whose rows are wanted; '': all."""
        transactions = MariaDbTransactions(captures, start)
        wanted = captures if not only else lambda table: transactions.current == only and captures(table)
        super().__init__(captures)
        self._only = only
        self._begins = {GTID}
        self._native = None  # it knows transactions of MySQL only
        self._definitions = LoggedDefinitions(wanted, tables, proven, lambda: transactions.server_version)
        self._transactions: MariaDbTransactions = transactions
        self._transactions.redefined = self._definitions.on_statement

    def _parse_other_event(
        self, event_type: int, data: bytes, at: int, position: EventPosition, events: list[Event]
    ) -> None:
        start = at + EVENT_BODY
        stop = at + 5 + int.from_bytes(data[at + 14 : at + 18], "little")
        end = stop - self._checksum_bytes
        if event_type == ANNOTATE_ROWS:
            self._query = data[start:end].decode("utf-8", "replace")
        elif event_type in event_types.ROWS_V1:
            events.extend(self._rows(event_type, data, start, end, position))
        elif event_type in ROWS_COMPRESSED_V1:
            count, head = packed(data, start + 8)
            head += (count + 7) // 8 * (2 if event_type == 167 else 1)
            body = data[start:head] + uncompressed(data[head:end])
            events.extend(self._rows(ROWS_COMPRESSED_V1[event_type], body, 0, len(body), position))
        elif event_type == QUERY_COMPRESSED:
            _, _, name_length, _, status_length = POST_HEADER.unpack_from(data, start)
            head = start + POST_HEADER.size + status_length + name_length + 1
            body = data[start:head] + uncompressed(data[head:end])
            events.extend(self._transactions.statement(body, 0, len(body), position))
        elif event_type == event_types.QUERY:
            events.extend(self._transactions.statement(data, start, end, position))
        elif event_type == event_types.FORMAT_DESCRIPTION:
            self._on_format(_read_format(data, start, stop))
        elif event_type not in IGNORED:
            super()._parse_other_event(event_type, data, at, position, events)
            if event_type == GTID:
                if self._only:
                    self._definitions.forget()
                events.extend(self._transactions.begun)

    def _rows(self, event_type: int, data: bytes, start: int, stop: int, position: EventPosition) -> Sequence[Event]:
        rows = self._parse_rows_v1(event_type, data, start, stop, position)
        if data[start + 6] & 1:  # the last event of its statement
            self._query = None
        return rows


def uncompressed(data: bytes) -> bytes:
    """Return compressed bytes: the first byte has the algorithm (0: zlib) and the size of the length that follows."""
    size = data[0] & 7
    if data[0] >> 4 & 7 or not data[0] >> 7 or not 1 <= size <= 4:
        raise BinlogError("an event in the binlog is compressed in an unknown way", header=data[0])
    length = int.from_bytes(data[1 : 1 + size], "big")
    found = zlib.decompressobj()
    text = found.decompress(data[1 + size :], length + 1)
    if len(text) != length or not found.eof:
        raise BinlogError("a compressed event in the binlog is damaged", length=length, found=len(text))
    return text


def _read_format(data: bytes, start: int, stop: int) -> event_types.FileFormat:
    """Read a FORMAT_DESCRIPTION body with its checksum. Raises BinlogError if the events have an unknown form."""
    hint = "read from MariaDB 10.6 or newer, with the binlog format that its servers share"
    return event_types.read_format(data, start, stop, expected=_FILE_FORMAT, hint=hint)._replace(year_has_sign=True)


class MariaDbStream(BinlogStream):
    """Follows the binlog of one server, behind a GTID position or from the beginning of a file on."""

    def __init__(
        self,
        settings: SourceSettings,
        *,
        start: MariaDbOffset,
        server_id: int,
        captures: Callable[[TableId], bool],
        tables: LoggedTables,
        proven: ProvenDefinitions | None = None,
        only: str = "",
        first_file: str = "",
        first_pos: int = FIRST_EVENT,
    ) -> None:
        """``first_file``, ``first_pos``: where to begin; of ``start`` then only the server counts.

        ``only``: see ``MariaDbParser``. The server ends a reader when another one comes with its ``server_id``.
        """
        super().__init__(settings, start=start.gtids, server_id=server_id, captures=captures, proven=proven)
        self._first_file, self._first_pos = first_file, first_pos
        before = GtidPosition({}) if first_file else GtidPosition.of(start.gtids)
        self._parser = MariaDbParser(captures, before, tables, proven=proven, only=only)
        self._server = start.server_uuid
        self._tables = tables

    def close(self) -> None:
        """Disconnect, also from the catalog."""
        super().close()
        self._tables.close()

    def ddl_effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        """Read the statement by its leading words; CREATE OR REPLACE removes what has the name, if anything."""
        effects = super().ddl_effects(event)
        words = [token.word for token in islice(tokens(event.sql, self._dialect(event)), 3)]
        if words != ["CREATE", "OR", "REPLACE"] or not effects:
            return effects
        created = effects[0]
        if created.change is Change.CREATE:
            return DdlEffect(Change.DROP, created.table, None, f"DROP TABLE {created.table.quoted}"), *effects
        if created.change is Change.DATABASE:
            name = quote(created.table.database)
            return DdlEffect(Change.DROP_DATABASE, created.table, None, f"DROP DATABASE {name}"), *effects
        return effects

    def _dialect(self, event: QueryEvent) -> SqlDialect:
        return super()._dialect(event)._replace(mariadb=True)

    def _connect(self) -> None:
        super()._connect()
        require_server(self._connection, self._server)
        with self._connection.cursor() as cursor:
            cursor.execute("SET @mariadb_slave_capability = 4")  # all events are sent as they are
            if not self._first_file:
                # Strict: a position that the binlog of the server does not have is an error.
                cursor.execute("SET @slave_connect_state = %s, @slave_gtid_strict_mode = 1", (str(self._start),))

    def _request(self) -> tuple[int, bytes]:
        return dump_from_file(self._first_file, self._server_id, self._first_pos, flags=_SEND_ANNOTATIONS)
