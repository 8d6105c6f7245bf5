"""Kinds of binlog events: their numbers, which are harmless, and what to say of those that cannot be followed."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from tailrace.producer.errors import BinlogError

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
XA_PREPARE: Final = 38
TRANSACTION_PAYLOAD: Final = 40

ROWS_V1: Final = {23: "c", 24: "u", 25: "d"}
"""Rows events in their first form."""

IGNORED: Final = frozenset(
    {
        3,  # STOP: the server went down in order
        5,  # INTVAR  } values for a statement that follows;
        13,  # RAND    } what that statement changes is judged
        14,  # USER_VAR } when it comes
        9,  # APPEND_BLOCK      } the file of a LOAD DATA
        11,  # DELETE_FILE       } that is logged as text;
        17,  # BEGIN_LOAD_QUERY  } the statement is judged
        27,  # HEARTBEAT: its place is taken from the header, as for every event
        28,  # IGNORABLE: made to be passed over
        35,  # PREVIOUS_GTIDS
        36,  # TRANSACTION_CONTEXT: certification data of group replication
        37,  # VIEW_CHANGE: membership of group replication
        41,  # HEARTBEAT in its second form
    }
)
"""Known, and without any row or definition in them."""

HEARTBEATS: Final = frozenset({27, 41})

UNVERIFIED: Final = frozenset({ROTATE, FORMAT_DESCRIPTION})
"""Kinds that the dump thread writes or changes itself, so that a checksum may be missing or stale."""

GTID_HINT: Final = "set gtid_mode=ON and enforce_gtid_consistency=ON, then take a new snapshot"

_EXPECTED: Final = {QUERY: 13, TABLE_MAP: 8, WRITE_ROWS: 10, UPDATE_ROWS: 10, DELETE_ROWS: 10, GTID: 42}
"""Lengths of post-headers that are relied on."""

_NAMED: Final = {
    26: ("INCIDENT", "the server lost changes of its own log (see its error log): take a new snapshot"),
    34: ("ANONYMOUS_GTID", GTID_HINT),
    39: (
        "PARTIAL_UPDATE_ROWS",
        "SET GLOBAL binlog_row_value_options='', also for sessions that set it; then take a new snapshot",
    ),
    42: ("GTID_TAGGED", "use GTIDs without tags (gtid_next='AUTOMATIC'): tags are not supported"),
}


class FileFormat(NamedTuple):
    """What a FORMAT_DESCRIPTION says of its file."""

    checksum: int
    """Bytes of checksum at the end of each event."""
    year_has_sign: bool
    """YEAR columns have a bit among the signs of numbers: from 8.0.21 on."""


def read_format(data: bytes, start: int, stop: int) -> FileFormat:
    """Read a FORMAT_DESCRIPTION body with its checksum.

    Raises LogError for a file whose events have another shape than the one relied on.
    """
    version = data[start + 2 : start + 52].rstrip(b"\0").decode("ascii", "replace")
    lengths = data[start + 57 : stop - 5]
    for kind, length in _EXPECTED.items():
        if kind > len(lengths) or lengths[kind - 1] != length:
            raise BinlogError(
                "the log has a format that is not known",
                hint="read from MySQL 5.7 or newer",
                server_version=version,
                event=kind,
            )
    numbers = tuple(int(number) for number in re.findall(r"\d+", version)[:3])
    return FileFormat(4 if data[stop - 5] == 1 else 0, numbers >= (8, 0, 21))


def unsupported_event(kind: int, file: str, pos: int) -> BinlogError:
    """Return the error for an event that must not be passed over."""
    name, hint = _NAMED.get(kind, ("unknown", "use a server version that is supported"))
    return BinlogError(f"event {kind} ({name}) in the log cannot be followed", hint=hint, file=file, pos=pos)


def statement_based_change(sql: str, file: str, pos: int) -> BinlogError:
    """Return the error for rows of a wanted table that were changed without being logged as rows."""
    return BinlogError(
        "rows of a captured table were changed by a statement that is logged as text: the rows are not in the log",
        hint="SET GLOBAL binlog_format=ROW, also for sessions that set it; then take a new snapshot of the table",
        file=file,
        pos=pos,
        statement=sql[:300],
    )


def rolled_back(sql: str, file: str, pos: int) -> BinlogError:
    """Return the error for rows in the log that were taken back, wholly or in part, by a logged ROLLBACK."""
    return BinlogError(
        "a transaction with rows of captured tables ends in the log with a rollback: which rows stand cannot be told",
        hint="do not mix transactional and other tables in one transaction; take a new snapshot of the tables",
        file=file,
        pos=pos,
        statement=sql[:300],
    )


def unsupported_xa(statement: str, file: str, pos: int) -> BinlogError:
    """Return the error for a two-phase XA transaction: its rows are logged before it is known that they stand."""
    return BinlogError(
        "a two-phase XA transaction may change captured tables: that is not supported",
        hint="use XA COMMIT … ONE PHASE or plain transactions for captured tables; take a new snapshot to go on",
        file=file,
        pos=pos,
        statement=statement[:300],
    )
