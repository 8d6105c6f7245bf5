"""The offset of a MySQL source without GTIDs: file and position say which transactions precede.

They are valid on one server only, so there is no other one to resume on.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Self

from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.binlog_events import QueryEvent, TransactionBegin, TransactionCommit, begin_of
from tailrace.producer.mysql import engine_commits
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.schemas.watermark import BinlogPosition, read_position

_NONE: Final = GtidSet({})


class FileOffset(MySqlOffset):
    """A position in the binlog of one server. It includes the transactions that begin before it."""

    __slots__ = ()

    @classmethod
    def at(cls, epoch: int, file: str, pos: int, server_uuid: str) -> Self:
        """Return the offset of a position."""
        return cls(epoch, file, pos, _NONE, server_uuid)

    @classmethod
    def from_json(cls, body: Mapping[str, Any]) -> Self:
        """Read what ``to_json`` returned. Raises ValueError for a position with GTIDs."""
        position = read_position(body)
        if position.gtids is not None:
            raise ValueError("a position with GTIDs")
        return cls.at(position.epoch, position.file, position.pos, position.server_uuid)

    def contains(self, transaction: TransactionBegin) -> bool:
        """Compare by coordinates."""
        return self._coordinates(transaction.file, transaction.pos) < self.coordinates

    def after(self, *events: TransactionCommit | QueryEvent) -> Self:
        """Return the end of the last of these transactions."""
        return self.at(self.epoch, events[-1].file, events[-1].end, self.server_uuid)

    def including(self, transaction_id: str) -> Self:
        """Return the offset itself, or one within the transaction; a GTID is of the transaction that is next."""
        file, pos = begin_of(transaction_id) or (self.file, self.pos)
        within = self.at(self.epoch, file, pos + 1, self.server_uuid)
        return within if self.before(within) else self

    @property
    def position(self) -> BinlogPosition:
        """Return the offset as the contract has it, without a GTID set."""
        return BinlogPosition(self.epoch, self.file, self.pos, None, self.server_uuid)

    def wait_until_executed(self, session: Connection[Any], timeout_s: float) -> None:
        """Wait until all that the binlog has is visible: this offset was read from it."""
        self.visible(session, timeout_s)

    def visible(self, session: Connection[Any], timeout_s: float) -> Self:
        """Return the end of the binlog, once all before it is visible."""
        end = self.at(self.epoch, *engine_commits.visible_end(session, timeout_s), self.server_uuid)
        if end.before(self):
            raise SourceUnavailableError(
                "the binlog of the source ends before what was read from it",
                hint="check that database.hostname names one server at a time",
                read=f"{self.file}:{self.pos}",
                end=f"{end.file}:{end.pos}",
            )
        return end
