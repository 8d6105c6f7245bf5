"""The offset of a MariaDB source, and the watermarks of a split.

The server has no function that waits for a GTID in its own binlog, and moves ``gtid_binlog_pos`` before the engine
commits. So LW is ``gtid_binlog_pos``, once InnoDB's list shows that all of it is visible (``engine_commits.py``). HW is
file and position, read after the SELECT.

``Binlog_snapshot_position`` would not do: it says up to where all is committed, but not behind a new binlog file. The
server sets it to the start of that file while transactions in the former one still wait for their commit, then to the
end of such a transaction in the former file, and to the end of the event that says that the former file is done with.
``tests/integration/test_mariadb.py`` has what this rests on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Self

from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, SourceUnavailableError
from tailrace.producer.mariadb.gtid import Gtid, GtidPosition
from tailrace.producer.model.protocols import Offset
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import engine_commits
from tailrace.producer.mysql.connection import query
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.mysql.watermark import require_same_server
from tailrace.runtime.errors import ConfigError
from tailrace.schemas.watermark import MariaDbPosition, read_position


class MariaDbOffset(MySqlOffset):
    """Binlog file and position, the GTID position, and the server they belong to."""

    __slots__ = ()

    def wait_until_executed(self, session: Connection[Any], timeout_s: float) -> None:
        """Wait until all that the binlog has is visible: this offset was read from it."""
        visible_end(session, timeout_s)

    def visible(self, session: Connection[Any], timeout_s: float) -> Self:
        """Return the GTID position of now at these coordinates, once all of it is visible."""
        return self.with_gtids_of(visible_end(session, timeout_s))

    def with_gtids_of(self, end: MariaDbOffset) -> Self:
        """Return the GTID position of an end of the binlog at these coordinates, which are not behind it."""
        require_same_server(self.server_uuid, end.server_uuid)
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


def require_server(session: Connection[Any], server: str) -> None:
    """Raise SourceUnavailableError if a connection has not reached the server whose binlog is read."""
    if (found := server_identity(session)) != server:
        raise SourceUnavailableError(
            "the connection reached another server than the session that located the position",
            hint="check that database.hostname names one server at a time",
            expected=server,
            found=found,
        )


def current_offset(session: Connection[Any], *, epoch: int = 1) -> MariaDbOffset:
    """Return the end of the binlog, and a GTID position that is not behind it.

    The server moves the GTID position while it writes a transaction, and gives the end when that is written.
    """
    gtids = str(query(session, "SELECT @@global.gtid_binlog_pos")[0][0] or "")
    file, pos, _ = database.binlog_position(session)
    return MariaDbOffset(epoch, file, pos, GtidPosition.parse(gtids), server_identity(session))


def visible_end(session: Connection[Any], timeout_s: float, last: MariaDbOffset | None = None) -> MariaDbOffset:
    """Return the end of the binlog, once all before it is visible: at once if it is still ``last``, which was.

    Raises SourceUnavailableError after ``timeout_s``.
    """
    end = current_offset(session)
    if end != last:
        engine_commits.visible_end(session, timeout_s)
    return end


def first_gtids(session: Connection[Any]) -> GtidPosition:
    """Return what precedes the oldest binlog file, by the list at its start.

    The list has a GTID for each server of a domain, of which the last one was written last: those of a server before it
    may have greater numbers, if they were not in order then.
    """
    oldest = str(query(session, "SHOW BINARY LOGS")[0][0])
    events = query(session, f"SHOW BINLOG EVENTS IN {session.escape(oldest)} LIMIT 3")
    lists = [str(event[5]).strip("[]") for event in events if event[2] == "Gtid_list"]
    if not lists:
        raise BinlogError("a binlog file of the source does not begin with a GTID list", file=oldest)
    return GtidPosition({gtid.domain: gtid for gtid in map(Gtid.parse, filter(None, lists[0].split(",")))})


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
