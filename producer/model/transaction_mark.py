"""How much of a source transaction is done: part of the stored offset if it lies within the transaction."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class TransactionMark:
    """The last event that is done in a transaction which is not complete.

    On the server that it was read from, events are told apart by their number, which counts the rows events of all
    tables: it does not depend on the configuration. Another server may cut the same rows into other events. There
    ``table_rows`` says what is done.
    """

    gtid: str
    number: int = 0
    """Number of the last event that is done, 0 if there is none."""
    pos: int = 0
    """Position of that event, to recognize it; 0 if it is unknown."""
    rows: int = 0
    """Rows of the next event that are done too, if the offset was taken over from a connector."""
    table_rows: Mapping[str, int] | None = None
    """Number of rows done by table; None: unknown."""
    uncounted: str = ""
    """Operations whose rows ``table_rows`` does not count: those that are not written."""
    relocated: bool = False
    """The source is another server now: only ``table_rows`` is valid."""
    records: Mapping[str, int] = field(default_factory=dict)
    """For transaction metadata: number of records written so far, by table."""
