"""Wires signal channels, the signal processor and notifications from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple
from uuid import uuid4

import orjson

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.app.resume import ResumePoint
from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.client import ClientConfig, KafkaSettings, write_outside_transaction
from tailrace.producer.kafka.state_store import State
from tailrace.producer.kafka.topics import Topics, TopicSpec
from tailrace.producer.model.protocols import Source
from tailrace.producer.notifications.notification import (
    NOTIFICATION_KEY,
    NOTIFICATION_VALUE,
    AggregateType,
    NotificationService,
    NotificationType,
)
from tailrace.producer.serialization.envelope.topic_names import signal_topic
from tailrace.producer.serialization.record_converter import RecordConverter
from tailrace.producer.signals.channels import (
    AdvanceOffsets,
    Channel,
    Channels,
    FileChannel,
    KafkaChannel,
    Signals,
    SourceSignalChannel,
)
from tailrace.producer.signals.moves import Moves
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.queue import IncrementalSnapshotQueue
from tailrace.producer.streaming.context import SignalTable
from tailrace.producer.streaming.mailbox import Mailbox
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.runtime.errors import ConfigError, Retryable, TailraceError


class PositionMovedError(TailraceError, Retryable):
    """The next session begins at another place of the log."""


def signal_settings(config: ProducerConfig) -> KafkaSettings:
    """Return the connection of the kafka channel: the common settings, overridden by those of signal.consumer.*."""
    base, signals = kafka_settings(config), config.signals
    consumer = {name: value.get_secret_value() for name, value in signals.consumer.items()}
    servers = consumer.pop("bootstrap.servers", None) or signals.kafka_servers or base.bootstrap_servers
    overrides = {**base.overrides, **consumer, "bootstrap.servers": servers}
    return replace(base, bootstrap_servers=servers, overrides=overrides)


def signal_consumer(config: ProducerConfig) -> ClientConfig:
    """Return the consumer settings of the kafka channel: signal.consumer.*, except those that the channel relies on."""
    consumer = {name: value.get_secret_value() for name, value in config.signals.consumer.items()}
    defaults = signal_settings(config).consumer()
    own = {"group.id": config.signals.kafka_group, "auto.offset.reset": "earliest"}
    fixed = {name: defaults[name] for name in ("bootstrap.servers", "enable.auto.commit", "enable.partition.eof")}
    return {**defaults, **consumer, **fixed, **own}


def ensure_signal_topics(config: ProducerConfig, topics: Topics) -> None:
    notifications, signals, replicas = config.notifications, config.signals, config.topics.replication_factor
    if "sink" in notifications.channels and notifications.topic is not None:
        topics.ensure([TopicSpec(notifications.topic, replication_factor=replicas)])
    if "kafka" in signals.channels:
        Topics(signal_settings(config)).ensure([TopicSpec(signal_topic(config), replication_factor=replicas)])


class SentSignal(NamedTuple):
    """A signal in the topic."""

    id: str
    topic: str
    offset: int


def require_signal_topic(config: ProducerConfig) -> None:
    """Raise ConfigError if the producer does not read a topic of signals."""
    if "kafka" not in config.signals.channels:
        raise ConfigError(
            ["the command sends a signal to a topic: set signal.enabled.channels=kafka, and restart the producer"]
        )


def send_signal(config: ProducerConfig, signal_type: str, data: Mapping[str, Any]) -> SentSignal:
    """Send a signal to the topic of the channel kafka, which ``require_signal_topic`` has found."""
    signal_id, topic = f"tailrace-{uuid4()}", signal_topic(config)
    body = orjson.dumps({"id": signal_id, "type": signal_type, "data": data})
    key, operation = config.topics.prefix.encode(), f"sending a signal to {topic}"
    offset = write_outside_transaction(signal_settings(config), topic, key, body, operation)
    return SentSignal(signal_id, topic, offset)


class SignalService:
    """The signal processor, the channels that it reads, and the notifications that it sends."""

    def __init__(
        self,
        config: ProducerConfig,
        state: State,
        transaction: StreamTransaction,
        registry: SplitRegistry,
        mailbox: Mailbox,
        *,
        source: Source,
        moves: Moves,
    ) -> None:
        """``state`` is the one that was restored at startup."""
        self._config = config
        self._transaction = transaction
        self._source = source
        self.processor = SignalProcessor(
            IncrementalSnapshotQueue.from_state(state),
            registry,
            transaction,
            notification_service(config, transaction),
            config.filters.tables,
            condition_problem=source.condition_problem,
            moves=moves,
        )
        self._channels: Channels | None = None
        openers = list(self._openers())
        if openers:
            interval_s = config.signals.poll_interval_ms / 1000
            self._channels = Channels(openers, mailbox.submit, self._process, interval_s=interval_s)

    def table(self) -> SignalTable | None:
        table = self._config.signals.table
        if table is None:
            return None
        channel = SourceSignalChannel(self._source.stored_name(table))
        return SignalTable(channel.id, partial(self.processor.process_row, channel))

    def _openers(self) -> Iterator[Callable[[], Channel]]:
        config, signals, offsets = self._config, self._config.signals, self.processor.offsets
        if "kafka" in signals.channels:
            yield partial(
                KafkaChannel,
                signal_consumer(config),
                topic=signal_topic(config),
                prefix=config.topics.prefix,
                last_offset=offsets.kafka,
                wait_s=signals.kafka_wait_ms / 1000,
            )
        if "file" in signals.channels:
            yield partial(FileChannel, Path(signals.file), last_digest=offsets.file)

    def _process(self, signals: Signals, advance: AdvanceOffsets) -> None:
        self.processor.process(signals, advance(self.processor.offsets))
        self._transaction.commit()
        if self.processor.moved:
            raise PositionMovedError("a signal has set the position of the stream")

    def start(self) -> None:
        if self._channels is not None:
            self._channels.start()

    def close(self) -> None:
        if self._channels is not None:
            self._channels.close()


def tell_jump(config: ProducerConfig, transaction: StreamTransaction, state: State, resume: ResumePoint) -> None:
    """Notify that the stream begins at another place, in the Kafka transaction of the offset there."""
    assert state.offset is not None, "a first start does not jump"
    data = {
        "position_from": orjson.dumps(state.offset.position.to_json()).decode(),
        "position_to": orjson.dumps(resume.offset.position.to_json()).decode(),
    }
    kind = NotificationType.MOVED
    if resume.lost:
        kind = NotificationType.LOST
        data |= {"reason": resume.lost, "tables_are_read": str(resume.reads).lower()}
    notification_service(config, transaction).send(AggregateType.BINLOG, kind, data)


def notification_service(config: ProducerConfig, transaction: StreamTransaction) -> NotificationService:
    channels, name = config.notifications.channels, config.notifications.topic
    topic = (
        RecordConverter(config.converters).topic(name, NOTIFICATION_KEY, NOTIFICATION_VALUE)
        if "sink" in channels and name is not None
        else None
    )
    return NotificationService(transaction, topic=topic, to_log="log" in channels)
