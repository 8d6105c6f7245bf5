"""What both halves share: the report of errors, the text of errors, the HTTP endpoints."""

from __future__ import annotations

import json
import socket
import struct
from contextlib import ExitStack, closing
from http.client import HTTPConnection

import pytest
from prometheus_client import CollectorRegistry, Counter

from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.runtime.http import Endpoints, HttpServer


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
    ("error", "text"),
    [
        (TailraceError("wrong", hint="correct it"), "error: wrong\n  hint: correct it\n"),
        (PermissionError(13, "Permission denied", "/x"), "error: [Errno 13] Permission denied: '/x'\n"),
        (KeyError("k"), "error: KeyError: 'k'\n  hint: run with --debug and report the traceback\n"),
    ],
)
def test_errors_are_printed_and_end_with_code_1(
    error: Exception, text: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended, reporting_errors():
        raise error

    assert ended.value.code == 1
    assert capsys.readouterr() == ("", text)


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


def _server() -> HttpServer:
    return HttpServer(endpoints(), address="127.0.0.1", port=0, port_property="port")


def test_head_has_no_body() -> None:
    with _server() as server, closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as client:
        client.request("HEAD", "/livez")
        response = client.getresponse()

        assert (response.status, response.headers["Content-Length"], response.read()) == (200, "5", b"")


def test_idle_clients_are_bounded_and_disconnected(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each holds a thread, until it has sent nothing for a while."""
    monkeypatch.setattr("tailrace.runtime.http.CONNECTIONS", 4)
    monkeypatch.setattr("tailrace.runtime.http.TIMEOUT_S", 1.0)
    with _server() as server, ExitStack() as stack:
        idle = [stack.enter_context(socket.create_connection(("127.0.0.1", server.port))) for _ in range(4)]
        above = stack.enter_context(socket.create_connection(("127.0.0.1", server.port), timeout=10))

        assert above.recv(1) == b""
        for client in idle:
            client.settimeout(10)
            assert client.recv(1) == b""
        with closing(HTTPConnection("127.0.0.1", server.port, timeout=10)) as late:
            late.request("GET", "/livez")
            assert late.getresponse().status == 200


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
