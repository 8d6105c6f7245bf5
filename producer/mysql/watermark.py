"""Watermarks of a split, taken so that a position never stands for more than what a SELECT can see.

MySQL moves the binlog position in the flush stage of group commit, before the engine commit makes the rows visible;
a GTID enters ``gtid_executed`` only after it. So LW is a GTID set, taken behind a barrier and before the SELECT: all of
it is visible. HW is file and offset, read after the SELECT: what the SELECT saw is in the log already.
"""

from __future__ import annotations

from dataclasses import dataclass

from pymysql.connections import Connection

from tailrace.producer.mysql import connection as database
from tailrace.runtime.errors import SourceUnavailableError
from tailrace.schemas.watermark import BinlogPosition


@dataclass(frozen=True, slots=True)
class Barrier:
    """Where the log reader stood when the split was opened: everything it had dropped must be visible to the SELECT."""

    gtids: str
    file: str
    pos: int
    epoch: int
    server_uuid: str


def take_low(session: Connection, barrier: Barrier, timeout_s: float) -> BinlogPosition:
    """Wait until the log reader's GTID set is executed on the server, then return the executed set.

    ``file`` and ``pos`` are the barrier's: every change that the rows do not contain lies after them.
    """
    if not database.wait_for_gtids(session, barrier.gtids, timeout_s):
        raise SourceUnavailableError(
            "transactions read from the log did not become visible on the server",
            hint="check that the producer reads log and tables from the same server, and that it is not stalled",
            waited_s=timeout_s,
            gtids=barrier.gtids,
        )
    server = database.server_uuid(session)
    require_same_server(barrier.server_uuid, server)
    return BinlogPosition(barrier.epoch, barrier.file, barrier.pos, database.executed_gtids(session), server)


def take_high(session: Connection, low: BinlogPosition) -> BinlogPosition:
    """Return the log's end as the server names it, after the SELECT."""
    file, pos, gtids = database.log_position(session)
    server = database.server_uuid(session)
    require_same_server(low.server_uuid, server)
    return BinlogPosition(low.epoch, file, pos, gtids, server)


def require_same_server(expected: str, seen: str) -> None:
    """Raise where the server changed: positions of two servers do not compare, the split is read again."""
    if expected != seen:
        raise SourceUnavailableError("the source server changed while a split was read", expected=expected, seen=seen)
