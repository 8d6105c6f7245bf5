"""The watermarks of a split, taken so that an offset never claims more than a SELECT sees.

MySQL moves the binlog position in the flush stage of group commit, before the engine commit makes the rows visible. A
GTID enters ``gtid_executed`` after the engine commit, except for XA commits of older servers (``xa_commits.py``), which
are waited for. So LW is the executed GTID set, read behind a barrier and before the SELECT: all of it is visible. HW is
file and position, read after the SELECT: all that the SELECT saw is in the binlog already.

Invariant: a SELECT after LW sees every transaction of LW, of whatever kind. A kind of transaction that LW contained and
the stream wrote nevertheless would not do: a later change of the same key, which LW contains too, would be skipped
behind it. ``tests/integration/test_server_order.py`` has what this rests on, for each version of the server.

The barrier is the offset of the binlog reader when it opened the split: the SELECT must see everything that the binlog
reader has skipped.
"""

from __future__ import annotations

import time

from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import xa_commits
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset


def current_offset(session: Connection, *, epoch: int = 1) -> MySqlOffset:
    """Return the end of the binlog, with the transactions executed by now."""
    file, pos, gtids = database.binlog_position(session)
    return MySqlOffset(epoch, file, pos, GtidSet.parse(gtids), database.server_uuid(session))


def wait_until_executed(session: Connection, barrier: MySqlOffset, timeout_s: float) -> None:
    """Wait until the server has executed every GTID of the barrier.

    Raises SourceUnavailableError on timeout.
    """
    if not database.wait_for_gtids(session, str(barrier.gtids), timeout_s):
        raise SourceUnavailableError(
            "transactions read from the binlog did not become visible on the server",
            hint="check that the producer reads binlog and tables from the same server, and that it is not stalled",
            waited_s=timeout_s,
            gtids=str(barrier.gtids),
        )


def take_low(session: Connection, barrier: MySqlOffset, timeout_s: float) -> MySqlOffset:
    """Wait for the barrier, then return the low watermark: the executed GTID set at the barrier's coordinates.

    On return all of it is visible. Every change that the rows do not contain is at or after these coordinates.
    Raises SourceUnavailableError after ``timeout_s``, whichever of the two waits takes long.
    """
    until = time.monotonic() + timeout_s
    wait_until_executed(session, barrier, timeout_s)
    server = database.server_uuid(session)
    require_same_server(barrier.server_uuid, server)
    low = barrier._replace(gtids=GtidSet.parse(database.executed_gtids(session)))
    xa_commits.wait_until_visible(session, max(0.0, until - time.monotonic()))
    return low


def take_high(session: Connection, low: MySqlOffset) -> MySqlOffset:
    """Return the high watermark: the end of the binlog after the SELECT."""
    high = current_offset(session, epoch=low.epoch)
    require_same_server(low.server_uuid, high.server_uuid)
    return high


def require_same_server(expected: str, found: str) -> None:
    """Raise if the server changed: positions of two servers do not compare, so the split is read again."""
    if expected != found:
        raise SourceUnavailableError("the source server changed while a split was read", expected=expected, found=found)
