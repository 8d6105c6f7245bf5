"""/status and /metrics of the consumer: states, lag and rows of each table, and no series of tables that are gone."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from prometheus_client import generate_latest

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.monitor.metrics import TABLE_STATES
from tailrace.spark_consumer.monitor.status import Status
from tailrace.spark_consumer.monitor.table_result import SnapshotStatus, TableResult
from tailrace.spark_consumer.query import ProgressListener

OLD_MS = 1_700_000_000_000


def metrics(status: Status) -> dict[str, float]:
    """Return the samples of /metrics."""
    lines = generate_latest(status.registry).decode().splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def tables(status: Status) -> dict[str, Any]:
    """Return the tables of /status, through JSON."""
    found: dict[str, Any] = json.loads(json.dumps(status.as_dict()))["tables"]
    return found


def status_of_four() -> Status:
    """Return a status with a table in each state that a batch gives."""
    status = Status("q", "delta")
    status.batch_started(7, dict.fromkeys(("complete", "loading", "streaming", "parked"), 10))
    rows = {"insert": 3, "update_after": 2, "delete": 1}
    status.table_applied("complete", TableResult(6, OLD_MS, SnapshotStatus("complete", 4, 4), rows))
    status.table_applied("complete", TableResult(1, OLD_MS - 5, SnapshotStatus("complete", 4, 4), {"insert": 1}))
    status.table_applied("loading", TableResult(5, OLD_MS, SnapshotStatus("loading", 1, 3, 2), {"insert": 5}))
    status.table_applied("streaming", TableResult(0, None, SnapshotStatus()))
    parked = {"reason": "no schema", "hint": "publish it", "starts": {"0": 1}, "parked_at": OLD_MS / 1000}
    status.positions({"parked": parked})
    status.batch_applied(7, 1.5)
    applied = {topic: {"0": 10} for topic in ("complete", "loading", "streaming", "parked")}
    status.progress(7, applied, {**applied, "loading": {"0": 14}}, {"addBatch": 1200})
    return status


def test_each_table_has_a_state_and_the_last_error_is_named() -> None:
    status = status_of_four()
    found = tables(status)

    assert {topic: table["state"] for topic, table in found.items()} == {
        name: name for name in ("complete", "loading", "streaming", "parked")
    }
    assert found["loading"]["splits"] == {"done": 1, "expected": 3, "incomplete": 2}
    assert found["parked"]["parked"]["reason"] == "no schema"
    parked = status.as_dict()["last_error"]
    assert parked == {"topic": "parked", "message": "no schema", "hint": "publish it", "ts_ms": OLD_MS}
    status.failed(SinkError("the query failed", hint="read the log", cause="sesame"))
    now = status.as_dict()
    assert (now["state"], now["last_error"]["class"], "sesame" in str(now)) == ("failed", "SinkError", False)
    assert found["complete"]["rows"] == {"insert": 4, "update_after": 2, "delete": 1}
    assert found["complete"]["newest_source_ms"] == OLD_MS


def test_lag_is_that_of_the_table_that_is_most_behind() -> None:
    """A busy table does not hide one that is behind, and a table that has read everything has no lag."""
    status = status_of_four()
    status.table_applied("complete", TableResult(1, int(time.time() * 1000), SnapshotStatus("complete", 4, 4)))
    found = tables(status)

    assert found["complete"]["lag_ms"] == 0
    assert found["loading"]["lag_ms"] > 10**10
    assert status.as_dict()["lag_ms"] >= found["loading"]["lag_ms"]
    status.batch_started(8, {"complete": 5})
    assert (tables(status)["complete"]["offsets_behind"], tables(status)["loading"]["offsets_behind"]) == (5, 4)


def test_lag_grows_while_kafka_is_silent() -> None:
    """0 needs a recent answer of Kafka; before anything is known there is no series."""
    status = Status("q", "delta")
    assert "tailrace_query_milli_seconds_behind_source" not in metrics(status)
    status.batch_started(0, {"t": 5})
    status.table_applied("t", TableResult(5, OLD_MS))
    status.batch_applied(0, 0.1)
    status.progress(0, {"t": {"0": 5}}, {"t": {"0": 5}}, {})
    assert tables(status)["t"]["lag_ms"] == 0

    status._answered_at -= 60  # as if Kafka had been silent since then
    assert status._tables["t"].through_at is not None
    status._tables["t"].through_at -= 60
    assert 60_000 <= tables(status)["t"]["lag_ms"] < 120_000
    assert metrics(status)["tailrace_query_milli_seconds_behind_source"] >= 60_000

    status.confirmed()
    assert tables(status)["t"]["lag_ms"] == 0


@pytest.mark.parametrize("ahead_ms", [0, 3_600_000])
def test_no_clock_hides_an_outage(monkeypatch: pytest.MonkeyPatch, ahead_ms: int) -> None:
    """Neither that of this host, which is set back, nor that of the source, which is ahead."""
    status = status_of_four()
    now_ms, now = int(time.time() * 1000), time.monotonic()
    status.table_applied("complete", TableResult(1, now_ms + ahead_ms))
    status.progress(8, {"complete": {"0": 5}}, {"complete": {"0": 99}}, {})
    monkeypatch.setattr(time, "time", lambda: now_ms / 1000 - 3600)
    monkeypatch.setattr(time, "monotonic", lambda: now + 120)

    assert 119_000 <= tables(status)["complete"]["lag_ms"] <= 121_000


def test_a_record_after_a_quiet_time_is_not_as_late_as_that_time() -> None:
    """The newest applied change is old, and everything was read until now."""
    status = status_of_four()
    status.batch_started(8, {"complete": 1})

    assert 0 <= tables(status)["complete"]["lag_ms"] < 60_000


def test_a_parked_table_is_behind_from_its_position_on() -> None:
    """Spark has planned its records, and they are not applied."""
    found = tables(status_of_four())["parked"]

    assert found["offsets_behind"] == 9
    assert found["lag_ms"] > 10**10


def test_a_table_that_is_taken_up_is_behind_until_its_position_is_at_the_end() -> None:
    """Spark has planned its records, and no batch removes the position while nothing arrives."""
    status = status_of_four()
    assert status._tables["complete"].through_at is not None
    status._tables["complete"].through_at -= 60  # as if it had been read to its end then
    for start, behind in ((1, 9), (7, 3), (10, 0)):
        status.positions({"complete": {"reason": None, "starts": {"0": start}}})
        status.confirmed()
        found = tables(status)["complete"]
        assert (found["offsets_behind"], found["state"], "parked" in found) == (behind, "complete", False)
        assert found["lag_ms"] >= 60_000 if behind else found["lag_ms"] == 0

    # Nothing of it was applied in this process.
    status.positions({"new": {"reason": None, "starts": {"0": 0}}})
    status._began_at -= 60  # as if it had begun then
    status.progress(8, {"new": {"0": 5}}, {"new": {"0": 5}}, {})
    assert tables(status)["new"]["offsets_behind"] == 5
    assert status.as_dict()["lag_ms"] >= 60_000


def test_metrics_of_each_table() -> None:
    found = metrics(status_of_four())

    assert found['tailrace_rows_total{kind="insert",topic="complete"}'] == 4
    assert found['tailrace_rows_total{kind="delete",topic="complete"}'] == 1
    assert found['tailrace_records_applied_total{topic="loading"}'] == 5
    assert found['tailrace_offsets_behind{topic="parked"}'] == 9
    assert found['tailrace_splits_complete{topic="loading"}'] == 1
    assert found['tailrace_splits_expected{topic="loading"}'] == 3
    assert found['tailrace_table_parked{sink="delta",topic="parked"}'] == 1
    assert found['tailrace_sink_tables{sink="delta",state="parked"}'] == 1
    assert found['tailrace_phase_seconds_total{phase="spark.addBatch"}'] == 1.2
    assert {state: found[f'tailrace_tables{{state="{state}"}}'] for state in TABLE_STATES} == {
        "waiting": 0,
        "streaming": 1,
        "loading": 1,
        "complete": 1,
        "parked": 1,
    }


def test_each_table_names_its_sink() -> None:
    status = status_of_four()
    status.sink_of = lambda topic: "lake" if topic in {"complete", "loading"} else "pg"
    found = metrics(status)

    assert {topic: table["sink"] for topic, table in tables(status).items()} == {
        "complete": "lake",
        "loading": "lake",
        "parked": "pg",
        "streaming": "pg",
    }
    assert found['tailrace_table_parked{sink="pg",topic="parked"}'] == 1
    assert found['tailrace_sink_tables{sink="lake",state="complete"}'] == 1


def test_series_of_a_deleted_topic_are_removed() -> None:
    status = status_of_four()
    status.progress(7, {}, {"complete": {"0": 0}}, {})

    assert sorted(tables(status)) == ["complete", "parked"]
    assert not [name for name in metrics(status) if "loading" in name and "state=" not in name]
    status.positions({})
    status.progress(7, {}, {"complete": {"0": 0}}, {})
    assert sorted(tables(status)) == ["complete"]


def test_listener_reports_only_its_query_and_each_report_once() -> None:
    status = Status("q", "delta")
    listener = ProgressListener(status, frozenset({"p.tailrace.watermarks"}))
    ends = {"p.d.t": {"0": 5}, "p.tailrace.watermarks": {"0": 2}}
    latest = {"p.d.t": {"0": 9}, "p.tailrace.watermarks": {"0": 3}}
    source = {"endOffset": ends, "latestOffset": latest}
    report = {
        "id": "a",
        "batchId": 3,
        "timestamp": "2026-01-01T00:00:00.000Z",
        "durationMs": {"addBatch": 500},
        "sources": [source],
    }

    listener.report(json.dumps(report))
    assert tables(status) == {}
    listener.follow("a")
    for _ in range(2):
        listener.report(json.dumps(report))
    assert {topic: table["offsets_behind"] for topic, table in tables(status).items()} == {"p.d.t": 4}
    assert status.phases.totals() == {"spark.addBatch": 0.5}
    listener.report(json.dumps({**report, "timestamp": "2026-01-01T00:00:01.000Z"}))
    assert status.phases.totals() == {"spark.addBatch": 1.0}


def test_phases_of_spark_belong_to_the_batch_that_they_are_of() -> None:
    """Spark reports a batch when it has ended: before the next one begins, or while that one runs."""
    status = Status("q", "delta")
    found: list[tuple[dict[str, float], dict[str, float], bool]] = []
    for number, early in enumerate((True, False, True)):
        status.batch_started(number, {})
        status.phases.add({"tables": number + 1.0})
        if number and not found[-1][2]:
            status.progress(number - 1, {}, {}, {"addBatch": 100 * number})
        found.append((status.phases.last(), status.phases.reported(), early))  # what the batch logs
        if early:
            status.progress(number, {}, {}, {"addBatch": 100 * (number + 1)})
            assert status.phases.last() == {"tables": number + 1.0, "spark.addBatch": (number + 1) / 10}

    assert [(phases, reported) for phases, reported, _ in found] == [
        ({"tables": 1.0}, {}),
        ({"tables": 2.0}, {"batch": 0, "addBatch": 0.1}),
        ({"tables": 3.0}, {"batch": 1, "addBatch": 0.2}),
    ]
    assert status.phases.totals() == pytest.approx({"tables": 6.0, "spark.addBatch": 0.6})
