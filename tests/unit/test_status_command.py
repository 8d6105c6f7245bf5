"""``tailrace status``: what it shows of a producer and of a query, and its exit codes."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry
from typer.testing import CliRunner

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.protocols import LogDistance
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.ops.metrics import endpoints
from tailrace.producer.ops.status import Status
from tailrace.runtime.cli import build
from tailrace.runtime.http import Endpoints, HttpServer
from tailrace.runtime.status_report import ProgramReport, TableReport, duration, lines_of
from tailrace.runtime.versions import program_version
from tailrace.spark_consumer.monitor.status import Status as QueryStatus
from tailrace.spark_consumer.monitor.table_result import SnapshotStatus, TableResult
from tests.embedded.supervised import free_port
from tests.unit.test_cli_producer import CONFIG


def streaming() -> Status:
    """Return the status of a producer that streams two tables."""
    status = Status("shop")
    status.connected("shop")
    for name in ("orders", "users"):
        status.table_mode(TableId("shop", name), TableMode.STREAMING)
    status.stream_rows(TableId("shop", "orders"), "c", 1234)
    status.stream_committed({"file": "bin.000002", "pos": 77, "gtids": "u:1-5"})
    status.stream_received(time.monotonic(), complete=True)
    return status


def query() -> QueryStatus:
    """Return the status of a query with one table."""
    status = QueryStatus("tailrace-shop", "delta")
    status.running()
    status.batch_started(7, {"shop.shop.orders": 10})
    status.table_applied("shop.shop.orders", TableResult(10, None, SnapshotStatus("complete", 4, 4), {"insert": 10}))
    status.batch_applied(7, 1.5)
    status.progress(7, {"shop.shop.orders": {"0": 10}}, {"shop.shop.orders": {"0": 10}}, {})
    return status


@contextmanager
def serving(status: Status | QueryStatus, folder: Path) -> Iterator[list[str]]:
    """Serve a status; yield the option that names a configuration with its address."""
    if isinstance(status, Status):
        served = endpoints(status)
    else:
        served = Endpoints(status.as_dict, status.registry, lambda: True, lambda: True)
    with HttpServer(served, address="127.0.0.1", port=0, port_property="port") as server:
        yield configured(status, folder, server.port)


def configured(status: Status | QueryStatus, folder: Path, port: int) -> list[str]:
    """Write a configuration with a port; return the option that names it."""
    if isinstance(status, Status):
        path = folder / "shop.json"
        path.write_text(json.dumps(CONFIG | {"tailrace.http.port": str(port)}), encoding="utf-8")
        return ["--config", str(path)]
    path = folder / "tables.properties"
    lines = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "topic.prefix": "shop",
        "checkpointLocation": "/c",
        "sink": "delta",
        "sink.path": "/t",
        "monitor.port": port,
    }
    path.write_text("".join(f"{name}={value}\n" for name, value in lines.items()), encoding="utf-8")
    return ["--consumer", str(path)]


def shown(*arguments: str) -> tuple[int, str]:
    """Return the exit code and the output of the command."""
    result = CliRunner().invoke(build(), ["status", *arguments])
    return result.exit_code, result.output


def test_both_programs_are_well(tmp_path: Path) -> None:
    with serving(streaming(), tmp_path) as producer, serving(query(), tmp_path) as consumer:
        code, text = shown(*producer, *consumer)

    assert code == 0, text
    lines = [" ".join(line.split()) for line in text.splitlines()]
    assert lines[0].startswith("producer shop at 127.0.0.1:")
    assert ": streaming, for " in lines[0]
    assert "position bin.000002:77, GTIDs u:1-5" in lines
    assert "until purge ?" in lines
    assert "shop.orders streaming 0 1,234" in lines
    assert any(line.startswith("consumer tailrace-shop at 127.0.0.1:") and line.endswith(": running") for line in lines)
    assert "shop.shop.orders complete 4/4 10 0 0.0 s" in lines


def test_a_table_in_error_is_first_with_reason_and_remedy(tmp_path: Path) -> None:
    """A name may have characters that control a terminal."""
    status = streaming()
    status.table_failed(TableId("shop", "z\033[2J"), "it has no key", {"file": "bin.000002", "pos": 5})
    with serving(status, tmp_path) as producer:
        code, text = shown(*producer)

    assert code == 3, text
    lines = [line.strip() for line in text.splitlines()]
    at = next(number for number, line in enumerate(lines) if line.startswith("shop.z\\x1b[2J"))
    assert lines[at - 1].startswith("TABLE")
    assert lines[at + 1] == "reason: it has no key (first change: file bin.000002, pos 5)"
    assert lines[at + 2].startswith("remedy: remove the cause")
    assert "\033" not in text


def test_a_parked_table_has_the_remedy_of_its_error(tmp_path: Path) -> None:
    status = query()
    parked: dict[str, Any] = {
        "reason": "no table schema is published",
        "hint": "start the producer",
        "details": {"schema": "3"},
        "starts": {"0": 4},
        "parked_at": time.time(),
    }
    status.positions({"shop.shop.bad": parked})
    with serving(status, tmp_path) as consumer:
        code, text = shown(*consumer)

    assert code == 3, text
    assert "reason: no table schema is published; schema: 3; it goes on at partition 0: 4" in text
    assert "remedy: start the producer" in text


def test_a_program_that_does_not_answer_is_named_with_its_address(tmp_path: Path) -> None:
    """The other one is shown."""
    port = free_port()
    with serving(query(), tmp_path) as consumer:
        code, text = shown(*configured(streaming(), tmp_path, port), *consumer)

    assert code == 69, text
    assert f"producer shop at 127.0.0.1:{port}: does not answer: [Errno 111] Connection refused" in text
    assert "shop.shop.orders" in text


def test_a_session_that_has_ended_is_not_well(tmp_path: Path) -> None:
    status = streaming()
    status.disconnected()
    status.failed(SourceUnavailableError("the source is silent", hint="start it"))
    with serving(status, tmp_path) as producer:
        code, text = shown(*producer)

    assert code == 3, text
    assert "starting, not connected" in text
    assert re.search(r"last error +\S+ s ago: the source is silent; start it\n", text)


def test_another_program_at_the_address_does_not_count(tmp_path: Path) -> None:
    with serving(Status("other"), tmp_path) as producer, serving(query(), tmp_path) as consumer:
        code, text = shown(*producer, *consumer)
        assert code == 69
        assert "does not answer: another producer answers: other, not shop" in text
        port = int((tmp_path / "tables.properties").read_text().rpartition("=")[2])
        assert "what answers is no producer (HTTP 200)" in shown(*configured(Status("shop"), tmp_path, port))[1]


def test_json_is_one_line_with_what_the_programs_answer(tmp_path: Path) -> None:
    port = free_port()
    with serving(streaming(), tmp_path) as producer:
        code, text = shown(*producer, *configured(query(), tmp_path, port), "--json")

    assert code == 69
    [line] = text.splitlines()
    found = json.loads(line)
    assert found["producer"]["well"] is True
    assert found["producer"]["status"]["stream"]["file"] == "bin.000002"
    assert found["producer"]["status"]["version"] == program_version()
    assert found["consumer"]["status"] is None
    assert found["consumer"]["address"] == f"127.0.0.1:{port}"
    assert "refused" in found["consumer"]["problem"]


@pytest.mark.parametrize("status", [streaming(), query()], ids=["producer", "consumer"])
def test_a_program_without_a_port_is_refused_with_the_property(status: Status | QueryStatus, tmp_path: Path) -> None:
    _, text = shown(*configured(status, tmp_path, 0))

    assert f"{'tailrace.http' if isinstance(status, Status) else 'monitor'}.port is 0" in text


def test_no_configuration_is_refused() -> None:
    code, text = shown()

    assert code != 0
    assert "--config of the producer, --consumer of the consumer" in text


def test_a_terminal_gets_as_many_tables_as_it_has_room_for_and_all_in_error() -> None:
    tables = [TableReport((f"t{number}", "streaming")) for number in range(1000)]
    tables += [TableReport((f"e{number}", "error"), faulty=True, reason="r", remedy="m") for number in range(5)]
    report = ProgramReport("streaming", is_ready=True, facts={"a": "b"}, headings=("TABLE", "STATE"), tables=tables)

    assert len(list(lines_of(report, None))) == 2 + 1000 + 15
    lines = list(lines_of(report, 20))
    assert len(lines) == 20
    assert [line.split()[0] for line in lines if line.endswith("error")] == ["e0", "e1", "e2", "e3", "e4", "…"]
    assert lines[-1] == "  … and 998 more, none of them in error"
    assert sum(line.endswith("  error") for line in lines_of(report, 5)) == 5


def families(registry: CollectorRegistry) -> dict[str, tuple[str, str, set[str]]]:
    """Return type, description and labels of the metrics of a program by name."""
    return {
        each.name: (each.type, each.documentation, {label for sample in each.samples for label in sample.labels})
        for each in registry.collect()
    }


def test_a_metric_means_the_same_in_both_programs_and_is_documented() -> None:
    page = (Path(__file__).resolve().parents[2] / "docs" / "operations.md").read_text(encoding="utf-8")
    status = streaming()
    status.stream_transaction(ts_us=1)
    status.log_measured(LogDistance(0, 0, 0, 60.0, None, None), valid_s=60.0)
    status.failed(SourceUnavailableError("gone"))
    producer, consumer = families(endpoints(status).metrics), families(query().registry)

    assert {name: producer[name] for name in producer.keys() & consumer.keys()} == {
        name: consumer[name] for name in producer.keys() & consumer.keys()
    }
    assert producer["tailrace_build"][2] == {"program", "version"}
    assert "tailrace_purge_left_seconds" in producer
    own = {name.replace("_build", "_build_info") for name in {**producer, **consumer}}
    documented = set(re.findall(r"`((?:cdc|tailrace)_[a-z_]+)`", page))
    assert documented == {name for name in own if name.startswith(("cdc_", "tailrace_"))}


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, "?"),
        (0, "0.0 s"),
        (119, "119 s"),
        (120, "2.0 min"),
        (7200, "2.0 h"),
        (604_800, "7.0 d"),
        (9e7, "1,042 d"),
    ],
)
def test_durations(seconds: float | None, text: str) -> None:
    assert duration(seconds) == text
