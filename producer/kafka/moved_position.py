"""State records of a signal that sets the position of the stream."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

import orjson

from tailrace.producer.model.protocols import Offset

MOVED_KEY: Final = b"moved"
REPLAY_KEY: Final = b"replay"


@dataclass(frozen=True, slots=True)
class MovedPosition:
    """Where a signal has set the stream, in the next epoch.

    Invariant: it is stored together with ``origin`` as the offset, and removed by the next start. So a start that finds
    another offset follows a program that does not know this record, and has gone on: the signal is past.
    """

    position: Offset
    origin: Offset

    def to_json(self) -> bytes:
        return orjson.dumps({"position": self.position.to_json(), "origin": self.origin.to_json()})


@dataclass(frozen=True, slots=True)
class ReplayedPart:
    """A part of the binlog that is read a second time."""

    until: Offset
    tables: tuple[str, ...] = ()
    """Tables that statements in it have altered, as far as it is passed."""

    def to_json(self) -> bytes:
        return orjson.dumps({"until": self.until.to_json(), "tables": self.tables})
