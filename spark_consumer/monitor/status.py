"""Progress of the running query, for /status and /metrics."""

from __future__ import annotations

import threading
import time
from collections import Counter as Counts
from collections.abc import Mapping
from typing import Any

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram


class Status:
    """Written by the threads of the query and its tables, read by the threads of the HTTP server."""

    def __init__(self, query: str, sink: str) -> None:
        self._lock = threading.Lock()
        self._query, self._sink = query, sink
        self._applied: Counts[str] = Counts()
        self._batch: int | None = None
        self._batch_s = 0.0
        self._last_end: float | None = None
        self._source_ms: int | None = None
        self._incomplete: dict[str, int] = {}
        self._offsets_behind: dict[str, int] = {}
        self._phases_ms: dict[str, int] = {}
        self._newest_ms: dict[str, int] = {}
        self._parked: dict[str, Any] = {}
        self._state = "starting"
        self.registry = CollectorRegistry()
        self._rows = Counter("tailrace_records_applied", "Records applied, by table", ["topic"], registry=self.registry)
        self._batches = Counter("tailrace_batches", "Micro-batches applied", registry=self.registry)
        self._seconds = Histogram(
            "tailrace_batch_seconds",
            "Duration of a micro-batch",
            buckets=(0.1, 0.5, 1, 2, 5, 10, 30, 60, 300),
            registry=self.registry,
        )
        lag = Gauge(
            "cdc_milli_seconds_behind_source",
            "Time since the newest applied change",
            registry=self.registry,
        )
        lag.set_function(lambda: float(self.lag_ms() or 0))
        held = Gauge(
            "tailrace_splits_incomplete",
            "Incomplete snapshot splits, which are held",
            registry=self.registry,
        )
        held.set_function(lambda: float(self._splits_incomplete()))

        self._behind = Gauge(
            "tailrace_offsets_behind", "Offsets in Kafka after the last micro-batch", ["topic"], registry=self.registry
        )
        parked = Gauge("tailrace_tables_parked", "Tables that cannot go on", registry=self.registry)
        parked.set_function(lambda: float(len(self._parked)))

    def running(self) -> None:
        """The query has started."""
        with self._lock:
            self._state = "running"

    def stopped(self, reason: str) -> None:
        """The query has ended."""
        with self._lock:
            self._state = reason

    def table_applied(self, topic: str, records: int, source_ms: int | None, incomplete: int) -> None:
        """The sink has written the records of one table, which now holds ``incomplete`` splits."""
        self._rows.labels(topic).inc(records)
        with self._lock:
            self._incomplete[topic] = incomplete
            self._applied[topic] += records
            if source_ms is not None:
                self._newest_ms[topic] = max(source_ms, self._newest_ms.get(topic, 0))
                self._source_ms = max(source_ms, self._source_ms or 0)

    def batch_applied(self, batch_id: int, seconds: float) -> None:
        """The sink has written a whole batch."""
        self._batches.inc()
        self._seconds.observe(seconds)
        with self._lock:
            self._batch, self._batch_s = batch_id, seconds
            self._last_end = time.time()

    def progress(self, behind: Mapping[str, int], durations_ms: Mapping[str, int]) -> None:
        """Spark has ended a micro-batch: offsets behind Kafka per topic, and the phases of the batch."""
        for topic, offsets in behind.items():
            self._behind.labels(topic).set(offsets)
        with self._lock:
            self._offsets_behind, self._phases_ms = dict(behind), dict(durations_ms)

    def parked(self, tables: Mapping[str, Any]) -> None:
        """These tables cannot go on."""
        with self._lock:
            self._parked = dict(tables)

    def lag_ms(self) -> int | None:
        """Return the milliseconds since the newest applied change; the value grows while the source is idle."""
        return None if self._source_ms is None else max(0, int(time.time() * 1000) - self._source_ms)

    def _table(self, topic: str) -> dict[str, Any]:
        newest = self._newest_ms.get(topic)
        return {
            "state": "parked" if topic in self._parked else "running",
            "records_applied": self._applied.get(topic, 0),
            "newest_source_ms": newest,
            "lag_ms": None if newest is None else max(0, int(time.time() * 1000) - newest),
            "offsets_behind": self._offsets_behind.get(topic),
            "splits_incomplete": self._incomplete.get(topic, 0),
        }

    def _splits_incomplete(self) -> int:
        return sum(list(self._incomplete.values()))

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
            return {
                "query": self._query,
                "sink": self._sink,
                "state": self._state,
                "batch": self._batch,
                "last_batch_seconds": round(self._batch_s, 3),
                "last_batch_at": self._last_end,
                "lag_ms": self.lag_ms(),
                "splits_incomplete": self._splits_incomplete(),
                "last_batch_phases_ms": dict(self._phases_ms),
                "tables": {topic: self._table(topic) for topic in sorted(self._applied.keys() | self._parked.keys())},
                "parked": dict(self._parked),
                "applied": dict(self._applied),
            }
