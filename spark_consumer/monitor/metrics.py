"""The metrics of the consumer for Prometheus, from one reading of the status: only tables that it has are in them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any, Final

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.spark_consumer.monitor.table_result import ROW_KINDS

TABLE_STATES: Final = ("waiting", "streaming", "loading", "complete", "parked")

_GAUGES: Final = (
    (
        "cdc_milli_seconds_behind_source",
        "The greatest lag of a table; 0 while Kafka confirms that there is nothing more",
        "lag_ms",
    ),
    ("tailrace_splits_incomplete", "Snapshot splits of which records are missing so far", "splits_incomplete"),
    ("tailrace_batch_running_seconds", "Age of the running micro-batch; 0 between batches", "running_batch_seconds"),
)
_TABLE_GAUGES: Final = (
    (
        "tailrace_table_milli_seconds_behind_source",
        "How far the table is behind; 0 while Kafka confirms that there is nothing more",
        "lag_ms",
    ),
    ("tailrace_offsets_behind", "Offsets in Kafka that are not applied", "offsets_behind"),
)


class StatusCollector(Collector):
    """Converts one reading of the status to metrics."""

    def __init__(self, status: Callable[[], dict[str, Any]]) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics but the histogram of the batches."""
        now = self._status()
        tables: dict[str, dict[str, Any]] = now["tables"]
        for name, text, field in _GAUGES:
            if now[field] is not None:
                yield GaugeMetricFamily(name, text, value=float(now[field]))
        yield CounterMetricFamily("tailrace_batches", "Micro-batches applied", value=now["batches"])
        phases = CounterMetricFamily("tailrace_phase_seconds", "Seconds in each phase of the batches", labels=["phase"])
        for phase, seconds in now["phases"].items():
            phases.add_metric([phase], seconds)
        yield phases
        states = GaugeMetricFamily("tailrace_tables", "Tables by state", labels=["state"])
        for state in TABLE_STATES:
            states.add_metric([state], now["table_states"].get(state, 0))
        yield states
        yield GaugeMetricFamily(
            "tailrace_tables_parked", "Tables that cannot go on", value=now["table_states"].get("parked", 0)
        )
        yield from _by_table(tables)
        yield from _rows(tables)
        yield from _splits(tables)


def _by_table(tables: dict[str, dict[str, Any]]) -> Iterator[Metric]:
    for name, text, field in _TABLE_GAUGES:
        family = GaugeMetricFamily(name, text, labels=["topic"])
        for topic, table in tables.items():
            if table[field] is not None:
                family.add_metric([topic], table[field])
        yield family
    parked = GaugeMetricFamily("tailrace_table_parked", "1 for a table that cannot go on", labels=["topic", "sink"])
    for topic, table in tables.items():
        if table["state"] == "parked":
            parked.add_metric([topic, table["sink"]], 1)
    yield parked
    by_sink = GaugeMetricFamily("tailrace_sink_tables", "Tables by sink and state", labels=["sink", "state"])
    for (sink, state), count in sorted(Counter((each["sink"], each["state"]) for each in tables.values()).items()):
        by_sink.add_metric([sink, state], count)
    yield by_sink


def _rows(tables: dict[str, dict[str, Any]]) -> Iterator[Metric]:
    records = CounterMetricFamily("tailrace_records_applied", "Records applied, by table", labels=["topic"])
    rows = CounterMetricFamily("tailrace_rows", "Rows applied, by table and kind", labels=["topic", "kind"])
    for topic, table in tables.items():
        records.add_metric([topic], table["records_applied"])
        for kind in ROW_KINDS:
            if kind in table["rows"]:
                rows.add_metric([topic, kind], table["rows"][kind])
    yield records
    yield rows


def _splits(tables: dict[str, dict[str, Any]]) -> Iterator[Metric]:
    done = GaugeMetricFamily("tailrace_splits_done", "Complete splits of the snapshots", labels=["topic"])
    expected = GaugeMetricFamily("tailrace_splits_expected", "Known splits of the snapshots", labels=["topic"])
    for topic, table in tables.items():
        if table["splits"]["expected"]:
            done.add_metric([topic], table["splits"]["done"])
            expected.add_metric([topic], table["splits"]["expected"])
    yield done
    yield expected
