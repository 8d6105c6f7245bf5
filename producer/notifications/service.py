"""Sends notifications to the configured channels. Records go into the stream's open Kafka transaction.

So a notification is visible exactly if what it reports was committed, also after a crash.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Mapping

import structlog

from tailrace.producer.notifications.notification import AggregateType, Notification, NotificationType
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.producer.streaming.stream_transaction import StreamTransaction

log = structlog.get_logger(__name__)


class NotificationService:
    """Sends notifications; used on the stream's thread."""

    def __init__(self, transaction: StreamTransaction, *, topic: TopicConverter | None, to_log: bool) -> None:
        """``topic`` None: the channel ``sink`` is off."""
        self._transaction = transaction
        self._topic = topic
        self._to_log = to_log

    def send(
        self,
        aggregate_type: AggregateType,
        notification_type: NotificationType,
        data: Mapping[str, str] | None = None,
        *,
        correlation_id: str = "",
    ) -> None:
        """Send one notification; its id is that of the signal that caused it, or a new one."""
        if self._topic is None and not self._to_log:
            return
        notification = Notification(aggregate_type, notification_type, data or {}, correlation_id or str(uuid.uuid4()))
        value = notification.value(self._transaction.prefix, time.time_ns() // 1_000_000)
        if self._topic is not None:
            key, body = self._topic.record(notification.key(), value)
            self._transaction.tell(self._topic.name, key, body, notification=f"{aggregate_type} {notification_type}")
        if self._to_log:
            log.info("notification", **{name: content for name, content in value.items() if name != "timestamp"})
