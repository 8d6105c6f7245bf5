"""The tables of which something is to be planned or assigned, in turn, and those that wait for a later turn.

A table that cannot be read now goes to the end. One that held the stream for too long gets no turn until the stream has
gone on for nine times as long: together, such tables hold it for at most a tenth of the time.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Final

import structlog

from tailrace.producer.model.table import TableId
from tailrace.producer.ops.status import Status

log = structlog.get_logger(__name__)

_REST: Final = 9
"""For how many times the longest hold no table is read that held the stream so long."""


class TableQueue:
    """Used by the enumerator's thread."""

    def __init__(self, tables: Iterable[TableId], status: Status, max_hold_s: float) -> None:
        self._tables = deque(tables)
        self._status = status
        self._max_hold_s = max_hold_s
        self._put_off: set[TableId] = set()
        self._held: set[TableId] = set()
        self._held_rest_until = 0.0

    def __bool__(self) -> bool:
        """Whether a table is left, which may have to wait for its turn."""
        return bool(self._tables)

    def turns(self) -> Iterator[TableId]:
        """Yield the first table that may be read, until it is removed or put off, and then the next one."""
        for _ in range(len(self._tables)):
            if not self._tables:
                return
            table = self._tables[0]
            if table in self._held and time.monotonic() < self._held_rest_until:
                self._tables.rotate(-1)
            else:
                yield table

    def extend(self, tables: Iterable[TableId]) -> None:
        self._tables.extend(tables)

    def remove(self, table: TableId) -> None:
        """Remove a table of which nothing is left."""
        if table in self._tables:
            self._tables.remove(table)
        self._put_off.discard(table)
        self._held.discard(table)

    def goes_on(self, table: TableId) -> None:
        """A table is read again."""
        if table in self._put_off:
            self._put_off.remove(table)
            self._held.discard(table)
            self._status.table_put_off(table, "")
            log.info("the snapshot of a table goes on", table=str(table))

    def put_off(self, table: TableId, reason: str) -> None:
        """Go on with the other tables."""
        if table in self._tables:
            self._tables.remove(table)
        self._tables.append(table)
        if table not in self._put_off:
            self._put_off.add(table)
            log.warning("the snapshot of a table waits, those of others go on", table=str(table), reason=reason)
        self._status.table_put_off(table, reason)

    def put_off_held(self, table: TableId, *, cut: bool) -> None:
        """Put a table off that held the stream for too long; ``cut``: it is read in splits."""
        self._held_rest_until = time.monotonic() + _REST * self._max_hold_s
        self._held.add(table)
        self._put_off.discard(table)  # each time is told
        remedy = (
            "look at the load of the source and of Kafka, or lower incremental.snapshot.chunk.size"
            if cut
            else "its key cannot be cut, so it is read at once: read it while few changes are made, add a unique "
            "index on the columns of message.key.columns, or leave it out of the snapshot with "
            "snapshot.include.collection.list"
        )
        self.put_off(
            table,
            "its snapshot held the changes of all tables for too long, and is tried again in "
            f"{_REST * self._max_hold_s:g} s: raise tailrace.snapshot.max.hold.ms; or {remedy}",
        )
