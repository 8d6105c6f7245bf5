"""The log ahead of a stream: what its statements name, up to an end that was asked for."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from typing import Protocol

from tailrace.producer.model.binlog_events import QueryEvent, TransactionCommit
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.named_tables import changes, named_by
from tailrace.schemas.sequence import file_number

Coordinates = tuple[int, int]
"""Number of a binlog file, and position."""


class LogStream(Protocol):
    """A stream of the log from a position on."""

    @property
    def file(self) -> str:
        """The file that it has reached."""

    @property
    def pos(self) -> int:
        """The position behind its last event."""

    def poll(self, timeout_s: float) -> Sequence[object]:
        """Return the next events."""

    def open(self) -> None:
        """Connect."""

    def close(self) -> None:
        """Disconnect."""


OpenLog = Callable[[tuple[str, int]], LogStream]


class LogAhead:
    """What the statements between two positions name: for each word the last position."""

    def __init__(self, open_log: OpenLog, poll_s: float = 0.5) -> None:
        self._open_log = open_log
        self._poll_s = poll_s
        self._last: dict[str, Coordinates] = {}
        self._from: Coordinates = (0, 0)
        self._to: Coordinates = (0, 0)
        self._resume = ("", 0)

    @property
    def reached(self) -> Coordinates:
        """Up to where it was read."""
        return self._to

    def changes(self, table: TableId, at: Coordinates) -> bool:
        """Return whether a statement behind ``at`` may change a table, as far as the log was read."""
        return changes(table, _Behind(self._last, at))

    def read(self, begin: tuple[str, int], end: Coordinates, enough: Callable[[], bool]) -> Iterator[None]:
        """Read from the begin of a transaction to ``end``, unless it is ``enough``; yield now and then."""
        start = file_number(begin[0]), begin[1]
        if not self._from <= start <= self._to:
            self._last.clear()
            self._from = self._to = start
            self._resume = begin
        if self._to >= end or enough():
            return
        stream = self._open_log(self._resume)
        try:
            stream.open()
            while self._to < end and not enough():
                for event in stream.poll(self._poll_s):
                    self._note(event)
                self._to = max(self._to, (file_number(stream.file), stream.pos))
                yield
        finally:
            stream.close()

    def _note(self, event: object) -> None:
        if isinstance(event, QueryEvent):
            position = file_number(event.file), event.query_pos
            self._last.update(dict.fromkeys(named_by(event), position))
            if event.in_transaction:
                return
        elif not isinstance(event, TransactionCommit):
            return
        self._resume = event.file, event.end


class _Behind(Collection[str]):
    """The words that statements behind a position have."""

    def __init__(self, last: Mapping[str, Coordinates], at: Coordinates) -> None:
        self._last, self._at = last, at

    def __contains__(self, word: object) -> bool:
        return self._last.get(str(word), self._at) > self._at

    def __iter__(self) -> Iterator[str]:
        return (word for word in self._last if word in self)

    def __len__(self) -> int:
        return sum(1 for _ in self)
