"""Heartbeats: a record at an interval in the stream's Kafka transaction, and a statement that runs at the source.

The statement (``heartbeat.action.query``) has its own thread and session, so a slow source does not delay the stream.
A failed statement is logged and runs again with the next heartbeat, as in Debezium.
"""

from __future__ import annotations

import threading
import time
from typing import Final

import structlog

from tailrace.producer.errors import SourceError
from tailrace.producer.model.protocols import CatalogSession
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.schemas.connect import ConnectField, ConnectSchema

log = structlog.get_logger(__name__)

HEARTBEAT_KEY: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.ServerNameKey",
    version=1,
    fields=(ConnectField.of("serverName", "string"),),
)
HEARTBEAT_VALUE: Final = ConnectSchema(
    "struct",
    name="io.debezium.connector.common.Heartbeat",
    version=1,
    fields=(ConnectField.of("ts_ms", "int64"),),
)


class Heartbeat:
    """The heartbeat's timer and record; used by the stream's thread."""

    def __init__(
        self, topic: TopicConverter, prefix: str, *, interval_s: float, action: HeartbeatAction | None = None
    ) -> None:
        self._topic = topic
        self._prefix = prefix
        self._interval_s = interval_s
        self._action = action
        self._next = time.monotonic() + interval_s

    @property
    def due(self) -> bool:
        return time.monotonic() >= self._next

    def next_record(self) -> tuple[str, bytes, bytes]:
        """Restart the interval, request the statement, and return the record: topic, key, value."""
        now_ms = time.time_ns() // 1_000_000  # before the interval: times of two records are not nearer than it
        self._next = time.monotonic() + self._interval_s
        key, value = self._topic.record({"serverName": self._prefix}, {"ts_ms": now_ms})
        if self._action is not None:
            self._action.request()
        return self._topic.name, key, value


class HeartbeatAction:
    """Runs a statement on request, one run at a time; requests during a run lead to one more run."""

    def __init__(self, session: CatalogSession, sql: str) -> None:
        self._session = session
        self._sql = sql
        self._requested = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat-action", daemon=True)
        self._thread.start()

    def request(self) -> None:
        self._requested.set()

    def close(self) -> None:
        """End the thread; a running statement is interrupted by closing its session."""
        self._closing = True
        self._requested.set()
        self._thread.join(timeout=1)
        self._session.close()

    def _run(self) -> None:
        while True:
            self._requested.wait()
            self._requested.clear()
            if self._closing:
                return
            try:
                self._session.execute(self._sql)
            except SourceError as error:
                if not self._closing:
                    log.warning("heartbeat.action.query failed", error=error)
