"""Notifier: sends notifications to the channels that are on; into the topic within the log's Kafka transaction.

So a notification is there exactly if what it tells is, also across a crash.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import replace

import structlog

from tailrace.producer.notifications.notification import AggregateType, Notification, NotificationType
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.producer.streaming.stream_transaction import StreamTransaction

log = structlog.get_logger(__name__)


class NotificationService:
    """Used by the log reader's thread. ``topic`` None: the channel ``sink`` is off."""

    def __init__(
        self,
        transaction: StreamTransaction,
        *,
        topic: TopicConverter | None,
        to_log: bool,
    ) -> None:
        self._transaction = transaction
        self._topic = topic
        self._to_log = to_log

    def send(
        self, aggregate: AggregateType, kind: NotificationType, data: dict[str, str] | None = None, *, about: str = ""
    ) -> None:
        """Tell one thing; ``about`` is the signal it follows from, whose id it then bears."""
        if self._topic is None and not self._to_log:
            return
        note = replace(Notification(aggregate, kind, data or {}), id=about or str(uuid.uuid4()))
        value = note.value(self._transaction.prefix, time.time_ns() // 1_000_000)
        if self._topic is not None:
            key, body = self._topic.record(note.key(), value)
            self._transaction.send(self._topic.name, key, body)
        if self._to_log:
            log.info("notification", **{name: part for name, part in value.items() if name != "timestamp"})
