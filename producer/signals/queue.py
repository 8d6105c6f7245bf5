"""The queue of requested incremental snapshots, as an immutable value, and how each signal changes it. No I/O.

It is stored in the state topic, in the same Kafka transactions as the notifications of its changes: one record for each
request, so that none grows with the number of tables, and one for the rest. The channel offsets name the last processed
signals, so that each signal is processed once, also after a crash.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import cached_property
from typing import Any, NamedTuple

import orjson

from tailrace.producer.kafka.state_store import SIGNALS_KEY, State, request_key
from tailrace.producer.model.table import TableId
from tailrace.producer.notifications.notification import NotificationType, data_collections
from tailrace.producer.signals.signal import ExecuteSnapshot, PauseSnapshot, ResumeSnapshot, SignalAction, StopSnapshot
from tailrace.producer.signals.table_expression import TableExpression, TableNames
from tailrace.schemas.verification import ChosenKeys


@dataclass(frozen=True, slots=True)
class SnapshotRequest:
    """A requested incremental snapshot of one table."""

    table: TableId
    condition: str = ""
    """SQL condition on the rows; empty: all rows."""
    stopped: bool = False
    """The snapshot is running and must end after the splits that are already assigned."""
    required: bool = False
    """The topic lacks rows of the table, or has none of them, until all are read: no signal stops that."""
    number: int = field(default=0, compare=False)
    """Requests are served in this order; ``IncrementalSnapshotQueue.adding`` sets it."""
    keys: ChosenKeys | None = None
    """The keys whose rows are read; None: all."""

    @property
    def is_whole(self) -> bool:
        return not self.condition and self.keys is None


@dataclass(frozen=True, slots=True)
class ChannelOffsets:
    """The last processed signal of each channel."""

    kafka: int = -1
    """Kafka offset in the signal topic."""
    file: str = ""
    """Digest of the last processed file, which may still have to be removed."""
    source: tuple[str, int] = ("", 0)
    """GTID, and number of the rows event within the transaction."""


@dataclass(frozen=True)
class IncrementalSnapshotQueue:
    """Requested incremental snapshots, in order."""

    requests: tuple[SnapshotRequest, ...] = ()
    paused: bool = False
    correlation_id: str = ""
    """Id of the signal that started the snapshot; its notifications have this id."""
    offsets: ChannelOffsets = ChannelOffsets()
    last: int = field(default=0, compare=False)
    """Number of the last request that was added, so that no two of a session have the same."""

    @cached_property
    def tables(self) -> tuple[TableId, ...]:
        """The requested tables that are not stopped."""
        return tuple(dict.fromkeys(request.table for request in self.requests if not request.stopped))

    @cached_property
    def required(self) -> frozenset[TableId]:
        """The tables whose topics lack rows until they are read."""
        return frozenset(request.table for request in self.requests if request.required)

    @cached_property
    def _first_requests(self) -> Mapping[TableId, SnapshotRequest]:
        return {request.table: request for request in reversed(self.requests)}

    def first_request(self, table: TableId) -> SnapshotRequest | None:
        return self._first_requests.get(table)

    def adding(self, requests: Iterable[SnapshotRequest]) -> IncrementalSnapshotQueue:
        """Return the queue with more requests at its end."""
        added = tuple(replace(request, number=number) for number, request in enumerate(requests, self.last + 1))
        return replace(self, requests=self.requests + added, last=self.last + len(added))

    def emptied(self) -> IncrementalSnapshotQueue:
        """Return a queue without requests: it is not paused and has no signal."""
        return IncrementalSnapshotQueue(offsets=self.offsets, last=self.last)

    def requiring(self, tables: Iterable[TableId], is_running: Callable[[TableId], bool]) -> IncrementalSnapshotQueue:
        """Return the queue with a request for all rows of each table that no signal stops.

        One that waits is enough; the first of a table that ``is_running`` may have read rows before.
        """
        by_table: defaultdict[TableId, list[SnapshotRequest]] = defaultdict(list)
        for request in self.requests:
            by_table[request.table].append(request)
        added, changed = [], set()
        for table in tables:
            waiting = by_table[table][1:] if is_running(table) else by_table[table]
            whole = [request for request in waiting if request.is_whole and not request.stopped]
            if not whole:
                added.append(SnapshotRequest(table, required=True))
            elif not any(request.required for request in whole):
                changed.add(whole[0].number)
        if not changed:
            return self.adding(added) if added else self
        requests = (replace(each, required=True) if each.number in changed else each for each in self.requests)
        return replace(self, requests=tuple(requests)).adding(added)

    def without(self, table: TableId) -> IncrementalSnapshotQueue:
        """Return the queue without the first request for a table; an empty queue is not paused and has no signal."""
        removed = self.first_request(table)
        requests = tuple(request for request in self.requests if request is not removed)
        return replace(self, requests=requests) if requests else self.emptied()

    def to_json(self) -> bytes:
        return orjson.dumps(
            {
                "queue": len(self.requests),
                "paused": self.paused,
                "correlation_id": self.correlation_id,
                "kafka": self.offsets.kafka,
                "file": self.offsets.file,
                "source": self.offsets.source,
            }
        )

    def records(self, stored: IncrementalSnapshotQueue) -> Iterator[tuple[bytes, bytes | None]]:
        """Yield the state records that differ from those of ``stored``."""
        yield SIGNALS_KEY, self.to_json()
        if self.requests is stored.requests:
            return
        before = {request.number: request for request in stored.requests}
        for request in self.requests:
            if before.pop(request.number, None) != request:
                yield request_key(request.number), orjson.dumps(_stored(request))
        for number in before:
            yield request_key(number), None

    @property
    def stored_requests(self) -> dict[int, Mapping[str, Any]]:
        return {request.number: _stored(request) for request in self.requests}

    @classmethod
    def from_state(cls, state: State) -> IncrementalSnapshotQueue:
        """Return the stored queue; an empty one before the first signal."""
        stored = state.signals
        if stored is None:
            return cls()
        requests = tuple(_restored(state, number, body) for number, body in sorted(state.requests.items()))
        gtid, event = stored["source"]
        offsets = ChannelOffsets(stored["kafka"], stored["file"], (gtid, event))
        last = max(state.requests, default=0)
        return cls(requests, stored["paused"], stored["correlation_id"], offsets, last)


def _restored(state: State, number: int, body: Mapping[str, Any]) -> SnapshotRequest:
    table, condition = TableId(body["database"], body["table"]), body["condition"]
    known = state.tables.get(str(table))
    # Earlier versions did not store it: a table that was in error is read as a whole.
    in_error = known is not None and known.fault is not None and not condition
    chosen = body.get("keys")
    keys = None if chosen is None else ChosenKeys(tuple(chosen["columns"]), tuple(chosen["texts"]))
    return SnapshotRequest(table, condition, body["stopped"], body.get("required", in_error), number, keys)


def _stored(request: SnapshotRequest) -> dict[str, Any]:
    keys = {} if request.keys is None else {"keys": asdict(request.keys)}
    return keys | {
        "database": request.table.database,
        "table": request.table.table,
        "condition": request.condition,
        "stopped": request.stopped,
        "required": request.required,
    }


class PendingNotification(NamedTuple):
    """A notification of the aggregate Incremental Snapshot that is not sent yet."""

    type: NotificationType
    data: dict[str, str]


class SignalResult(NamedTuple):
    """The effect of one signal."""

    queue: IncrementalSnapshotQueue
    notifications: tuple[PendingNotification, ...] = ()
    warning: str = ""
    """Why the signal was not applied, or only in part; empty if it was applied."""


def apply_signal(
    queue: IncrementalSnapshotQueue,
    action: SignalAction,
    signal_id: str,
    captured: Iterable[TableId],
    is_running: Callable[[TableId], bool],
) -> SignalResult:
    """Return the queue after a signal. ``is_running``: whether an incremental snapshot of a table is running."""
    if isinstance(action, ExecuteSnapshot):
        named = captured if action.table is None else [table for table in captured if table == action.table]
        return _execute(queue, action, signal_id, TableNames(named))
    if isinstance(action, StopSnapshot):
        return _stop(queue, action, is_running)
    if isinstance(action, (PauseSnapshot, ResumeSnapshot)):
        return _pause_or_resume(queue, pause=isinstance(action, PauseSnapshot))
    return SignalResult(queue)


def _execute(
    queue: IncrementalSnapshotQueue, action: ExecuteSnapshot, signal_id: str, captured: TableNames
) -> SignalResult:
    captured.require_bounded([*action.tables, *(expression for expression, _ in action.conditions)])
    matched: dict[TableId, None] = {}
    unmatched = []
    for expression in action.tables:
        tables = expression.among(captured)
        matched |= dict.fromkeys(tables)
        if not tables:
            unmatched.append(expression.text)
    if action.keys is not None and len(matched) > 1:
        return SignalResult(queue, warning=f"keys are those of one table: {', '.join(map(str, matched))}")
    queued = set(queue.tables)
    added = tuple(
        SnapshotRequest(table, action.condition(str(table)), keys=action.keys)
        for table in matched
        if table not in queued
    )
    warnings = []
    if unmatched:
        warnings.append(f"no captured table matches {', '.join(unmatched)}")
    if duplicates := [str(table) for table in matched if table in queued]:
        warnings.append(f"already in the snapshot: {', '.join(duplicates)}")
    if action.surrogate_key:
        warnings.append("surrogate-key has no effect: the table's own key defines the splits")
    if action.blocking:
        warnings.append("type BLOCKING is handled as INCREMENTAL: the snapshot does not stop the stream")
    warning = "; ".join(warnings)
    if not added:
        return SignalResult(queue, warning=warning)
    after = replace(queue.adding(added), correlation_id=signal_id)
    started = PendingNotification(NotificationType.STARTED, data_collections(after.tables))
    return SignalResult(after, () if queued else (started,), warning)


def _stop(queue: IncrementalSnapshotQueue, action: StopSnapshot, is_running: Callable[[TableId], bool]) -> SignalResult:
    if not queue.tables:
        return SignalResult(queue, warning="nothing to stop: no snapshot is running")
    expressions = action.tables
    named = queue.tables if expressions is None else _matched(queue.tables, expressions)
    if not named:
        return SignalResult(queue, warning="nothing to stop: none of the tables is in the snapshot")
    warning = ""
    if kept := [str(table) for table in named if table in queue.required]:
        warning = (
            f"read to the end, since their topics lack rows until then: {', '.join(kept)}; "
            "use pause-snapshot to delay that, or exclude the tables"
        )
    free = {request.table for request in queue.requests if not (request.stopped or request.required)}
    matched = [table for table in named if table in free]
    if not matched:
        return SignalResult(queue, warning=warning)
    requests = []
    for request in queue.requests:
        if request.stopped or request.required or request.table not in matched:
            requests.append(request)
        elif is_running(request.table):
            requests.append(replace(request, stopped=True))
    after = replace(queue, requests=tuple(requests)) if requests else queue.emptied()
    if not after.tables:
        after = replace(after, paused=False)
    data = {} if expressions is None else data_collections(matched)
    return SignalResult(after, (PendingNotification(NotificationType.ABORTED, data),), warning)


def _matched(tables: Sequence[TableId], expressions: Sequence[TableExpression]) -> tuple[TableId, ...]:
    names = TableNames(tables)
    names.require_bounded(expressions)
    found = {table for expression in expressions for table in expression.among(names)}
    return tuple(table for table in tables if table in found)


def _pause_or_resume(queue: IncrementalSnapshotQueue, *, pause: bool) -> SignalResult:
    if not queue.tables or queue.paused == pause:
        reason = "no snapshot is running" if not queue.tables else f"it is {'' if pause else 'not '}paused"
        return SignalResult(queue, warning=f"nothing to {'pause' if pause else 'resume'}: {reason}")
    notification_type = NotificationType.PAUSED if pause else NotificationType.RESUMED
    data = data_collections(queue.tables)
    return SignalResult(replace(queue, paused=pause), (PendingNotification(notification_type, data),))
