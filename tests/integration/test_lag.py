"""What the gauges say while the source or Kafka does not answer: processes that are stopped by a signal."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from prometheus_client import generate_latest

from tailrace.producer.ops.metrics import endpoints
from tests.support.capture import CaptureThread, eventually, properties

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


def test_lag_and_time_since_the_last_event_grow_in_an_outage(
    own_server: MySqlServer, own_database: Database, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """A dashboard must not say that all is well while nothing arrives; afterwards it does again."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    watched = {"tailrace.binlog.watch.interval.ms": 200}
    with CaptureThread(properties(own_server, kafka_broker, prefix, own_database.name, watched)) as capture:

        def stream() -> dict[str, Any]:
            found: dict[str, Any] = capture.status.snapshot()["stream"]
            return found

        capture.wait_snapshot()
        eventually(lambda: stream()["lag_ms"] == 0, "the end of the binlog")
        eventually(lambda: stream()["log_bytes_behind"] == 0, "a measure of the binlog")
        assert stream()["log_transactions_behind"] == stream()["log_files_behind"] == 0
        kept = stream()["purge_left_s"]
        with own_server.paused():
            eventually(lambda: stream()["lag_ms"] > 6_000, "lag while the source is silent", deadline_s=60)
            assert stream()["idle_ms"] > 6_000
            assert stream()["log_bytes_behind"] is None
            assert stream()["purge_left_s"] <= kept - 4
            names = generate_latest(endpoints(capture.status).metrics).decode()
            assert "tailrace_purge_left_seconds{" in names
            assert "tailrace_binlog_bytes_behind{" not in names
        eventually(lambda: stream()["lag_ms"] == 0, "no lag after the source is back")

        with kafka_broker.paused():
            own_database.execute("INSERT INTO t VALUES (1)")
            eventually(lambda: (stream()["lag_ms"] or 0) > 2_000, "lag while Kafka is silent", deadline_s=60)
            text = generate_latest(endpoints(capture.status).metrics).decode()
            [gauge] = [line for line in text.splitlines() if line.startswith("tailrace_lag_seconds{")]
            assert float(gauge.split()[1]) >= 2
        eventually(lambda: stream()["lag_ms"] == 0, "no lag after Kafka is back")
