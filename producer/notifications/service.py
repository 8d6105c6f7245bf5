"""Notifier: sends notifications to the channels that are on; into the topic within the log's Kafka transaction.

So a notification is there exactly if what it tells is, also across a crash.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Callable
from dataclasses import replace

import structlog

from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.notifications.notification import AggregateType, Notification, NotificationType
from tailrace.producer.serialization.record_converter import TopicConverter

log = structlog.get_logger(__name__)


class NotificationService:
    """Used by the log reader's thread. ``topic`` None: the channel ``sink`` is off."""

    def __init__(
        self,
        publisher: TransactionalProducer,
        *,
        prefix: str,
        topic: TopicConverter | None,
        finish_table: bool,
        open_transaction: Callable[[], None],
    ) -> None:
        self._publisher = publisher
        self._prefix = prefix
        self._topic = topic
        self._to_log = finish_table
        self._open_transaction = open_transaction

    def send(
        self, aggregate: AggregateType, kind: NotificationType, data: dict[str, str] | None = None, *, about: str = ""
    ) -> None:
        """Tell one thing; ``about`` is the signal it follows from, whose id it then bears."""
        if self._topic is None and not self._to_log:
            return
        note = replace(Notification(aggregate, kind, data or {}), id=about or str(uuid.uuid4()))
        value = note.value(self._prefix, time.time_ns() // 1_000_000)
        if self._topic is not None:
            self._open_transaction()
            key, body = self._topic.record(note.key(), value)
            self._publisher.send(self._topic.name, key, body)
        if self._to_log:
            log.info("notification", **{name: part for name, part in value.items() if name != "timestamp"})
