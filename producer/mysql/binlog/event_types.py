"""Types of binlog events: their numbers, which are ignored, and the errors for unsupported ones."""

from __future__ import annotations

import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import ChangeRefused
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.text.server_version import version_number
from tailrace.runtime.errors import TailraceError
from tailrace.schemas.rowkind import Op

QUERY: Final = 2
ROTATE: Final = 4
FORMAT_DESCRIPTION: Final = 15
XID: Final = 16
EXECUTE_LOAD_QUERY: Final = 18
TABLE_MAP: Final = 19
ROWS_QUERY: Final = 29
WRITE_ROWS: Final = 30
UPDATE_ROWS: Final = 31
DELETE_ROWS: Final = 32
GTID: Final = 33
ANONYMOUS_GTID: Final = 34
XA_PREPARE: Final = 38
PARTIAL_UPDATE_ROWS: Final = 39
TRANSACTION_PAYLOAD: Final = 40
GTID_TAGGED: Final = 42

ROWS: Final = {WRITE_ROWS: Op.CREATE, UPDATE_ROWS: Op.UPDATE, DELETE_ROWS: Op.DELETE}
ROWS_V1: Final = {23: Op.CREATE, 24: Op.UPDATE, 25: Op.DELETE}
"""Rows events of MySQL 5.5."""

IGNORED: Final = frozenset(
    {
        3,  # STOP: the server was shut down
        5,  # INTVAR  } values for the following statement,
        13,  # RAND    } which is checked
        14,  # USER_VAR } itself
        9,  # APPEND_BLOCK      } the file of a LOAD DATA
        11,  # DELETE_FILE       } that is logged as a statement,
        17,  # BEGIN_LOAD_QUERY  } which is checked itself
        27,  # HEARTBEAT: its position is in the header
        28,  # IGNORABLE
        35,  # PREVIOUS_GTIDS
        36,  # TRANSACTION_CONTEXT: certification data of group replication
        37,  # VIEW_CHANGE: group replication
        41,  # HEARTBEAT_V2
    }
)
"""Known types without rows and definitions."""

HEARTBEATS: Final = frozenset({27, 41})
ARTIFICIAL: Final = 0x20
"""Flag of events that the dump thread creates."""

UNVERIFIED: Final = frozenset({ROTATE, FORMAT_DESCRIPTION})
"""Types that the dump thread creates or changes itself: the checksum may be missing or wrong."""

NEW_SNAPSHOT: Final = "take a new snapshot under another topic.prefix"
"""The way on where the binlog cannot be read past a position: a restart meets the same event."""

GTID_HINT: Final = f"set gtid_mode=ON and enforce_gtid_consistency=ON, then {NEW_SNAPSHOT}"

_EXPECTED: Final = {QUERY: 13, TABLE_MAP: 8, WRITE_ROWS: 10, UPDATE_ROWS: 10, DELETE_ROWS: 10, GTID: 42}
"""Expected lengths of post-headers."""

_YEAR_HAS_SIGN: Final = 80_021
_DOUBLES_HAVE_A_POINT: Final = 80_000

_NAMED: Final = {
    26: ("INCIDENT", f"{NEW_SNAPSHOT}: the server lost changes from its binlog (see its error log)"),
    ANONYMOUS_GTID: ("ANONYMOUS_GTID", GTID_HINT),
}


class FileFormat(NamedTuple):
    """The format of a binlog file, from its FORMAT_DESCRIPTION event."""

    checksum: int
    """Bytes of checksum at the end of each event."""
    year_has_sign: bool
    """The signedness bits include YEAR columns: since 8.0.21."""
    server_version: int
    """As in version comments: 80033 for 8.0.33, 101106 for MariaDB 10.11.6."""

    @property
    def bare_doubles(self) -> bool:
        """``Column.bare_doubles``: of the server that wrote the file, whose SELECT prints its rows."""
        return self.server_version < _DOUBLES_HAVE_A_POINT


def read_format(
    data: bytes,
    start: int,
    stop: int,
    *,
    expected: Mapping[int, int] = _EXPECTED,
    hint: str = "read from MySQL 5.7 or newer",
) -> FileFormat:
    """Read a FORMAT_DESCRIPTION body with its checksum; ``expected`` are the lengths of post-headers.

    Raises BinlogError with ``hint`` if the events of the file have an unknown form.
    """
    version = data[start + 2 : start + 52].rstrip(b"\0").decode("ascii", "replace")
    lengths = data[start + 57 : stop - 5]
    for event_type, length in expected.items():
        if event_type > len(lengths) or lengths[event_type - 1] != length:
            raise BinlogError(
                "the binlog has an unknown format",
                hint=hint,
                server_version=version,
                event=event_type,
            )
    number = version_number(version)
    return FileFormat(4 if data[stop - 5] == 1 else 0, number >= _YEAR_HAS_SIGN, number)


def unsupported_event(event_type: int, file: str, pos: int) -> BinlogError:
    """Return the error for an event that must not be ignored."""
    name, hint = _NAMED.get(event_type, ("unknown", "use a supported server version"))
    return BinlogError(f"event {event_type} ({name}) in the binlog is not supported", hint=hint, file=file, pos=pos)


def refused(tables: Iterable[TableId], error: TailraceError, file: str, pos: int, end: int) -> ChangeRefused:
    """Return the event for changes that cannot be read; the error then names the position."""
    error.add_context(file=file, pos=pos)
    return ChangeRefused(tuple(sorted(set(tables))), error, file, pos, end)


def partial_rows() -> BinlogError:
    """Return the error for rows whose JSON values are logged in parts."""
    return BinlogError(
        "rows of a captured table are logged with JSON values in parts (binlog_row_value_options=PARTIAL_JSON)",
        hint="SET GLOBAL binlog_row_value_options='', also for sessions that set it",
    )


def statement_based_change(shown: str) -> BinlogError:
    """Return the error for a change of a captured table that is not logged as rows."""
    return BinlogError(
        "a captured table was changed by a statement that is logged as text: the binlog does not have the rows, nor "
        "the tables that a trigger, a view or a stored function has changed with them",
        hint="SET GLOBAL binlog_format=ROW, also for sessions that set it",
        statement=shown,
    )


def rolled_back() -> BinlogError:
    """Return the error for logged rows that a logged ROLLBACK reverts completely or partly."""
    return BinlogError(
        "a transaction with rows of captured tables ends with a logged rollback: it is unknown which rows it reverts",
        hint="do not mix transactional and other tables in one transaction; rows before the rollback are in the topics "
        "if they filled a Kafka transaction",
    )


def lost_xa(xid: str, cause: str, *, known: bool) -> BinlogError:
    """Return the error for an XA COMMIT whose rows cannot be read: the binlog with its XA PREPARE is gone.

    ``known``: which tables it changes.
    """
    return BinlogError(
        "the rows of an XA transaction are lost: the binlog that has its XA PREPARE was purged before its XA COMMIT"
        + ("" if known else "; its tables are not known, as no session with this configuration has read its rows"),
        hint="keep the binlog for longer than XA transactions stay prepared "
        "(binlog_expire_logs_seconds, expire_logs_days of MySQL 5.7)",
        xid=xid,
        cause=cause,
    )


def unfound_xa(xid: str, cause: str) -> BinlogError:
    """Return the error for an XA COMMIT whose XA PREPARE is not in the part of the binlog that may be searched."""
    return BinlogError(
        "an XA transaction was prepared before the first start of the producer, and its XA PREPARE was not found",
        hint="raise tailrace.xa.search.max.bytes, so that older binlog files are searched, while which no change is "
        "written; or skip its rows with event.processing.failure.handling.mode=warn, which reads all tables again",
        xid=xid,
        cause=cause,
    )


MALFORMED: Final = (AssertionError, LookupError, RecursionError, TypeError, ValueError, OverflowError, struct.error)
"""Raised where bytes do not have the form that their event type says."""


def locate(error: TailraceError, file: str, pos: int) -> None:
    """Let an error name the position; one of bytes that contradict each other gets the way on of damaged ones."""
    error.add_context(file=file, pos=pos)
    if isinstance(error, BinlogError) and not error.hint:
        error.hint = _DAMAGED


_DAMAGED: Final = "check the event with mysqlbinlog; if the file is damaged, " + NEW_SNAPSHOT


def malformed(error: Exception, file: str, pos: int) -> BinlogError:
    """Return the error for an event that cannot be parsed."""
    return BinlogError(
        "an event in the binlog is damaged, or has an unknown form",
        hint=_DAMAGED,
        file=file,
        pos=pos,
        cause=f"{type(error).__name__}: {error}",
    )


def require_table_map(table_id: bytes) -> None:
    """Raise BinlogError for rows of a table that is not described."""
    if table_id != _NO_TABLE:
        raise BinlogError(
            "rows in the binlog lack the TABLE_MAP event of their table",
            hint=f"{NEW_SNAPSHOT}: the binlog is damaged here",
            table_id=int.from_bytes(table_id, "little"),
        )


_NO_TABLE: Final = b"\xff\xff\xff\0\0\0"
"""Table id of a rows event that only marks the end of a statement."""
