"""The offset of a MySQL source: binlog coordinates and the set of executed GTIDs.

Coordinates order the events of one server. Across servers only the GTID set says what was executed. ``FileOffset`` is
the one of a server without GTIDs.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, NamedTuple, Self, TypeVar

from pymysql.connections import Connection

from tailrace.producer.errors import BinlogError, SourceUnavailableError
from tailrace.producer.model.binlog_events import PositionAdvanced, QueryEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.protocols import Offset
from tailrace.producer.mysql import connection as database
from tailrace.producer.mysql import engine_commits, xa_commits
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.schemas.sequence import file_number
from tailrace.schemas.watermark import BinlogPosition, read_position


class MySqlOffset(NamedTuple):
    """Binlog file and position, the executed GTIDs, and the server they belong to.

    The stream creates them often, so they call the constructor: ``_replace`` is much slower.
    """

    epoch: int
    file: str
    pos: int
    gtids: GtidSet
    server_uuid: str

    @property
    def coordinates(self) -> tuple[int, int]:
        """Return the number of the binlog file and the position: totally ordered on one server."""
        return self._coordinates(self.file, self.pos)

    @staticmethod
    def _coordinates(file: str, pos: int) -> tuple[int, int]:
        try:
            return file_number(file), pos
        except ValueError as error:
            raise BinlogError("a binlog file name has no numeric suffix", file=file) from error

    def contains(self, transaction: TransactionBegin) -> bool:
        """Return whether the GTID of the transaction is executed here."""
        return self.gtids.has(transaction.gtid)

    def before(self, other: Self) -> bool:
        """Compare by coordinates."""
        return self.coordinates < other.coordinates

    def reached_by(self, event: TransactionCommit | QueryEvent) -> bool:
        """Compare by coordinates."""
        return self._coordinates(event.file, event.end) >= self.coordinates

    def reaches(self, target: Self) -> bool:
        """Compare with the GTIDs of ``target``, or with its coordinates if it has none."""
        if target.gtids:
            return self.gtids.contains(target.gtids)
        if not self.same_server(target):
            raise BinlogError(
                "the source server changed, and a file and position of another one does not tell where to stop",
                hint="set tailrace.stop.at to a GTID set or a time",
                file=target.file,
                pos=target.pos,
            )
        return not self.before(target)

    def same_server(self, other: Self) -> bool:
        """Compare the server UUIDs."""
        return self.server_uuid == other.server_uuid

    def at_begin(self, transaction: TransactionBegin) -> Self:
        """Return the offset of the GTID event of a transaction."""
        return self.__class__(self.epoch, transaction.file, transaction.pos, self.gtids, self.server_uuid)

    def after(self, *events: TransactionCommit | QueryEvent) -> Self:
        """Return the end of the last of these transactions, the GTIDs of all executed."""
        gtids = self.gtids.with_gtids([event.gtid for event in events])
        return self.__class__(self.epoch, events[-1].file, events[-1].end, gtids, self.server_uuid)

    def advanced_to(self, event: PositionAdvanced) -> Self:
        """Return the offset with other coordinates."""
        return self.__class__(self.epoch, event.file, event.end, self.gtids, self.server_uuid)

    def including(self, transaction_id: str) -> Self:
        """Return the offset with one more executed GTID."""
        return self._replace(gtids=self.gtids.with_gtid(transaction_id))

    # -- what a SELECT sees ------------------------------------------------------------------------------------------

    def wait_until_executed(self, session: Connection[Any], timeout_s: float) -> None:
        """Wait until the server has executed every GTID. Raises SourceUnavailableError on timeout."""
        if not database.wait_for_gtids(session, str(self.gtids), timeout_s):
            raise SourceUnavailableError(
                "transactions read from the binlog did not become visible on the server",
                hint="check that the producer reads binlog and tables from the same server, and that it is not stalled",
                waited_s=timeout_s,
                gtids=str(self.gtids),
            )

    def visible(self, session: Connection[Any], timeout_s: float) -> Self:
        """Wait for this offset; return one at its coordinates that includes all that is visible, and nothing else."""
        until = time.monotonic() + timeout_s
        self.wait_until_executed(session, timeout_s)
        visible = self._replace(gtids=GtidSet.parse(database.executed_gtids(session)))
        early = xa_commits.wait_until_visible(session, max(0.0, until - time.monotonic()))
        if early and xa_commits.hides_applied(session):
            engine_commits.visible_end(session, max(0.0, until - time.monotonic()))
        return visible

    # -- form --------------------------------------------------------------------------------------------------------

    @property
    def position(self) -> BinlogPosition:
        """Return the offset as the contract has it, the GTID set as text."""
        return BinlogPosition(self.epoch, self.file, self.pos, str(self.gtids), self.server_uuid)

    def to_json(self) -> dict[str, Any]:
        """Return the JSON form of ``position``."""
        return self.position.to_json()

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned. Raises ValueError for a position of another kind of source."""
        position = read_position(body, BinlogPosition.KIND)
        if position.gtids is None:
            raise ValueError("a position without GTIDs")
        gtids = GtidSet.parse(position.gtids)
        return cls(position.epoch, position.file, position.pos, gtids, position.server_uuid)


AnyOffset = TypeVar("AnyOffset", bound=MySqlOffset)


def mysql_offset(offset: Offset) -> MySqlOffset:
    """Return an offset as a MySQL offset. Raises TypeError if it belongs to another kind of source."""
    if not isinstance(offset, MySqlOffset):
        raise TypeError(f"{type(offset).__name__} is not the offset of a MySQL source")
    return offset
