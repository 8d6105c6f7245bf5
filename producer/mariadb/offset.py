"""The offset of a MariaDB source, and the watermarks of a split.

The server has no function that waits for a GTID in its own binlog, and moves ``gtid_binlog_pos`` before the engine
commits. But it says up to where in the binlog all is committed: ``Binlog_snapshot_position``, read in the order of the
commits. So LW is ``gtid_binlog_pos``, once the server has committed up to the end that the binlog had behind it. HW is
file and position, read after the SELECT.

XA COMMIT is the exception: its rows may become visible after that position has passed it (seen on 11.8.9, also within
``START TRANSACTION WITH CONSISTENT SNAPSHOT``), so the XA commits that run are waited for.
``tests/integration/test_mariadb.py`` has what this rests on.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final, Self

from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, SourceUnavailableError
from tailrace.producer.mariadb.gtid import GtidPosition
from tailrace.producer.model.protocols import Offset
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import xa_commits
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.watermark import require_same_server
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.sequence import file_number
from tailrace.schemas.watermark import MariaDbPosition, read_position

_PAUSE_S: Final = 0.005


class MariaDbOffset(MySqlOffset):
    """Binlog file and position, the GTID position, and the server they belong to."""

    __slots__ = ()

    def wait_until_executed(self, session: Connection[Any], timeout_s: float) -> None:
        """Wait until a SELECT sees all that is in the binlog before here. Raises SourceUnavailableError on timeout."""
        wait_until_committed(session, self, timeout_s)

    def visible(self, session: Connection[Any], timeout_s: float) -> Self:
        """Return the GTID position of now at these coordinates, once all of it is visible.

        This offset was read from the binlog, so it is not behind the end that is waited for.
        """
        end = current_offset(session)
        require_same_server(self.server_uuid, end.server_uuid)
        wait_until_committed(session, end, timeout_s)
        return self._replace(gtids=end.gtids)

    @property
    def position(self) -> MariaDbPosition:
        """Return the offset as the contract has it."""
        return MariaDbPosition(self.epoch, self.file, self.pos, str(self.gtids), self.server_uuid)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned. Raises ValueError for a position of another kind of source."""
        position = read_position(body, MariaDbPosition.KIND)
        gtids = GtidPosition.parse(position.gtids or "")
        return cls(position.epoch, position.file, position.pos, gtids, position.server_uuid)


def mariadb_offset(offset: Offset) -> MariaDbOffset:
    """Return an offset as one of MariaDB. Raises TypeError if it belongs to another kind of source."""
    if not isinstance(offset, MariaDbOffset):
        raise TypeError(f"{type(offset).__name__} is not the offset of a MariaDB source")
    return offset


def server_identity(session: Connection[Any]) -> str:
    """Return what tells one server from another: its id in the cluster, and its own or that of its host."""
    names = ("server_id", "server_uid", "hostname", "port")
    rows = query(session, f"SHOW GLOBAL VARIABLES WHERE Variable_name IN {names}")
    found = {str(name): str(value) for name, value in rows}
    own = found.get("server_uid") or f"{found['hostname']}:{found['port']}"
    return f"{found['server_id']}-{own}"


def current_offset(session: Connection[Any], *, epoch: int = 1) -> MariaDbOffset:
    """Return the end of the binlog, and a GTID position that is not behind it."""
    gtids = str(query(session, "SELECT @@global.gtid_binlog_pos")[0][0] or "")
    file, pos, _ = database.binlog_position(session)
    return MariaDbOffset(epoch, file, pos, GtidPosition.parse(gtids), server_identity(session))


def first_gtids(session: Connection[Any]) -> GtidPosition:
    """Return what precedes the oldest binlog file: the list at its start."""
    oldest = str(query(session, "SHOW BINARY LOGS")[0][0])
    events = query(session, f"SHOW BINLOG EVENTS IN {session.escape(oldest)} LIMIT 3")
    lists = [str(event[5]).strip("[]") for event in events if event[2] == "Gtid_list"]
    if not lists:
        raise BinlogError("a binlog file of the source does not begin with a GTID list", file=oldest)
    return GtidPosition.parse(lists[0])


def wait_until_committed(session: Connection[Any], until: MariaDbOffset, timeout_s: float) -> None:
    """Wait until a SELECT sees all that is in the binlog before a position.

    Raises SourceUnavailableError after ``timeout_s``.
    """
    deadline = time.monotonic() + timeout_s
    while (committed := _committed(session)) < until.coordinates:
        if time.monotonic() >= deadline:
            raise SourceUnavailableError(
                "transactions in the binlog did not become visible on the server",
                hint="look at SHOW PROCESSLIST: a semi-synchronous replica may not respond",
                waited_s=timeout_s,
                until=f"{until.file}:{until.pos}",
                committed=f"{committed[0]}:{committed[1]}",
            )
        time.sleep(_PAUSE_S)
    xa_commits.wait_or_refuse(session, max(0.0, deadline - time.monotonic()))


def _committed(session: Connection[Any]) -> tuple[int, int]:
    """Return number of the binlog file, and position, before which everything but XA commits is committed."""
    rows = query(session, "SHOW STATUS WHERE Variable_name IN ('Binlog_snapshot_file', 'Binlog_snapshot_position')")
    found = {str(name).lower(): value for name, value in rows}
    return file_number(str(found["binlog_snapshot_file"])), int(found["binlog_snapshot_position"])


def named_offset(session: Connection[Any], text: str) -> MariaDbOffset:
    """Return what a person means by ``latest``, ``file:position`` or a GTID position, which has no coordinates.

    Raises ConfigError if the binlog cannot have it.
    """
    end = current_offset(session)
    if text == "latest":
        return end
    file, _, pos = text.rpartition(":")
    stem, _, number = file.rpartition(".")
    if stem == end.file.rpartition(".")[0] and number.isdecimal() and pos.isdecimal():
        return MariaDbOffset(end.epoch, file, int(pos), GtidPosition({}), end.server_uuid)
    try:
        return end._replace(file="", pos=0, gtids=GtidPosition.parse(text))
    except BinlogError as error:
        raise ConfigError(
            [f"{text[:100]!r} is no GTID position, and no file and position as {end.file}:{end.pos} of the binlog"]
        ) from error


def take_high(session: Connection[Any], low: MariaDbOffset) -> MariaDbOffset:
    """Return the high watermark: the end of the binlog after the SELECT."""
    high = current_offset(session, epoch=low.epoch)
    require_same_server(low.server_uuid, high.server_uuid)
    return high
