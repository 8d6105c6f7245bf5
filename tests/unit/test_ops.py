"""The status of the producer, its metrics and its HTTP port."""

from __future__ import annotations

import http.client
import threading
import time

import orjson
import pytest

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.kafka import native_sender
from tailrace.producer.model.protocols import LogDistance
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.native import loader
from tailrace.producer.ops.metrics import endpoints, open_http_port
from tailrace.producer.ops.status import Phase, Status
from tailrace.runtime.errors import PortInUseError
from tailrace.runtime.http import HttpServer

ORDERS, LINES = TableId("shop", "orders"), TableId("shop", "lines")


def running() -> Status:
    """Return the status of a capture in the middle of a snapshot of two tables."""
    status = Status("shop")
    status.connected("shop")
    status.table_mode(LINES, TableMode.WAITING)
    status.table_mode(ORDERS, TableMode.SNAPSHOT)
    status.table_started(ORDERS, estimated_rows=100)
    for _ in range(3):
        status.split_planned(ORDERS)
    status.split_read(ORDERS, rows=40)
    status.stream_rows(ORDERS, "c", 2)
    status.stream_rows(ORDERS, "d", 0, skipped=1)
    status.values_replaced(ORDERS, 3)
    status.stream_transaction(ts_us=1)
    status.stream_received(1, complete=False)
    status.stream_committed({"file": "bin.000002", "pos": 77, "gtids": "u:1-5"})
    return status


def metrics(status: Status) -> str:
    """Return /metrics."""
    return endpoints(status).response("/metrics").body.decode()


def get(port: int, path: str) -> tuple[int, bytes]:
    """Ask the HTTP port."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    try:
        connection.request("GET", path)
        response = connection.getresponse()
        return response.status, response.read()
    finally:
        connection.close()


@pytest.mark.parametrize("switch", ["0", "1"])
def test_metric_says_whether_the_extension_is_used(switch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TAILRACE_NATIVE", switch)

    found = metrics(running())

    assert f'tailrace_native_codec{{server="shop"}} {float(loader.is_used())}' in found
    sends = not native_sender.unused_because()
    assert f'tailrace_native_sender{{server="shop"}} {float(sends)}' in found
    assert switch == "1" or not (loader.is_used() or sends)


def test_status_counts_what_is_reported() -> None:
    """Tables and stream are counted apart; the snapshot section has the sums."""
    now = running().snapshot()

    assert now["phase"] == "snapshot"
    assert now["tables"]["shop.orders"] == {
        "mode": "snapshot",
        "rows_estimated": 100,
        "rows_read": 40,
        "splits_planned": 3,
        "splits_done": 1,
        "splits_ended": 0,
        "records": 2,
        "values_replaced": 3,
        "held_ms": 0,
        "error": "",
        "failed_at": {},
        "put_off": "",
        "changes_skipped": 0,
    }
    assert now["snapshot"] == {
        "tables": 2,
        "tables_remaining": 2,
        "tables_in_error": 0,
        "rows_read": 40,
        "splits_planned": 3,
        "splits_done": 1,
        "splits_waiting": 1,
        "waits_for_stream": False,
    }
    stream = now["stream"]
    assert (stream["file"], stream["pos"], stream["gtids"]) == ("bin.000002", 77, "u:1-5")
    assert (
        stream["events"],
        stream["events_skipped"],
        stream["creates"],
        stream["deletes"],
        stream["transactions"],
    ) == (2, 1, 2, 0, 1)
    assert stream["lag_ms"] > 0


def test_phase_is_streaming_after_the_last_table_and_lag_is_0_when_caught_up() -> None:
    """The phase follows the tables."""
    status = running()

    status.table_mode(ORDERS, TableMode.STREAMING)
    assert status.snapshot()["phase"] == "snapshot"
    status.table_mode(LINES, TableMode.STREAMING)
    status.stream_received(time.monotonic(), complete=True)

    now = status.snapshot()
    assert (now["phase"], now["snapshot"]["tables_remaining"], now["stream"]["lag_ms"]) == ("streaming", 0, 0)


def test_a_clock_that_is_set_back_hides_no_outage(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither before a commit nor while nothing moves: the time that has passed is not read from it."""
    status = running()
    now_us, now = time.time_ns() // 1000, time.monotonic()
    status.stream_transaction(ts_us=now_us)
    status.stream_committed({"file": "bin.000002", "pos": 99, "gtids": "u:1-6"})
    status.stream_received(now, complete=True)
    status.log_measured(LogDistance(1, 2, 3, purge_left_s=600.0, retention_s=900.0, row_metadata="FULL"), valid_s=60)
    set_back_us = now_us - 3_600_000_000
    monkeypatch.setattr(time, "time_ns", lambda: set_back_us * 1000)
    monkeypatch.setattr(time, "monotonic", lambda: now + 120)
    found = status.snapshot()["stream"]
    assert 119_000 <= found["lag_ms"] <= 121_000
    assert 119_000 <= found["idle_ms"] <= 121_000
    assert (found["log_files_behind"], found["purge_left_s"]) == (None, 480)
    assert abs(found["received_ts_us"] - (set_back_us - 120_000_000)) < 1_000_000

    status.stream_transaction(ts_us=set_back_us - 60_000_000)
    status.stream_committed({"file": "bin.000002", "pos": 111, "gtids": "u:1-7"})
    assert status.snapshot()["stream"]["lag_ms"] == 60_000


def test_lag_grows_while_the_source_or_kafka_is_silent() -> None:
    """It is a function of time: 0 needs a recent heartbeat with nothing left to write; nothing known is no figure."""
    status = Status("shop")
    assert (status.snapshot()["stream"]["lag_ms"], status.snapshot()["stream"]["idle_ms"]) == (None, None)
    text = metrics(status)
    assert "cdc_milli_seconds_behind_source{" not in text
    assert "tailrace_lag_seconds{" not in text

    now = time.monotonic()
    status.stream_received(now - 60, complete=True)  # silent for a minute since then
    found = status.snapshot()["stream"]
    assert 60_000 <= found["lag_ms"] < 120_000
    assert 60_000 <= found["idle_ms"] < 120_000

    status.stream_received(now, complete=True)
    assert status.snapshot()["stream"]["lag_ms"] == 0

    status.stream_transaction(ts_us=time.time_ns() // 1000)  # read, and not yet in Kafka
    status.stream_received(time.monotonic(), complete=False)
    assert status.snapshot()["stream"]["lag_ms"] is not None
    time.sleep(0.01)
    assert status.snapshot()["stream"]["lag_ms"] >= 10

    status.disconnected()
    status.failed(SourceUnavailableError("the source is gone"))
    assert status.snapshot()["stream"]["lag_ms"] >= 10


def test_a_clock_of_the_source_that_is_ahead_hides_no_outage() -> None:
    status = running()
    status.stream_transaction(ts_us=time.time_ns() // 1000 + 3_600_000_000)
    status.stream_committed({"file": "bin.000002", "pos": 99, "gtids": "u:1-6"})
    time.sleep(0.01)

    assert 10 <= status.snapshot()["stream"]["lag_ms"] < 3_600_000


def test_a_position_that_a_signal_sets_is_no_failure() -> None:
    status = running()
    before = status.snapshot()["stream"]["disconnects"]
    status.moved()
    status.disconnected()
    now = status.snapshot()
    assert (now["phase"], now["last_error"], now["connected"]) == ("starting", None, False)
    assert (now["stream"]["moves"], now["stream"]["disconnects"]) == (1, before)


def test_a_new_session_counts_its_splits_from_0() -> None:
    """After a failure the stored splits are reported again, and must not count twice."""
    status = running()
    status.failed(SourceUnavailableError("the server is gone", hint="start it", statement="SELECT 'sesame'"))
    status.disconnected()
    broken = status.snapshot()
    assert (broken["phase"], broken["connected"]) == ("starting", False)
    last = broken["last_error"]
    assert abs(time.time() - last["ts_ms"] / 1000) < 60
    assert last == {
        "class": "SourceUnavailableError",
        "message": "the server is gone",
        "hint": "start it",
        "ts_ms": last["ts_ms"],
    }
    found = endpoints(status).metrics.get_sample_value("tailrace_last_error_timestamp_seconds", {"server": "shop"})
    assert found == last["ts_ms"] / 1000
    assert not status.ready

    status.connected("shop")
    status.table_mode(ORDERS, TableMode.SNAPSHOT)
    status.table_started(ORDERS, estimated_rows=100)
    status.split_planned(ORDERS)
    status.split_read(ORDERS, rows=40)

    now = status.snapshot()
    assert (now["snapshot"]["splits_done"], now["snapshot"]["rows_read"], now["last_error"]) == (1, 40, last)
    assert now["stream"]["disconnects"] == 1


def test_status_may_be_updated_from_many_threads() -> None:
    """No count is lost."""
    status = running()

    def count() -> None:
        for _ in range(2000):
            status.stream_rows(LINES, "u", 1)

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert status.snapshot()["stream"]["updates"] == 8000


def test_metrics_have_debeziums_names_in_snake_case() -> None:
    """As text that Prometheus reads."""
    text = metrics(running())

    for line in (
        'cdc_connected{server="shop"} 1.0',
        'cdc_total_number_of_create_events_seen{server="shop"} 2.0',
        'cdc_remaining_table_count{server="shop"} 2.0',
        'cdc_snapshot_running{server="shop"} 1.0',
        'cdc_binlog_filename{filename="bin.000002",server="shop"} 1.0',
        'cdc_rows_scanned{server="shop",table="shop.orders"} 40.0',
        'tailrace_splits_planned{server="shop",table="shop.orders"} 3.0',
        'tailrace_stream_commits_total{server="shop"} 1.0',
        'tailrace_values_replaced_total{server="shop",table="shop.orders"} 3.0',
        'tailrace_phase{phase="snapshot",server="shop"} 1.0',
        'tailrace_table_mode{mode="snapshot",server="shop",table="shop.orders"} 1.0',
        'tailrace_table_mode{mode="waiting",server="shop",table="shop.lines"} 1.0',
    ):
        assert line in text
    assert "process_resident_memory_bytes" in text


def serve(status: Status, port: int = 0) -> HttpServer:
    """Serve a status on any free port."""
    return HttpServer(endpoints(status), address="127.0.0.1", port=port, port_property="tailrace.http.port")


def test_http_has_four_endpoints() -> None:
    """Ready only while changes are streamed."""
    status = running()
    with serve(status) as server:
        code, body = get(server.port, "/status?x=1")
        assert code == 200
        assert orjson.loads(body)["stream"]["file"] == "bin.000002"
        assert b"cdc_connected" in get(server.port, "/metrics")[1]
        assert get(server.port, "/livez") == (200, b"live\n")
        assert get(server.port, "/readyz") == (200, b"ready\n")
        assert get(server.port, "/other")[0] == 404
        status.phase(Phase.STOPPED)
        assert get(server.port, "/readyz")[0] == 503


def test_not_live_when_the_loop_of_the_stream_stands_still(monkeypatch: pytest.MonkeyPatch) -> None:
    """A start is live without a loop."""
    status = running()
    assert status.live
    monkeypatch.setattr("tailrace.producer.ops.status.LOOP_TIMEOUT_S", 0.0)
    with serve(status) as server:
        assert get(server.port, "/livez") == (503, b"not live\n")
    monkeypatch.undo()
    status.stream_loop()
    assert status.live
    monkeypatch.setattr("tailrace.producer.ops.status.LOOP_TIMEOUT_S", 0.0)
    status.failed(SourceUnavailableError("lost"))
    assert status.live


def test_port_0_opens_nothing() -> None:
    with open_http_port(Status(), address="nowhere.invalid", port=0):
        pass


def test_port_in_use_is_reported() -> None:
    """With the name of the property."""
    rejected = pytest.raises(PortInUseError, match=r"(?s)tailrace\.http\.port: port \d+ .* cannot be .*hint: end what")
    with serve(Status()) as taken, rejected, open_http_port(Status(), address="127.0.0.1", port=taken.port):
        pass
