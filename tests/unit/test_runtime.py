"""What both halves share: the report of errors, the text of errors, the HTTP endpoints."""

from __future__ import annotations

import json
import socket
import struct
import time
from contextlib import ExitStack, closing, suppress
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, Counter

from tailrace.producer.errors import BinlogError, PrerequisiteError, SourceUnavailableError
from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError, KafkaUnavailableError, NoAnswerError, SchemaError, TailraceError
from tailrace.runtime.exit_code import ExitCode
from tailrace.runtime.http import Endpoints, HttpServer
from tailrace.spark_consumer.errors import TargetUnavailableError
from tests.docs.pages import table


def test_text_of_an_error_has_context_and_hint() -> None:
    error = TailraceError("the server rejected a query", hint="grant SELECT", code=1142)

    assert str(error) == "the server rejected a query\n  code: 1142\n  hint: grant SELECT"


@pytest.mark.parametrize(
    ("problems", "text"),
    [(["a"], "1 configuration problem:\n- a"), (["a", "b"], "2 configuration problems:\n- a\n- b")],
)
def test_text_of_several_problems(problems: list[str], text: str) -> None:
    assert str(ConfigError(problems)) == text


@pytest.mark.parametrize(
    ("error", "text", "code"),
    [
        (TailraceError("wrong", hint="correct it"), "error: wrong\n  hint: correct it\n", 1),
        (PermissionError(13, "Permission denied", "/x"), "error: [Errno 13] Permission denied: '/x'\n", 1),
        (KeyError("k"), "error: KeyError: 'k'\n  hint: run with --debug and report the traceback\n", 1),
        (ConfigError(["x: wrong"]), "error: 1 configuration problem:\n- x: wrong\n", 78),
        (PrerequisiteError(["SET x"]), "error: 1 prerequisite is not met:\n- SET x\n", 78),
        (NoAnswerError("silent"), "error: silent\n", 69),
        (SourceUnavailableError("gone"), "error: gone\n", 75),
        (KafkaUnavailableError("gone"), "error: gone\n", 75),
        (TargetUnavailableError("gone"), "error: gone\n", 75),
        (ConnectionRefusedError(111, "Connection refused"), "error: [Errno 111] Connection refused\n", 75),
        (BinlogError("purged"), "error: purged\n", 1),
    ],
)
def test_errors_are_printed_and_end_with_their_code(
    error: Exception, text: str, code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, reporting_errors():
        raise error

    assert ended.value.code == code
    assert capsys.readouterr() == ("", text)


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (
            SchemaError("column a\x1b[2J\n  hint: run x of s.t", hint="correct\nthe row", value="1\n  hint: run y\x9b"),
            (
                "error: column a\\x1b[2J\\n  hint: run x of s.t\n  value: 1\n      hint: run y\\x9b\n"
                "  hint: correct\n    the row\n"
            ),
        ),
        (
            ConfigError(["table.a: b\x1b]0;c\x07\n- d", "line 1\n    SELECT\n      ^"]),
            "error: 2 configuration problems:\n- table.a: b\\x1b]0;c\\x07\n    - d\n- line 1\n    SELECT\n      ^\n",
        ),
        (FileNotFoundError(2, "No such file", "a\nb"), "error: [Errno 2] No such file: 'a\\nb'\n"),
    ],
)
def test_names_and_values_in_an_error_print_no_line_of_their_own(
    error: Exception, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit), reporting_errors():
        raise error

    assert capsys.readouterr().err == text


@pytest.mark.parametrize("error", [AssertionError, TimeoutError])
def test_an_error_without_a_text_is_named_by_its_statement(
    capsys: pytest.CaptureFixture[str], error: type[Exception]
) -> None:
    with pytest.raises(SystemExit), reporting_errors():
        raise error

    printed = capsys.readouterr().err
    assert f"error: {error.__name__}: raise error" in printed
    assert "test_runtime.py:" in printed


def test_the_codes_of_the_page_are_those_of_the_enum() -> None:
    page = Path(__file__).resolve().parents[2] / "docs" / "operations.md"

    assert [int(row[0]) for row in table(page, "### Exit codes")] == sorted(ExitCode)


def test_debug_raises_the_error() -> None:
    with pytest.raises(KeyError), reporting_errors(debug=True):
        raise KeyError("k")


def endpoints(*, live: bool = True, ready: bool = True) -> Endpoints:
    """Return endpoints with one metric."""
    registry = CollectorRegistry()
    Counter("rows", "Rows", registry=registry).inc(3)
    return Endpoints(status=lambda: {"rows": 3}, metrics=registry, is_live=lambda: live, is_ready=lambda: ready)


def test_status_is_json_and_metrics_are_text() -> None:
    assert json.loads(endpoints().response("/status").body) == {"rows": 3}
    assert b"rows_total 3.0" in endpoints().response("/metrics").body


@pytest.mark.parametrize(
    ("path", "good", "response"),
    [
        ("/livez", True, (200, b"live\n")),
        ("/livez", False, (503, b"not live\n")),
        ("/readyz", True, (200, b"ready\n")),
        ("/readyz", False, (503, b"not ready\n")),
        ("/other", True, (404, b"/status /metrics /livez /readyz\n")),
    ],
)
def test_probes(path: str, good: bool, response: tuple[int, bytes]) -> None:
    found = endpoints(live=good, ready=good).response(path)

    assert (found.status, found.body) == response


def _server(request_timeout_s: float = 10.0, found: Endpoints | None = None) -> HttpServer:
    return HttpServer(
        found or endpoints(), address="127.0.0.1", port=0, port_property="port", request_timeout_s=request_timeout_s
    )


def test_head_has_no_body() -> None:
    with _server() as server, closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as client:
        client.request("HEAD", "/livez")
        response = client.getresponse()

        assert (response.status, response.headers["Content-Length"], response.read()) == (200, "5", b"")


def test_slow_clients_keep_nobody_out_and_are_disconnected() -> None:
    """More than a few connections send a line from time to time: others are served, and a deadline ends them."""
    with _server(request_timeout_s=2.0) as server, ExitStack() as stack:
        slow = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(100)]
        ended: set[int] = set()
        until, turn = time.monotonic() + 60, 0
        while time.monotonic() < until:
            with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as other:
                other.request("GET", "/livez")
                assert other.getresponse().status == 200
            for number, client in enumerate(slow):
                client.settimeout(0.001)
                with suppress(TimeoutError):
                    try:
                        client.sendall(b"GET /livez HTTP/1.1\r\n" if turn == 0 else b"X-Slow: 1\r\n")
                        if client.recv(1) == b"":
                            ended.add(number)
                    except ConnectionError:
                        ended.add(number)
            if len(ended) == len(slow):
                return
            time.sleep(0.1)
            turn += 1
    raise AssertionError(f"only {len(ended)} of {len(slow)} slow clients were disconnected")


def test_client_that_does_not_read_is_disconnected() -> None:
    size = 64 << 20  # above what the kernel keeps for both ends
    large = replace(endpoints(), status=lambda: {"large": "x" * size})
    with _server(request_timeout_s=0.5, found=large) as server:
        with socket.create_connection(("127.0.0.1", server.port), timeout=120) as client:
            client.sendall(b"GET /status HTTP/1.1\r\nHost: localhost\r\n\r\n")
            client.recv(1, socket.MSG_PEEK)  # the response has begun
            time.sleep(3)  # the client is slow
            received = 0
            with suppress(ConnectionError):
                while found := client.recv(1 << 20):
                    received += len(found)
        assert received < size


@pytest.mark.parametrize(
    ("host", "status"),
    [("localhost", 200), ("127.0.0.1:80", 200), ("[::1]:80", 200), ("evil.example", 403), ("", 403)],
)
def test_a_name_of_another_host_is_refused_on_loopback(host: str, status: int) -> None:
    with _server() as server, closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as client:
        client.request("GET", "/status", headers={"Host": host})

        assert client.getresponse().status == status


def test_client_that_resets_its_connection_leaves_no_traceback(capfd: pytest.CaptureFixture[str]) -> None:
    with _server() as server:
        for _ in range(3):
            client = socket.create_connection(("127.0.0.1", server.port))
            client.sendall(b"GET /livez HTTP/1.1\r\n")
            client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            client.close()
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as last:
            last.request("GET", "/livez")
            last.getresponse().read()

    assert "Traceback" not in capfd.readouterr().err
