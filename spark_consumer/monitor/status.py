"""Progress of the running query and durations of its phases, for /status and /metrics."""

from __future__ import annotations

import math
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from prometheus_client import Histogram

from tailrace.runtime.errors import TailraceError
from tailrace.runtime.http import program_registry
from tailrace.runtime.versions import program_version
from tailrace.spark_consumer.monitor.metrics import StatusCollector
from tailrace.spark_consumer.monitor.table_result import SnapshotStatus, TableResult

_SPARK: Final = "spark."


class Phases:
    """Sums by phase, since the start and for the last batch; safe to use from several threads.

    Tables are processed at the same time, so the sum of a phase of tables can exceed the duration of its batch.

    Spark reports its own phases of a batch when it has committed the batch: after the last work of this program on it,
    and before or after the next batch begins. So a report is kept under the number of its batch.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._total: defaultdict[str, float] = defaultdict(float)
        self._batch: defaultdict[str, float] = defaultdict(float)
        self._number: int | None = None
        self._reported: tuple[int, dict[str, float]] | None = None
        """The last batch that Spark has reported, and its seconds by phase."""

    def begin(self, batch: int) -> None:
        """Start a batch."""
        with self._lock:
            self._number = batch
            self._batch.clear()

    def report(self, batch: int, seconds: Mapping[str, float]) -> None:
        """Keep Spark's phases of a batch that has ended."""
        with self._lock:
            self._reported = batch, dict(seconds)
            for name, each in seconds.items():
                self._total[f"{_SPARK}{name}"] += each

    def add(self, seconds: Mapping[str, float]) -> None:
        """Add durations."""
        with self._lock:
            for name, each in seconds.items():
                self._total[name] += each
                self._batch[name] += each

    @contextmanager
    def measure(self, name: str) -> Iterator[None]:
        """Add the duration of the block."""
        started = time.monotonic()
        try:
            yield
        finally:
            self.add({name: time.monotonic() - started})

    def totals(self) -> dict[str, float]:
        """Return the seconds by phase since the start."""
        with self._lock:
            return dict(self._total)

    def last(self) -> dict[str, float]:
        """Return the seconds by phase of the last batch; with those of Spark, if it has reported that batch."""
        with self._lock:
            found = {name: round(seconds, 3) for name, seconds in self._batch.items()}
            if self._reported is not None and self._reported[0] == self._number:
                found |= {f"{_SPARK}{name}": seconds for name, seconds in self._reported[1].items()}
            return found

    def reported(self) -> dict[str, float]:
        """Return the last batch that Spark has reported, with its seconds by phase; empty if there is none."""
        with self._lock:
            return {} if self._reported is None else {"batch": self._reported[0], **self._reported[1]}


Offsets = Mapping[str, Mapping[str, Any]]
"""Topic to partition to offset, as Spark reports them."""


def reported_offsets(report: Mapping[str, Any]) -> tuple[Offsets, Offsets]:
    """Return the offsets at which the last batch ended, and those at which the topics ended when it was planned.

    ``report`` is Spark's ``StreamingQueryProgress``, read from its JSON. The attributes of Python's object cannot be
    used: there the offsets are the text of a dict, which is not JSON. Empty if Spark has not reported them.
    """
    [source] = report["sources"]
    return source.get("endOffset") or {}, source.get("latestOffset") or {}


def offsets_between(starts: Mapping[str, Any], ends: Mapping[str, Any]) -> int:
    """Return the number of offsets from ``starts`` to ``ends`` of a topic; a partition without a start begins at 0."""
    return sum(max(0, int(end) - max(0, int(starts.get(name, 0)))) for name, end in ends.items())


_BUCKETS = (0.1, 0.5, 1, 2, 5, 10, 30, 60, 300)

CONFIRMED_S: Final = 30.0
"""For how long the end of a topic counts as reached without another answer of Kafka: three times the interval at which
Spark reports that a query is idle."""


@dataclass(slots=True)
class _Table:
    records: int = 0
    rows: Counter[str] = field(default_factory=Counter)
    newest_ms: int | None = None
    snapshot: SnapshotStatus | None = None
    way: str = ""
    applied: Mapping[str, Any] = field(default_factory=dict)
    """Partition to the end of the last batch."""
    ends: Mapping[str, Any] = field(default_factory=dict)
    """Partition to the end of the topic when that batch was planned."""
    planned: int = 0
    """Offsets in the running batch."""
    through_at: float = -math.inf
    """All records up to this moment are applied; -inf: not known."""


class Status:
    """Written by the threads of the query and its tables, read by the threads of the HTTP server.

    A table with a position of its own has applied what is before it, whatever the batches of Spark have passed.
    Moments are those of ``time.monotonic``: no clock must hide an outage, neither one of this host that is set back nor
    one of the source that is ahead.
    """

    def __init__(self, query: str, sink: str) -> None:
        """``sink``: the name of the sink; those of several are separated by commas."""
        self._answered_at = -math.inf
        """When Kafka last told the ends of the topics."""
        self.sink_of: Callable[[str], str] = lambda _topic: sink
        """Returns the name of the sink of a table; '' if it has none."""
        self._lock = threading.Lock()
        self._query, self._sink = query, sink
        self._tables: dict[str, _Table] = {}
        self._positions: dict[str, Any] = {}
        self._began_at = time.monotonic()
        self._batch: int | None = None
        self._batches = 0
        self._batch_s = 0.0
        self._started: float | None = None
        self._last_end: float | None = None
        self._state = "starting"
        self._last_error: dict[str, Any] | None = None
        self.phases = Phases()
        self.registry = program_registry("consumer", StatusCollector(self.as_dict))
        self._seconds = Histogram(
            "tailrace_batch_seconds", "Duration of a micro-batch", buckets=_BUCKETS, registry=self.registry
        )

    def running(self) -> None:
        """The query has started."""
        with self._lock:
            self._state = "running"

    def stopped(self, reason: str) -> None:
        """The query has ended."""
        with self._lock:
            self._state = reason

    def failed(self, error: TailraceError) -> None:
        """The query has ended with an error."""
        with self._lock:
            self._state = "failed"
            self._last_error = error.fields() | {"ts_ms": time.time_ns() // 1_000_000}

    def batch_started(self, batch_id: int, planned: Mapping[str, int]) -> None:
        """A batch has begun; ``planned`` are its offsets by topic."""
        self.phases.begin(batch_id)
        with self._lock:
            self._started = self._answered_at = time.monotonic()
            for topic, offsets in planned.items():
                self._table(topic).planned = offsets

    def table_applied(self, topic: str, result: TableResult) -> SnapshotStatus | None:
        """The sink has written the records of one table; return the status of its snapshot before."""
        with self._lock:
            table = self._table(topic)
            before = table.snapshot
            table.records += result.records
            table.rows.update(result.rows)
            if result.newest_ms is not None:
                table.newest_ms = max(result.newest_ms, table.newest_ms or 0)
                behind_s = max(0.0, time.time() - result.newest_ms / 1000)
                table.through_at = max(table.through_at, time.monotonic() - behind_s)
            table.snapshot = result.snapshot or table.snapshot
            table.way = result.way or table.way
            return before

    def batch_applied(self, batch_id: int, seconds: float) -> None:
        """The sink has written a whole batch."""
        self._seconds.observe(seconds)
        with self._lock:
            self._batch, self._batch_s, self._started = batch_id, seconds, None
            self._batches += 1
            self._last_end = time.time()
            for table in self._tables.values():
                table.planned = 0

    def progress(self, batch_id: int, applied: Offsets, ends: Offsets, durations_ms: Mapping[str, int]) -> None:
        """Spark has ended a micro-batch: its end, the ends of the topics when it was planned, its phases.

        A table whose topic Kafka does not have any more is forgotten.
        """
        self.phases.report(batch_id, {name: duration / 1000 for name, duration in durations_ms.items()})
        with self._lock:
            for topic, offsets in ends.items():
                table = self._table(topic)
                table.applied, table.ends = applied.get(topic, {}), offsets
            if ends:
                for topic in self._tables.keys() - ends.keys():
                    if not self._is_parked(topic):
                        del self._tables[topic]
            self._note_read()

    def confirmed(self) -> None:
        """Kafka has answered, and no topic has anything more."""
        with self._lock:
            self._answered_at = time.monotonic()
            self._note_read()

    def _note_read(self) -> None:
        for topic, table in self._tables.items():
            if self._is_read(topic, table):
                table.through_at = max(table.through_at, self._answered_at)

    def positions(self, tables: Mapping[str, Any]) -> None:
        """These tables go on at positions of their own (tables/progress.py); those with a reason are parked."""
        with self._lock:
            self._positions = dict(tables)
            for topic in filter(self._is_parked, tables):
                self._table(topic)
                position = self._positions[topic]
                ts_ms = int(1000 * (position.get("parked_at") or 0))
                if self._last_error is None or ts_ms > self._last_error["ts_ms"]:
                    named = {"topic": topic, "message": position["reason"], "hint": position["hint"]}
                    self._last_error = named | {"ts_ms": ts_ms}

    def _is_parked(self, topic: str) -> bool:
        return topic in self._positions and self._positions[topic]["reason"] is not None

    def _is_read(self, topic: str, table: _Table) -> bool:
        """Return whether nothing was left to read when Kafka last answered."""
        return self._offsets_behind(topic, table) == 0 and not self._is_parked(topic)

    def _table(self, topic: str) -> _Table:
        return self._tables.setdefault(topic, _Table())

    def _lag_ms(self, topic: str, table: _Table) -> int | None:
        """Return how far the table is behind, a function of time: it grows while Kafka does not answer.

        It is 0 only while Kafka confirms that there is nothing more. None: nothing is known yet. A table with a
        position is behind at least since it was parked, or since this process began.
        """
        now, through_at = time.monotonic(), table.through_at
        if through_at == -math.inf and topic in self._positions:
            parked_at = self._positions[topic].get("parked_at")
            through_at = now - max(0.0, time.time() - parked_at) if parked_at else self._began_at
        if through_at == -math.inf:
            return None
        is_current = self._is_read(topic, table) and now - self._answered_at <= CONFIRMED_S
        return 0 if is_current else int((now - through_at) * 1000)

    def _offsets_behind(self, topic: str, table: _Table) -> int | None:
        """Return the offsets that are not applied: of a table with a position from there on."""
        if not table.ends:
            return None
        if topic in self._positions:
            return offsets_between(self._positions[topic]["starts"], table.ends)
        return offsets_between(table.applied, table.ends) + table.planned

    def _state_of(self, topic: str, table: _Table) -> str:
        if self._is_parked(topic):
            return "parked"
        if table.snapshot is None:
            return "waiting"
        return "streaming" if table.snapshot.state == "none" else table.snapshot.state

    def lag_ms(self) -> int | None:
        """Return the greatest lag of a table; None if none is known."""
        with self._lock:
            lags = [self._lag_ms(topic, table) for topic, table in self._tables.items()]
        return max((lag for lag in lags if lag is not None), default=None)

    def table_states(self) -> dict[str, int]:
        """Return the number of tables by state."""
        with self._lock:
            return dict(Counter(self._state_of(topic, table) for topic, table in self._tables.items()))

    def _describe(self, topic: str, table: _Table) -> dict[str, Any]:
        found = table.snapshot or SnapshotStatus()
        described = {
            "sink": self.sink_of(topic),
            "state": self._state_of(topic, table),
            "records_applied": table.records,
            "rows": dict(table.rows),
            "way": table.way,
            "newest_source_ms": table.newest_ms,
            "lag_ms": self._lag_ms(topic, table),
            "offsets_behind": self._offsets_behind(topic, table),
            "splits": {name: value for name, value in asdict(found).items() if name != "state"},
        }
        return described | ({"parked": self._positions[topic]} if self._is_parked(topic) else {})

    @property
    def alive(self) -> bool:
        """Whether the query is starting or running."""
        return self._state in {"starting", "running"}

    @property
    def ready(self) -> bool:
        """Whether the query is running."""
        return self._state == "running"

    def as_dict(self) -> dict[str, Any]:
        """Return the content of /status."""
        with self._lock:
            tables = {topic: self._describe(topic, self._tables[topic]) for topic in sorted(self._tables)}
            now = {
                "query": self._query,
                "version": program_version(),
                "sink": self._sink,
                "state": self._state,
                "last_error": self._last_error,
                "batch": self._batch,
                "batches": self._batches,
                "last_batch_seconds": round(self._batch_s, 3),
                "last_batch_at": self._last_end,
                "running_batch_seconds": 0.0 if self._started is None else round(time.monotonic() - self._started, 3),
            }
        lags = [table["lag_ms"] for table in tables.values() if table["lag_ms"] is not None]
        return {
            **now,
            "lag_ms": max(lags, default=None),
            "splits_incomplete": sum(table["splits"]["incomplete"] for table in tables.values()),
            "last_batch_phases": self.phases.last(),
            "phases": self.phases.totals(),
            "table_states": dict(Counter(table["state"] for table in tables.values())),
            "tables": tables,
        }
