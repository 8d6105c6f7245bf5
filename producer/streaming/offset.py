"""Where the log reader stands: position, GTIDs seen, and the transaction it is in."""

from __future__ import annotations

from functools import lru_cache

from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.watermark import Barrier
from tailrace.producer.snapshot.split_registry import BinlogCoordinates
from tailrace.runtime.errors import BinlogError
from tailrace.schemas.watermark import BinlogPosition


@lru_cache(maxsize=64)
def file_number(file: str) -> int:
    """Return the numeric suffix of a binlog file's name: after 999999 comes 1000000, names do not compare as text."""
    suffix = file.rpartition(".")[2]
    if not suffix.isdigit():
        raise BinlogError("a binlog file name has no numeric suffix", file=file)
    return int(suffix)


class StreamOffset:
    """The log reader's progress. Between transactions, ``file`` and ``pos`` are the end of all that is done."""

    def __init__(self, state: StoredOffset) -> None:
        position = state.position
        self.epoch = position.epoch
        self.server_uuid = position.server_uuid
        self.file = position.file
        self.pos = position.pos
        self.seen = GtidSet.parse(position.gtids)
        self.transaction: TransactionBegin | None = None
        self.events = 0
        """Rows events of captured tables done in the current transaction."""
        self.counts: dict[str, int] = {}
        """Row records written in the current transaction, by table; kept for transaction metadata alone."""
        self._resume_gtid = state.gtid
        self._resume_events = state.events
        self._resume_counts = state.counts
        self._resume_rows = state.rows
        self._skip = 0
        self.rows = 0
        """Rows done before a restart of the first event that was not wholly done; 0 but in a place taken over."""

    def begin(self, begin: TransactionBegin) -> int:
        """Enter a transaction; return how many of its rows events were done before a restart."""
        self.transaction = begin
        self.file, self.pos = begin.file, begin.pos
        self.events = 0
        resumed = begin.gtid == self._resume_gtid
        skip = self._resume_events if resumed else 0
        self.counts = dict(self._resume_counts) if resumed else {}
        self._skip, self.rows = skip, self._resume_rows if resumed else 0
        self._resume_gtid, self._resume_events, self._resume_counts, self._resume_rows = "", 0, {}, 0
        return skip

    def first_row(self) -> int:
        """Return how many rows of the event that is being read were done before a restart."""
        return self.rows if self.events == self._skip + 1 else 0

    def finish(self, gtid: str, file: str, end: int) -> None:
        """Leave a transaction: its GTID now counts as seen."""
        self.seen = self.seen.with_gtid(gtid)
        self.transaction = None
        self.events = 0
        self.file, self.pos = file, end

    def advance(self, file: str, end: int) -> None:
        """Move on outside a transaction."""
        self.file, self.pos = file, end

    @property
    def log_place(self) -> BinlogCoordinates:
        """Return the place up to which all is done; inside a transaction that is its begin."""
        return file_number(self.file), self.pos

    def barrier(self) -> Barrier:
        """Return what a SELECT must see: all that was read so far, the transaction under way included.

        That one stands in the log already, so it will become visible without anything of ours.
        """
        seen = self.seen
        if self.transaction is not None:
            seen = seen.with_gtid(self.transaction.gtid)
        elif self._resume_gtid:
            seen = seen.with_gtid(self._resume_gtid)
        return Barrier(str(seen), self.file, self.pos, self.epoch, self.server_uuid)

    def position(self) -> BinlogPosition:
        """Return where a restart must read from."""
        return BinlogPosition(self.epoch, self.file, self.pos, str(self.seen), self.server_uuid)

    def state(self, backfill: dict[str, int]) -> StoredOffset:
        """Return what is stored with the next commit."""
        if self.transaction is not None:
            # What was done before a restart stays done while it is being skipped.
            events, rows = max(self.events, self._skip), self.rows if self.events <= self._skip else 0
            return StoredOffset(self.position(), self.transaction.gtid, events, backfill, self.counts, rows)
        return StoredOffset(
            self.position(),
            self._resume_gtid,
            self._resume_events,
            backfill,
            self._resume_counts,
            self._resume_rows,
        )
