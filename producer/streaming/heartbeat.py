"""Heartbeats: a record at an interval, in the log's Kafka transaction, and a statement run at the source beside it.

The statement (``heartbeat.action.query``) runs on a thread and a session of its own: a source that is slow to answer it
does not hold up the log. One that fails is told in the log and tried again at the next beat, as in Debezium.
"""

from __future__ import annotations

import threading
import time

import structlog

from tailrace.producer.errors import SourceError
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.mysql.reconnecting import ReconnectingSession
from tailrace.producer.serialization.envelope.heartbeat import heartbeat_key, heartbeat_value
from tailrace.producer.serialization.record_converter import TopicConverter

log = structlog.get_logger(__name__)


class Heartbeat:
    """When the next beat is due, and its record; used by the log reader's thread."""

    def __init__(
        self,
        publisher: TransactionalProducer,
        topic: TopicConverter,
        prefix: str,
        *,
        interval_s: float,
        action: HeartbeatAction | None = None,
    ) -> None:
        self._publisher = publisher
        self._topic = topic
        self._prefix = prefix
        self._interval_s = interval_s
        self._action = action
        self._next = time.monotonic() + interval_s

    @property
    def due(self) -> bool:
        """Tell whether the interval has passed."""
        return time.monotonic() >= self._next

    def beat(self) -> None:
        """Write the record into the open Kafka transaction, and have the statement run."""
        self._next = time.monotonic() + self._interval_s
        beat = heartbeat_value(time.time_ns() // 1_000_000)
        key, value = self._topic.record(heartbeat_key(self._prefix), beat)
        self._publisher.send(self._topic.name, key, value, partition=0)
        if self._action is not None:
            self._action.ask()


class HeartbeatAction:
    """Runs a statement whenever asked, one at a time; what is asked while one runs is one more run."""

    def __init__(self, session: ReconnectingSession, sql: str) -> None:
        self._session = session
        self._sql = sql
        self._asked = threading.Event()
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="heartbeat-action", daemon=True)
        self._thread.start()

    def ask(self) -> None:
        """Have the statement run soon."""
        self._asked.set()

    def close(self) -> None:
        """End the thread; a statement under way is cut off with its session."""
        self._closing = True
        self._asked.set()
        self._thread.join(timeout=1)
        self._session.close()

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            if self._closing:
                return
            try:
                self._session.query(self._sql)
            except SourceError as error:
                if not self._closing:
                    log.warning("heartbeat.action.query failed", error=str(error))
