"""Control: what signals have asked for and what is left of it, as a value; how each request changes it, without I/O.

It stands in the state topic under ``signals``, written in the same Kafka transactions as what follows from it. The
marks say which signals were taken, so that each is taken once, whatever crashes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import orjson

from tailrace.producer.model.table import TableId
from tailrace.producer.notifications.notification import NotificationType, names
from tailrace.producer.signals.signal import ExecuteSnapshot, PauseSnapshot, ResumeSnapshot, SignalAction, StopSnapshot


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A table that is to be read again."""

    table: TableId
    condition: str = ""
    stopped: bool = False
    """Its reading is under way and shall end where it stands."""


@dataclass(frozen=True, slots=True)
class ChannelOffsets:
    """The last signal taken of each channel."""

    kafka: int = -1
    """Offset in the topic."""
    file: str = ""
    """Digest of a file that was taken and may not be removed yet."""
    source: tuple[str, int] = ("", 0)
    """GTID, and number of the rows event within the transaction."""


@dataclass(frozen=True, slots=True)
class IncrementalSnapshotQueue:
    """Tables to read again, in order; ``about`` is the id of the signal that notifications follow from."""

    queue: tuple[SnapshotRequest, ...] = ()
    paused: bool = False
    about: str = ""
    marks: ChannelOffsets = ChannelOffsets()

    @property
    def tables(self) -> tuple[TableId, ...]:
        """The tables in the queue that are still wanted."""
        return tuple(dict.fromkeys(wanted.table for wanted in self.queue if not wanted.stopped))

    def wanted(self, table: TableId) -> SnapshotRequest | None:
        """Return the first entry of a table."""
        return next((wanted for wanted in self.queue if wanted.table == table), None)

    def without(self, table: TableId) -> IncrementalSnapshotQueue:
        """Return the control with the first entry of a table gone; the last one takes the signal and a pause along."""
        entry = self.wanted(table)
        queue = tuple(wanted for wanted in self.queue if wanted is not entry)
        return replace(self, queue=queue) if queue else IncrementalSnapshotQueue(marks=self.marks)

    def to_json(self) -> bytes:
        """Return the record value."""
        return orjson.dumps(
            {
                "queue": [[*wanted.table, wanted.condition, wanted.stopped] for wanted in self.queue],
                "paused": self.paused,
                "about": self.about,
                "kafka": self.marks.kafka,
                "file": self.marks.file,
                "source": self.marks.source,
            }
        )

    @classmethod
    def from_state(cls, body: Mapping[str, Any] | None) -> IncrementalSnapshotQueue:
        """Return what was stored, or the beginning."""
        if body is None:
            return cls()
        queue = tuple(SnapshotRequest(TableId(db, name), sql, stopped) for db, name, sql, stopped in body["queue"])
        gtid, event = body["source"]
        return cls(queue, body["paused"], body["about"], ChannelOffsets(body["kafka"], body["file"], (gtid, event)))


NotificationsDue = tuple[NotificationType, dict[str, str]]
"""A notification of the aggregate Incremental Snapshot."""


def apply_signal(
    control: IncrementalSnapshotQueue,
    request: SignalAction,
    signal: str,
    captured: Iterable[TableId],
    under_way: Callable[[TableId], bool],
) -> tuple[IncrementalSnapshotQueue, list[NotificationsDue], str]:
    """Return the control after a request, what to notify of, and what to say in the log ('' for nothing odd).

    ``under_way`` tells whether a table is being read again at this moment.
    """
    if isinstance(request, ExecuteSnapshot):
        return _execute(control, request, signal, sorted(captured))
    if isinstance(request, StopSnapshot):
        return _stop(control, request, under_way)
    if isinstance(request, (PauseSnapshot, ResumeSnapshot)):
        pause = isinstance(request, PauseSnapshot)
        if not control.tables or control.paused == pause:
            why = "no snapshot is under way" if not control.tables else f"it is {'' if pause else 'not '}paused"
            return control, [], f"nothing to {'pause' if pause else 'resume'}: {why}"
        kind = NotificationType.PAUSED if pause else NotificationType.RESUMED
        return replace(control, paused=pause), [(kind, {"data_collections": names(control.tables)})], ""
    return control, [], ""


def _execute(
    control: IncrementalSnapshotQueue, request: ExecuteSnapshot, signal: str, captured: list[TableId]
) -> tuple[IncrementalSnapshotQueue, list[NotificationsDue], str]:
    found: dict[TableId, None] = {}
    unmatched = []
    for expression in request.tables:
        matching = [table for table in captured if expression.fullmatch(str(table))]
        found |= dict.fromkeys(matching)
        if not matching:
            unmatched.append(expression.pattern)
    present = set(control.tables)
    fresh = tuple(SnapshotRequest(table, request.condition(str(table))) for table in found if table not in present)
    odd = []
    if unmatched:
        odd.append(f"no captured table matches {', '.join(unmatched)}")
    if incremental := [str(table) for table in found if table in present]:
        odd.append(f"already in the snapshot: {', '.join(incremental)}")
    if request.surrogate:
        odd.append("surrogate-key has no effect: splits are cut by the table's own key")
    if request.blocking:
        odd.append("type BLOCKING is read as INCREMENTAL: tables are read beside the log, which does not stop")
    if not fresh:
        return control, [], "; ".join(odd)
    after = replace(control, queue=control.queue + fresh, about=signal)
    told: list[NotificationsDue] = (
        [] if present else [(NotificationType.STARTED, {"data_collections": names(after.tables)})]
    )
    return after, told, "; ".join(odd)


def _stop(
    control: IncrementalSnapshotQueue, request: StopSnapshot, under_way: Callable[[TableId], bool]
) -> tuple[IncrementalSnapshotQueue, list[NotificationsDue], str]:
    if not control.tables:
        return control, [], "nothing to stop: no snapshot is under way"
    expressions = request.tables
    chosen = [
        table
        for table in control.tables
        if expressions is None or any(expression.fullmatch(str(table)) for expression in expressions)
    ]
    if not chosen:
        return control, [], "nothing to stop: none of the tables is in the snapshot"
    queue = []
    for wanted in control.queue:
        if wanted.stopped or wanted.table not in chosen:
            queue.append(wanted)
        elif under_way(wanted.table):
            queue.append(replace(wanted, stopped=True))
    after = replace(control, queue=tuple(queue)) if queue else IncrementalSnapshotQueue(marks=control.marks)
    if not after.tables:
        after = replace(after, paused=False)
    data = {} if expressions is None else {"data_collections": names(chosen)}
    return after, [(NotificationType.ABORTED, data)], ""
