"""The HTTP port: the status, and Prometheus metrics, which are computed from it when they are scraped.

``cdc_...`` are Debezium's names in snake case, so that its dashboards and alerts can be reused; ``tailrace_...`` are
Tailrace's own.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import structlog
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector

from tailrace.producer.kafka import native_sender
from tailrace.producer.native import loader
from tailrace.producer.ops.status import Phase, Status
from tailrace.runtime.http import Endpoints, HttpServer, program_registry

log = structlog.get_logger(__name__)

# name, help, path within Status.snapshot()
_PROCESS_GAUGES: Final = (
    ("cdc_connected", "1 while the producer streams the binlog", ("connected",)),
    (
        "cdc_milli_seconds_behind_source",
        "How far Kafka is behind the source, ms; 0 while the source confirms that it has nothing more",
        ("stream", "lag_ms"),
    ),
    (
        "cdc_milli_seconds_since_last_event",
        "Time since the last event or heartbeat of the source, ms",
        ("stream", "idle_ms"),
    ),
    ("cdc_total_number_of_create_events_seen", "Records of inserts since the start", ("stream", "creates")),
    ("cdc_total_number_of_update_events_seen", "Records of updates since the start", ("stream", "updates")),
    (
        "cdc_total_number_of_delete_events_seen",
        "Records of deletes since the start, tombstones included",
        ("stream", "deletes"),
    ),
    ("cdc_number_of_committed_transactions", "Source transactions since the start", ("stream", "transactions")),
    ("cdc_number_of_disconnects", "Lost connections to the binlog", ("stream", "disconnects")),
    (
        "cdc_number_of_erroneous_events",
        "Events that could not be written; they were skipped, and their tables are read again",
        ("stream", "refused"),
    ),
    ("cdc_binlog_position", "Position in the binlog file that is stored in Kafka", ("stream", "pos")),
    (
        "tailrace_purge_left_seconds",
        "Time for which the source keeps the binlog behind the stored position, at least; it runs out in an outage",
        ("stream", "purge_left_s"),
    ),
    (
        "tailrace_binlog_bytes_behind",
        "Bytes of binlog between the stored position and the end",
        ("stream", "log_bytes_behind"),
    ),
    (
        "tailrace_binlog_files_behind",
        "Binlog files behind the one of the stored position",
        ("stream", "log_files_behind"),
    ),
    (
        "tailrace_transactions_behind",
        "Transactions that the source has executed, and that the stored position does not include",
        ("stream", "log_transactions_behind"),
    ),
    ("cdc_total_table_count", "Captured tables", ("snapshot", "tables")),
    (
        "tailrace_splits_waiting",
        "Splits in Kafka whose high watermark the binlog reader has not passed",
        ("snapshot", "splits_waiting"),
    ),
    (
        "tailrace_snapshot_waits_for_stream",
        "1 while no split is started because too many wait for the binlog reader",
        ("snapshot", "waits_for_stream"),
    ),
    (
        "tailrace_stream_held_milliseconds",
        "For how long the stream has been waiting for the snapshot of a table, and writes nothing; 0: it does not wait",
        ("stream", "held_ms"),
    ),
    ("cdc_remaining_table_count", "Tables whose snapshot is not complete", ("snapshot", "tables_remaining")),
    ("tailrace_tables_in_error", "Tables that cannot be captured as they are", ("snapshot", "tables_in_error")),
)

# name, help, field of the stream: microseconds since 1970. What is not known has no series.
_TIMES: Final = (
    ("tailrace_last_received_timestamp_seconds", "Unix time of the last event or heartbeat", "received_ts_us"),
    ("tailrace_last_commit_timestamp_seconds", "Unix time of the stream's last Kafka transaction", "committed_ts_us"),
    (
        "tailrace_last_transaction_timestamp_seconds",
        "Unix time at which the source committed the last transaction that was read",
        "source_ts_us",
    ),
    ("tailrace_binlog_measured_timestamp_seconds", "Unix time of the last measure of the binlog", "log_measured_ts_us"),
)

_PROCESS_COUNTERS: Final = (
    ("tailrace_stream_events", "Rows events of captured tables", ("stream", "events")),
    (
        "tailrace_stream_events_skipped",
        "Rows events without records, because the rows of a split contain the changes",
        ("stream", "events_skipped"),
    ),
    ("tailrace_stream_moves", "Times that a signal has set the position of the stream", ("stream", "moves")),
    ("tailrace_stream_commits", "Kafka transactions of the stream", ("stream", "commits")),
    ("tailrace_webhook_delivered", "Events that the webhook has taken", ("webhook", "delivered")),
    ("tailrace_webhook_failed", "Events that the webhook has not taken: they are given up", ("webhook", "failed")),
)

_TABLE_GAUGES: Final = (
    ("cdc_rows_scanned", "Rows of the snapshot that are in Kafka", "rows_read"),
    ("tailrace_rows_estimated", "Rows by the server's statistics", "rows_estimated"),
    ("tailrace_splits_planned", "Splits planned so far", "splits_planned"),
    ("tailrace_splits_done", "Splits whose rows are in Kafka", "splits_done"),
    ("tailrace_splits_ended", "Splits whose high watermark the binlog has passed", "splits_ended"),
)


class StatusCollector(Collector):
    """Converts one reading of the status to metrics."""

    def __init__(self, status: Status) -> None:
        self._status = status

    def collect(self) -> Iterator[Metric]:
        """Yield all metrics; the label ``server`` is the topic prefix."""
        now = self._status.snapshot()
        server = now["prefix"]
        for name, text, path in _PROCESS_GAUGES:
            if (value := _at(now, path)) is not None:
                yield _gauge(name, text, server, float(value))
        for name, text, field in _TIMES:
            if now["stream"][field]:
                yield _gauge(name, text, server, now["stream"][field] / 1_000_000)
        if (error := now["last_error"]) is not None:
            text = "Unix time of the last error that ended a session"
            yield _gauge("tailrace_last_error_timestamp_seconds", text, server, error["ts_ms"] / 1000)
        for name, text, path in _PROCESS_COUNTERS:
            counter = CounterMetricFamily(name, text, labels=["server"])
            counter.add_metric([server], float(_at(now, path)))
            yield counter
        stream = now["stream"]
        total = stream["creates"] + stream["updates"] + stream["deletes"]
        yield _gauge("cdc_total_number_of_events_seen", "Records of changes since the start", server, total)
        running, complete = now["phase"] == Phase.SNAPSHOT, now["phase"] == Phase.STREAMING
        yield _gauge("cdc_snapshot_running", "1 while a snapshot is running", server, running)
        yield _gauge("cdc_snapshot_completed", "1 when every snapshot is complete", server, complete)
        if stream["lag_ms"] is not None:
            yield _gauge("tailrace_lag_seconds", "How far Kafka is behind the source", server, stream["lag_ms"] / 1000)
        yield _gauge("tailrace_native_codec", "1 if the compiled extension encodes rows", server, loader.is_used())
        sends = not native_sender.unused_because()
        yield _gauge("tailrace_native_sender", "1 if the compiled extension sends records", server, sends)
        yield from self._info(server, now)
        yield from self._tables(server, now["tables"])

    @staticmethod
    def _info(server: str, now: dict[str, Any]) -> Iterator[Metric]:
        file = GaugeMetricFamily("cdc_binlog_filename", "1 for the current binlog file", labels=["server", "filename"])
        file.add_metric([server, now["stream"]["file"]], 1)
        yield file
        phase = GaugeMetricFamily("tailrace_phase", "1 for the phase of the process", labels=["server", "phase"])
        for each in Phase:
            phase.add_metric([server, each.value], each == now["phase"])
        yield phase

    @staticmethod
    def _tables(server: str, tables: dict[str, dict[str, Any]]) -> Iterator[Metric]:
        for name, text, attribute in _TABLE_GAUGES:
            family = GaugeMetricFamily(name, text, labels=["server", "table"])
            for table, status in tables.items():
                family.add_metric([server, table], status[attribute])
            yield family
        records = CounterMetricFamily("tailrace_table_records", "Records of changes", labels=["server", "table"])
        replaced = CounterMetricFamily(
            "tailrace_values_replaced",
            "Values that the modes cannot represent and that were replaced",
            labels=["server", "table"],
        )
        skipped = CounterMetricFamily(
            "tailrace_table_changes_skipped", "Rows events of a table in error", labels=["server", "table"]
        )
        modes = GaugeMetricFamily(
            "tailrace_table_mode", "1 for the mode of the table", labels=["server", "table", "mode"]
        )
        held = CounterMetricFamily(
            "tailrace_table_held_milliseconds",
            "Time for which the stream has waited for the snapshot of the table",
            labels=["server", "table"],
        )
        for table, status in tables.items():
            held.add_metric([server, table], status["held_ms"])
            records.add_metric([server, table], status["records"])
            replaced.add_metric([server, table], status["values_replaced"])
            skipped.add_metric([server, table], status["changes_skipped"])
            modes.add_metric([server, table, str(status["mode"])], 1)
        yield held
        yield records
        yield replaced
        yield skipped
        yield modes


def _at(values: dict[str, Any], path: tuple[str, ...]) -> Any:
    found: Any = values
    for step in path:
        found = found[step]
    return found


def _gauge(name: str, text: str, server: str, value: float) -> Metric:
    family = GaugeMetricFamily(name, text, labels=["server"])
    family.add_metric([server], value)
    return family


def endpoints(status: Status) -> Endpoints:
    return Endpoints(
        status=status.snapshot,
        metrics=program_registry("producer", StatusCollector(status)),
        is_live=lambda: status.live,
        is_ready=lambda: status.ready,
    )


@contextmanager
def open_http_port(status: Status, *, address: str, port: int) -> Iterator[None]:
    """Serve the endpoints, unless the port is 0. Raises PortInUseError or ConfigError if it cannot be opened."""
    if port == 0:
        yield
        return
    with HttpServer(endpoints(status), address=address, port=port, port_property="tailrace.http.port"):
        log.info("http port open", address=address, port=port)
        yield
