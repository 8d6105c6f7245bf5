"""The webhook: what it posts, how often it tries, and that nothing waits for it."""

from __future__ import annotations

import time

import pytest
from structlog.testing import capture_logs

from tailrace.runtime import webhook
from tailrace.runtime.webhook import Webhook, WebhookEvent
from tests.embedded.supervised import free_port, wait_until
from tests.support.webhook_server import WebhookServer

EVENT = WebhookEvent(
    "shop", "TableInError", "shop.a<b", "no key", "run tailrace snapshot", {"file": "bin.000003", "pos": "5"}, ts_ms=7
)


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait little between the attempts."""
    monkeypatch.setattr(webhook, "_WAITS_S", (0.01, 0.01, 0.01))


def posted(server: WebhookServer, hook: Webhook, count: int) -> None:
    """Wait until so many events were taken or given up."""
    wait_until(lambda: sum(hook.as_status().values()) == count, what=f"{count} events", deadline_s=60)


def test_an_event_as_json_and_as_the_text_of_slack() -> None:
    with WebhookServer() as server:
        with Webhook(server.url) as hook:
            hook.post(EVENT)
            posted(server, hook, 1)
        with Webhook(server.url, "slack") as hook:
            hook.post(EVENT)
            hook.post(WebhookEvent("shop", "Incremental Snapshot STARTED"))
            posted(server, hook, 2)

    assert server.bodies == [
        {
            "server": "shop",
            "class": "TableInError",
            "table": "shop.a<b",
            "reason": "no key",
            "remedy": "run tailrace snapshot",
            "details": {"file": "bin.000003", "pos": "5"},
            "ts_ms": 7,
        },
        {
            "text": "shop: TableInError of shop.a&lt;b\nno key\nfile: bin.000003, pos: 5\n"
            "remedy: run tailrace snapshot",
        },
        {"text": "shop: Incremental Snapshot STARTED"},
    ]


@pytest.mark.parametrize(
    ("codes", "attempts", "found"),
    [
        ([500, 429], 3, {"delivered": 1, "failed": 0}),
        ([503, 503, 503, 503], 4, {"delivered": 0, "failed": 1}),
        ([404], 1, {"delivered": 0, "failed": 1}),
        ([302], 1, {"delivered": 0, "failed": 1}),
    ],
)
def test_an_event_is_tried_a_few_times(codes: list[int], attempts: int, found: dict[str, int]) -> None:
    """Not if the answer says that it is no use; a redirect is not followed."""
    with capture_logs() as logs, WebhookServer(codes) as server, Webhook(server.url) as hook:
        hook.post(EVENT)
        posted(server, hook, 1)

        assert len(server.bodies) == attempts
        assert hook.as_status() == found
    assert len([entry for entry in logs if entry["event"] == "not delivered to the webhook"]) == found["failed"]
    assert "sesame" not in str(logs)


def test_a_server_that_does_not_exist_is_given_up_without_its_url() -> None:
    with capture_logs() as logs, Webhook(f"http://127.0.0.1:{free_port()}/sesame") as hook:
        hook.post(EVENT)
        wait_until(lambda: hook.as_status()["failed"] == 1, what="the end of the attempts", deadline_s=60)

    assert "Connection refused" in str(logs)
    assert "sesame" not in str(logs)


def test_nothing_waits_for_a_server_that_hangs() -> None:
    """Neither who posts, nor the end of the process; what does not fit is lost, and counted."""
    with capture_logs() as logs, WebhookServer(held=True) as server:
        with Webhook(server.url) as hook:
            began = time.monotonic()
            for _ in range(150):
                hook.post(EVENT)
            assert time.monotonic() - began < 5
            assert 40 <= hook.as_status()["failed"] <= 50
            began = time.monotonic()
        assert time.monotonic() - began < 6
        assert logs[-1]["event"] == "not delivered to the webhook before the end"
        hook._thread.join(60)
        assert not hook._thread.is_alive()


def test_without_a_url_nothing_is_posted() -> None:
    with Webhook() as hook:
        hook.post(EVENT)
        assert hook.as_status() == {"delivered": 0, "failed": 0}
