"""The mode of a captured table, and what is known about its existence.

The mode decides which changes of the table are emitted. It is stored with the table's state, reported in the status and
exported as a metric::

    WAITING <──> PLANNING ──> SNAPSHOT ──> STREAMING <──> INCREMENTAL
                                 │            ^ │             │
                                 └─> RESTARTING └──> ERROR <──┘

A table starts as WAITING if it needs an initial snapshot, as ERROR if it cannot be captured as it is, otherwise as
STREAMING. A fault of a table under snapshot ends the capture session, in which readers may be active on the table; so
does RESTARTING. In the next session the one table is in ERROR, and the other is WAITING again. A table that is removed
has no mode.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from tailrace.producer.model.table import TableId


class TableMode(StrEnum):
    """What happens to the changes of a table."""

    WAITING = "waiting"
    """Changes are skipped: the initial snapshot of the table has not started, and its rows will contain them."""
    PLANNING = "planning"
    """Changes are held: the greatest key that splits will cover is being read."""
    SNAPSHOT = "snapshot"
    """The initial snapshot is running: the split of its key decides on a change."""
    RESTARTING = "restarting"
    """TRUNCATE ended the initial snapshot: no split is opened any more, and the capture session ends."""
    STREAMING = "streaming"
    """Changes are emitted."""
    INCREMENTAL = "incremental"
    """Changes are emitted while an incremental snapshot is running; a split that is being read holds its changes."""
    ERROR = "error"
    """Changes are skipped: the table cannot be captured as it is. Before it is streamed again, readers are told to
    remove what its topic has, and all of it is read: so no change is missing. Nothing of a new table is in Kafka."""


@dataclass(frozen=True, slots=True)
class TableFault:
    """Why a captured table is in error. What its topic has is not what the source has until it is read again."""

    reason: str
    """The message of an error alone: it is in the state and in the status, and must not quote rows."""
    at: Mapping[str, Any]
    """Where the first change is that was not written: file and position, GTID or split."""
    defined: bool = False
    """The definition of the table, or its topic, is the fault: a later one is tried without being asked for."""
    settings: str = ""
    """Fingerprint of the configuration: a start with another one tries again."""


TRANSITIONS: Final[Mapping[TableMode, frozenset[TableMode]]] = {
    TableMode.WAITING: frozenset({TableMode.PLANNING}),
    TableMode.PLANNING: frozenset({TableMode.SNAPSHOT, TableMode.WAITING}),
    TableMode.SNAPSHOT: frozenset({TableMode.STREAMING, TableMode.RESTARTING}),
    TableMode.RESTARTING: frozenset(),
    TableMode.STREAMING: frozenset({TableMode.INCREMENTAL, TableMode.ERROR}),
    TableMode.INCREMENTAL: frozenset({TableMode.STREAMING, TableMode.ERROR}),
    TableMode.ERROR: frozenset({TableMode.STREAMING}),
}
"""Mode -> the modes that may follow it."""

INITIAL_MODES: Final = frozenset({TableMode.WAITING, TableMode.STREAMING, TableMode.ERROR})


class IllegalTransitionError(RuntimeError):
    """A table cannot change from one mode to another: a defect in the producer."""

    def __init__(self, table: TableId, before: TableMode | None, after: TableMode) -> None:
        super().__init__(f"{table}: {'no mode' if before is None else before} cannot be followed by {after}")


def check_transition(table: TableId, before: TableMode | None, after: TableMode) -> None:
    """Raise IllegalTransitionError unless ``after`` may follow ``before``; None: the table is tracked from now on."""
    if after not in (INITIAL_MODES if before is None else TRANSITIONS[before]):
        raise IllegalTransitionError(table, before, after)


class TablePresence(StrEnum):
    """What the binlog and the snapshot readers say about the existence of a table during its snapshot.

    The readers are ahead of the binlog, so a table may be missing before its DROP is read, and a DROP may be read
    after a new table of that name exists::

        PRESENT ──DROP read──> DROPPED ──CREATE read──> RECREATED
           │                      │    <──DROP read────
           │ not found            │ not found
           v                      v
        MISSING ──DROP read───> GONE

    RENAME counts as DROP of the old and CREATE of the new name. A GONE table is removed when no reader reads it.
    """

    PRESENT = "present"
    DROPPED = "dropped"
    RECREATED = "recreated"
    """The plan skipped changes of the new table, so its splits must be read even if a reader did not find the table."""
    MISSING = "missing"
    """The rest of the snapshot is left out; the binlog will bring the DROP."""
    GONE = "gone"

    def after_drop(self) -> TablePresence:
        """Return the presence after the binlog's DROP."""
        return TablePresence.GONE if self in _NOT_FOUND else TablePresence.DROPPED

    def after_create(self) -> TablePresence:
        """Return the presence after the binlog's CREATE; the missing table was then the former one."""
        if self is TablePresence.DROPPED:
            return TablePresence.RECREATED
        return TablePresence.GONE if self in _NOT_FOUND else self

    def after_not_found(self) -> TablePresence:
        """Return the presence after a reader did not find the table; RECREATED stays, the reader must try again."""
        return {TablePresence.PRESENT: TablePresence.MISSING, TablePresence.DROPPED: TablePresence.GONE}.get(self, self)


_NOT_FOUND: Final = frozenset({TablePresence.MISSING, TablePresence.GONE})
