"""The signal set-binlog-position: whether the stream may go on at the place that it names, and where that is."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Final

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.kafka.moved_position import MovedPosition
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.signals.signal import InvalidSignalError
from tailrace.producer.streaming.replay import Replay
from tailrace.producer.streaming.tracked_table import TrackedTable
from tailrace.runtime.errors import ConfigError

_MOST_TRIES: Final = 3
_SHOWN: Final = 2_000
"""Characters of a signal that an error includes."""


class PositionRefusedError(InvalidSignalError):
    """The position is not set; the reason has no values of rows."""

    def __init__(self, reason: str) -> None:
        super().__init__(reason)
        self.shown = reason


@dataclass(frozen=True, slots=True)
class Moves:
    """Judges the signal; used by the stream's thread."""

    locate: Callable[[str, int], Offset]
    """Returns a place of the log by its text, in an epoch. Raises ConfigError if the log lacks it."""
    tried: dict[str, int]
    """How often that has ended a session of this process, by the text."""
    replay: Replay

    def position(self, text: str, before: Offset, tables: Iterable[TrackedTable]) -> MovedPosition:
        """Return the place that a signal names; the caller commits ``before`` with it.

        Raises SourceUnavailableError if the source does not answer: the session ends, and the next one reads the
        signal again. Invariant: it is tried so often that a lost connection does not lose it, and not without end.
        """
        modes = (TableMode.STREAMING, TableMode.ERROR)
        if reading := [str(tracked.id) for tracked in tables if tracked.mode not in modes]:
            raise PositionRefusedError(
                f"tables are being read, whose rows would be gone for readers: {', '.join(reading)[:_SHOWN]}; send it "
                "when they are streaming; stop-snapshot ends incremental snapshots"
            )
        if self.replay.part is not None:
            raise PositionRefusedError(
                "the stream still reads again what a signal has set it back over; send it when it has passed "
                f"{self.replay.part.until.to_json()}"
            )
        try:
            located = self.locate(text, before.epoch + 1)
            self.tried.pop(text, None)
            return MovedPosition(located, before)
        except ConfigError as error:
            raise PositionRefusedError("; ".join(error.problems)[:_SHOWN]) from error
        except SourceUnavailableError as error:
            tried = self.tried[text] = self.tried.get(text, 0) + 1
            if tried < _MOST_TRIES:
                raise
            del self.tried[text]
            raise PositionRefusedError(
                f"the source has not told in {tried} sessions whether its binlog has the position {text[:_SHOWN]} "
                f"({error}); send the signal again when it answers, or raise database.query.timeout.ms"
            ) from error
