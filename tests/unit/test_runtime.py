"""What both halves share: the report of errors, the text of errors, the HTTP endpoints."""

from __future__ import annotations

import json

import pytest
from prometheus_client import CollectorRegistry, Counter

from tailrace.runtime.error_report import reporting_errors
from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.runtime.http import Endpoints


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
