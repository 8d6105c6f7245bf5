"""The watermarks of a split, taken so that an offset never claims more than a SELECT sees.

MySQL moves the binlog position in the flush stage of group commit, before the engine commit makes the rows visible. A
GTID enters ``gtid_executed`` after the engine commit, except for XA commits of older servers (``xa_commits.py``), which
are waited for. So LW is the executed GTID set, read behind a barrier and before the SELECT: all of it is visible. HW is
file and position, read after the SELECT: all that the SELECT saw is in the binlog already.

Invariant: a SELECT after LW sees every transaction of LW, of whatever kind. A kind of transaction that LW contained and
the stream wrote nevertheless would not do: a later change of the same key, which LW contains too, would be skipped
behind it. ``tests/integration/test_server_order.py`` has what this rests on, for each version of the server.

Without GTIDs LW is file and position too: an end of the binlog that was read first. All that precedes it was waited for
then (``engine_commits.py``).

The barrier is the offset of the binlog reader when it opened the split: the SELECT must see everything that the binlog
reader has skipped.
"""

from __future__ import annotations

import re
from typing import Any, Final

from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, SourceUnavailableError
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import xa_commits
from tailrace.producer.mysql.file_offset import FileOffset
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.runtime.errors import ConfigError


def current_offset(session: Connection[Any], *, epoch: int = 1) -> MySqlOffset:
    """Return the end of the binlog: with the transactions executed by now, if the server gives all of them GTIDs."""
    file, pos, gtids = database.binlog_position(session)
    server = database.server_uuid(session)
    if not database.has_gtids(session):
        return FileOffset.at(epoch, file, pos, server)
    return MySqlOffset(epoch, file, pos, GtidSet.parse(gtids), server)


def named_offset(session: Connection[Any], text: str) -> MySqlOffset:
    """Return what a person means by ``latest``, ``file:position`` or a GTID set; a set has no coordinates.

    Raises ConfigError if the binlog cannot have it.
    """
    end = current_offset(session)
    if text == "latest":
        return end
    file, _, pos = text.rpartition(":")
    if (
        file.rpartition(".")[0] == end.file.rpartition(".")[0]
        and file.rpartition(".")[2].isdecimal()
        and pos.isdecimal()
    ):
        return MySqlOffset(end.epoch, file, int(pos), GtidSet({}), end.server_uuid)
    problem = f"{text[:100]!r} is no GTID set, and no file and position as {end.file}:{end.pos} of the source's binlog"
    if not all(_WITH_UUID.match(part) for part in text.split(",")):
        raise ConfigError([problem])
    if isinstance(end, FileOffset):
        raise ConfigError([f"{text[:100]!r} is a GTID set, and gtid_mode of the source is not ON"])
    try:
        return end._replace(file="", pos=0, gtids=GtidSet.parse(text))
    except BinlogError as error:
        raise ConfigError([problem]) from error


_WITH_UUID: Final = re.compile(r"\s*[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\s*:")


_LOGGED_S: Final = 60.0
"""How long an XA commit may run that a SELECT sees before the binlog has it."""


def take_low(session: Connection[Any], barrier: MySqlOffset, timeout_s: float) -> MySqlOffset:
    """Wait for the barrier, then return the low watermark, whose coordinates are at or after those of the barrier.

    On return all of it is visible. Every change that the rows do not contain is at or after these coordinates.
    Raises SourceUnavailableError after ``timeout_s``, whichever of the waits takes long.
    """
    require_same_server(barrier.server_uuid, database.server_uuid(session))
    return barrier.visible(session, timeout_s)


def take_high(session: Connection[Any], low: MySqlOffset) -> MySqlOffset:
    """Return the high watermark: the end of the binlog after the SELECT, once it has all that the SELECT saw."""
    xa_commits.wait_until_logged(session, _LOGGED_S)
    high = current_offset(session, epoch=low.epoch)
    require_same_server(low.server_uuid, high.server_uuid)
    return high


def require_same_server(expected: str, found: str) -> None:
    """Raise if the server changed: positions of two servers do not compare, so the split is read again."""
    if expected != found:
        raise SourceUnavailableError("the source server changed while a split was read", expected=expected, found=found)
