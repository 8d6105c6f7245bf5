"""The metrics of the consumer for Prometheus, from one reading of the status: only tables that it has are in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.spark_consumer.monitor.table_result import ROW_KINDS

TABLE_STATES: Final = ("waiting", "streaming", "loading", "complete", "parked")
_COUNTERS: Final = ("tailrace_batches", "tailrace_phase_seconds", "tailrace_records_applied", "tailrace_rows")


class StatusCollector(Collector):
    """Converts one reading of the status to metrics."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield what the status has."""
        for name, text, labels, samples in _families(self._status()):
            family = (CounterMetricFamily if name in _COUNTERS else GaugeMetricFamily)(name, text, labels=labels)
            for values, value in samples.items():
                if value is not None:
                    family.add_metric(values, value)
            if labels or family.samples:
                yield family


def _families(now: dict[str, Any]) -> Iterator[tuple[str, str, tuple[str, ...], Mapping[Any, Any]]]:
    """Yield name, description, labels, and the values by labels; None is no sample."""
    tables: dict[str, dict[str, Any]] = now["tables"]
    states = now["table_states"]
    splits = {topic: table["splits"] for topic, table in tables.items() if table["splits"]["expected"]}
    sinks = sorted(Counter((table["sink"], table["state"]) for table in tables.values()).items())
    for name, text, field in (
        (
            "tailrace_query_milli_seconds_behind_source",
            "The greatest lag of a table; 0 while Kafka confirms that there is nothing more",
            "lag_ms",
        ),
        ("tailrace_splits_incomplete", "Snapshot splits of which records are missing so far", "splits_incomplete"),
        (
            "tailrace_batch_running_seconds",
            "Age of the running micro-batch; 0 between batches",
            "running_batch_seconds",
        ),
        ("tailrace_batches", "Micro-batches applied", "batches"),
    ):
        yield name, text, (), {(): now[field]}
    phases = {(phase,): seconds for phase, seconds in now["phases"].items()}
    yield "tailrace_phase_seconds", "Seconds in each phase of the batches", ("phase",), phases
    counts = {(state,): states.get(state, 0) for state in TABLE_STATES}
    yield "tailrace_tables", "Tables by state", ("state",), counts
    yield "tailrace_tables_parked", "Tables that cannot go on", (), {(): states.get("parked", 0)}
    for name, text, field in (
        (
            "tailrace_table_milli_seconds_behind_source",
            "How far the table is behind; 0 while Kafka confirms that there is nothing more",
            "lag_ms",
        ),
        ("tailrace_offsets_behind", "Offsets in Kafka that are not applied", "offsets_behind"),
        ("tailrace_records_applied", "Records applied, by table", "records_applied"),
    ):
        yield name, text, ("topic",), {(topic,): table[field] for topic, table in tables.items()}
    parked = {(topic, table["sink"]): 1.0 for topic, table in tables.items() if table["state"] == "parked"}
    yield "tailrace_table_parked", "1 for a table that cannot go on", ("topic", "sink"), parked
    yield "tailrace_sink_tables", "Tables by sink and state", ("sink", "state"), dict(sinks)
    rows = {(topic, kind): table["rows"].get(kind) for topic, table in tables.items() for kind in ROW_KINDS}
    yield "tailrace_rows", "Rows applied, by table and kind", ("topic", "kind"), rows
    for name, text, field in (
        ("tailrace_splits_complete", "Complete splits of the snapshots", "done"),
        ("tailrace_splits_expected", "Known splits of the snapshots", "expected"),
    ):
        yield name, text, ("topic",), {(topic,): each[field] for topic, each in splits.items()}
