"""Posts to a URL what a person is to know. Nothing waits for it: a thread posts, and gives up after a time."""

from __future__ import annotations

import json
import queue
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from http.client import HTTPException
from types import TracebackType
from typing import Any, Final, Literal
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, Request, build_opener

import structlog

log = structlog.get_logger(__name__)

WebhookFormat = Literal["json", "slack"]

_TIMEOUT_S: Final = 5.0
_WAITS_S: Final = (1.0, 4.0, 15.0)
"""Between the attempts for one event."""
_MOST_WAITING: Final = 100
_CLOSE_S: Final = 3.0
"""How long the end of a process may wait: supervisors kill it after ten seconds."""
_SHOWN: Final = 2_000
"""Characters of details in a text."""
_MAY_PASS: Final = frozenset({408, 425, 429})
"""Answers of the class 4xx that another attempt may not get."""


@dataclass(frozen=True, slots=True)
class WebhookEvent:
    """What is posted. No value of a row is in it."""

    server: str
    kind: str
    """Its class, such as ``TableInError``."""
    table: str = ""
    reason: str = ""
    remedy: str = ""
    details: Mapping[str, str] = field(default_factory=dict)
    ts_ms: int = field(default_factory=lambda: time.time_ns() // 1_000_000)

    def body(self, form: WebhookFormat) -> bytes:
        """Return the JSON of a request."""
        if form == "slack":
            return json.dumps({"text": self._text()}).encode()
        named: dict[str, Any] = {"server": self.server, "class": self.kind, "table": self.table}
        found = {"reason": self.reason, "remedy": self.remedy, "details": dict(self.details), "ts_ms": self.ts_ms}
        return json.dumps(named | found).encode()

    def _text(self) -> str:
        first = f"{self.server}: {self.kind}" + (f" of {self.table}" if self.table else "")
        details = ", ".join(f"{name}: {value}" for name, value in self.details.items())
        lines = (first, self.reason, details[:_SHOWN], self.remedy and f"remedy: {self.remedy}")
        text = "\n".join(filter(None, lines))
        # Slack would read mentions and links.
        return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")


class _NoRedirects(HTTPRedirectHandler):
    """Raises HTTPError in place of following one: the address is a secret, and a POST would become a GET."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request."""


class Webhook:
    """Posts events in order until it is closed; without a URL it takes them and does nothing. Any thread may use it."""

    def __init__(self, url: str = "", form: WebhookFormat = "json") -> None:
        self._url, self._form = url, form
        self._lock = threading.Lock()
        self._delivered = self._failed = 0
        self._waiting: queue.SimpleQueue[WebhookEvent | None] = queue.SimpleQueue()
        self._closing = threading.Event()
        self._opener = build_opener(_NoRedirects)
        self._thread = threading.Thread(target=self._run, name="webhook", daemon=True)
        if url:
            self._thread.start()

    def post(self, event: WebhookEvent) -> None:
        """Post an event soon; drop it if too many wait."""
        if not self._url:
            return
        if self._waiting.qsize() >= _MOST_WAITING:
            self._fail(event, f"{_MOST_WAITING} others wait")
        else:
            self._waiting.put(event)

    def as_status(self) -> dict[str, int]:
        """Return the numbers of delivered and of lost events."""
        return {"delivered": self._delivered, "failed": self._failed}

    def __enter__(self) -> Webhook:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Try each event that waits once more, within a few seconds; the others are lost."""
        if not self._url:
            return
        self._closing.set()
        self._waiting.put(None)
        self._thread.join(_CLOSE_S)
        lost = 0
        with suppress(queue.Empty):
            while self._waiting.get_nowait() is not None:
                lost += 1
        self._waiting.put(None)
        if lost:
            log.warning("not delivered to the webhook before the end", events=lost)

    def _run(self) -> None:
        while (event := self._waiting.get()) is not None:
            problem = self._deliver(event)
            if problem:
                self._fail(event, problem)
            else:
                self._delivered += 1

    def _fail(self, event: WebhookEvent, problem: str) -> None:
        with self._lock:
            self._failed += 1
        log.warning("not delivered to the webhook", event_class=event.kind, table=event.table, reason=problem)

    def _deliver(self, event: WebhookEvent) -> str:
        """Return why the event could not be posted, '' if it was. Neither says what the URL is."""
        problem = ""
        for wait_s in (*_WAITS_S, 0.0):
            headers = {"Content-Type": "application/json", "User-Agent": "tailrace"}
            request = Request(self._url, event.body(self._form), headers)  # noqa: S310 - http and https only
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S):
                    return ""
            except HTTPError as error:
                error.close()
                problem = f"HTTP {error.code}"
                if error.code < 500 and error.code not in _MAY_PASS:
                    break
            except OSError as error:
                problem = str(getattr(error, "reason", error)) or type(error).__name__
            except HTTPException as error:
                problem = type(error).__name__  # its text may quote the URL
            if self._closing.wait(wait_s):
                break
        return problem
