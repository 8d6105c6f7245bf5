"""The order column of every row: a struct of numbers, greater means later for one key.

``epoch`` grows when the source server or its binlog numbering changes; ``file`` is the numeric suffix of the binlog
file; ``pos`` is the position of the rows event; ``event`` counts rows events within the source transaction (they
share a position if the transaction is compressed); ``row`` is the index of the row in its event.
A snapshot row has event and row 0 at a position that is less than every change it does not contain.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Final, NamedTuple

SEQUENCE_COLUMN: Final = "_seq"
"""Name of the struct column that sinks store with the row."""


class Sequence(NamedTuple):
    """One value of the order column; compares as a tuple."""

    epoch: int
    file: int
    pos: int
    event: int
    row: int

    @classmethod
    def at(cls, epoch: int, file: str, pos: int, event: int = 0) -> Sequence:
        """Return the sequence of a binlog position: not greater than that of any row there."""
        return cls(epoch, file_number(file), pos, event, 0)

    @classmethod
    def from_text(cls, text: str) -> Sequence:
        """Read what ``text`` returned."""
        return cls(*(int(number) for number in text.split(".")))

    @property
    def text(self) -> str:
        """The fields with dots between them."""
        return ".".join(map(str, self))


@lru_cache(maxsize=64)
def file_number(file: str) -> int:
    """Return the numeric suffix of a binlog file name, 0 for an empty name (no binlog read yet).

    File names order by this number and never as text: the server continues after ``binlog.999999`` with
    ``binlog.1000000``. Raises ValueError if the name has no numeric suffix.
    """
    return int(file.rpartition(".")[2]) if file else 0
