"""Metrics for Prometheus, made from the status when they are asked for.

``cdc_…`` are Debezium's names in snake case, so that its charts and alarms can be moved; ``tailrace_…`` are ours.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from prometheus_client import CollectorRegistry, PlatformCollector, ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.producer.ops.status import Phase, Status, TableState

# name, help, path within Status.snapshot()
_OF_THE_PROCESS: Final = (
    ("cdc_connected", "1 while the log is being followed", ("connected",)),
    (
        "cdc_milli_seconds_behind_source",
        "Age of the last transaction when handled, ms; -1: none yet",
        ("log", "lag_ms"),
    ),
    (
        "cdc_milli_seconds_since_last_event",
        "Time since something came from the log, ms; -1: none yet",
        ("log", "idle_ms"),
    ),
    ("cdc_total_number_of_create_events_seen", "Records of inserts, since the start", ("log", "creates")),
    ("cdc_total_number_of_update_events_seen", "Records of updates, since the start", ("log", "updates")),
    (
        "cdc_total_number_of_delete_events_seen",
        "Records of deletes, tombstones included, since the start",
        ("log", "deletes"),
    ),
    ("cdc_number_of_committed_transactions", "Transactions of the source, since the start", ("log", "transactions")),
    ("cdc_number_of_disconnects", "Connections of the log reader that were lost", ("log", "disconnects")),
    ("cdc_binlog_position", "Offset in the binlog file that is stored in Kafka", ("log", "pos")),
    ("cdc_total_table_count", "Tables that are captured", ("snapshot", "tables")),
    ("cdc_remaining_table_count", "Tables under snapshot", ("snapshot", "tables_remaining")),
)

_COUNTERS: Final = (
    ("tailrace_log_events", "Rows events of captured tables", ("log", "events")),
    ("tailrace_log_events_dropped", "Rows events whose rows a split reads, or has read", ("log", "events_dropped")),
    ("tailrace_log_commits", "Kafka transactions of the log reader", ("log", "commits")),
)

_OF_A_TABLE: Final = (
    ("cdc_rows_scanned", "Rows of the snapshot that are in Kafka", "rows_read"),
    ("tailrace_rows_estimated", "Rows by the server's statistics", "rows_estimated"),
    ("tailrace_splits_planned", "Splits planned so far", "splits_planned"),
    ("tailrace_splits_done", "Splits whose rows are in Kafka", "splits_done"),
    ("tailrace_splits_ended", "Splits whose high watermark the log has passed", "splits_ended"),
)


class StatusCollector(Collector):
    """Turns one reading of the status into metrics."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics, each with the label ``server``, the topic prefix."""
        now = self._status.snapshot()
        server = now["prefix"]
        for name, text, path in _OF_THE_PROCESS:
            yield _gauge(name, text, server, _at(now, path))
        for name, text, path in _COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["server"])
            counter.add_metric([server], _at(now, path))
            yield counter
        log = now["log"]
        total = log["creates"] + log["updates"] + log["deletes"]
        yield _gauge("cdc_total_number_of_events_seen", "Records of changes, since the start", server, total)
        running, whole = now["phase"] == Phase.SNAPSHOT, now["phase"] == Phase.LOG
        yield _gauge("cdc_snapshot_running", "1 while tables are being read", server, running)
        yield _gauge("cdc_snapshot_completed", "1 when every table is read and only followed", server, whole)
        yield _gauge("tailrace_lag_seconds", "Age of the last transaction when handled", server, log["lag_ms"] / 1000)
        yield from self._info(server, now)
        yield from self._tables(server, now["tables"])

    @staticmethod
    def _info(server: str, now: dict[str, Any]) -> Iterator[Metric]:
        file = GaugeMetricFamily("cdc_binlog_filename", "1 for the binlog file in work", labels=["server", "filename"])
        file.add_metric([server, now["log"]["file"]], 1)
        yield file
        phase = GaugeMetricFamily("tailrace_phase", "1 for the phase of the process", labels=["server", "phase"])
        for each in Phase:
            phase.add_metric([server, each.value], each == now["phase"])
        yield phase

    @staticmethod
    def _tables(server: str, tables: dict[str, dict[str, Any]]) -> Iterator[Metric]:
        for name, text, attribute in _OF_A_TABLE:
            family = GaugeMetricFamily(name, text, labels=["server", "table"])
            for table, status in tables.items():
                family.add_metric([server, table], status[attribute])
            yield family
        records = CounterMetricFamily("tailrace_log_records", "Records of changes", labels=["server", "table"])
        followed = GaugeMetricFamily(
            "tailrace_table_followed", "1 when only the log is needed", labels=["server", "table"]
        )
        for table, status in tables.items():
            records.add_metric([server, table], status["records"])
            followed.add_metric([server, table], status["state"] == TableState.LOG)
        yield records
        yield followed


def _at(values: dict[str, Any], path: tuple[str, ...]) -> float:
    found: Any = values
    for step in path:
        found = found[step]
    return float(found)


def _gauge(name: str, text: str, server: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["server"])
    family.add_metric([server], value)
    return family


def registry(status: Status) -> CollectorRegistry:
    """Return a registry of this process: the status, memory and CPU, the Python version."""
    made = CollectorRegistry(auto_describe=False)
    made.register(StatusCollector(status))
    ProcessCollector(registry=made)
    PlatformCollector(registry=made)
    return made
