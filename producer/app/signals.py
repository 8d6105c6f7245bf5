"""What people ask of a capture and are told by it: desk, channels and notifier, built from the configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from pathlib import Path

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.config import ProducerConfig
from tailrace.producer.kafka.client import ClientConfig, KafkaSettings
from tailrace.producer.kafka.state_store import State
from tailrace.producer.kafka.topics import Topics, TopicSpec
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.notifications.notification import NOTIFICATION_KEY, NOTIFICATION_VALUE
from tailrace.producer.notifications.service import NotificationService
from tailrace.producer.serialization.record_converter import RecordConverter
from tailrace.producer.signals.channels import Channel, Channels, FileChannel, Found, KafkaChannel
from tailrace.producer.signals.processor import SignalProcessor
from tailrace.producer.signals.queue import ChannelOffsets, IncrementalSnapshotQueue
from tailrace.producer.signals.source_channel import SourceSignalChannel
from tailrace.producer.snapshot.split_registry import SplitRegistry
from tailrace.producer.streaming.binlog_reader import BinlogReader


def signal_topic(config: ProducerConfig) -> str:
    """Return the topic of the channel kafka."""
    return config.signals.kafka_topic or f"{config.topics.prefix}-signal"


def signal_settings(config: ProducerConfig) -> KafkaSettings:
    """Return how to reach the topic of the channel kafka: as everything else, but for what is set for it alone."""
    base, signals = kafka_settings(config), config.signals
    own = {name: value.get_secret_value() for name, value in signals.consumer.items()}
    servers = own.pop("bootstrap.servers", None) or signals.kafka_servers or base.bootstrap_servers
    overrides = {**base.overrides, **own, "bootstrap.servers": servers}
    return replace(base, bootstrap_servers=servers, overrides=overrides)


def signal_consumer(config: ProducerConfig) -> ClientConfig:
    """Return the consumer of that topic: all of signal.consumer.*, but for what the way it is read depends on."""
    own = {name: value.get_secret_value() for name, value in config.signals.consumer.items()}
    reader = signal_settings(config).reader()
    kept = {"group.id": config.signals.kafka_group, "auto.offset.reset": "earliest"}
    fixed = {name: reader[name] for name in ("bootstrap.servers", "enable.auto.commit", "enable.partition.eof")}
    return {**reader, **own, **fixed, **kept}


def ensure_signal_topics(config: ProducerConfig, topics: Topics) -> None:
    """Make the topics of what is on exist."""
    notes, signals, replicas = config.notifications, config.signals, config.topics.replication_factor
    if "sink" in notes.channels and notes.topic is not None:
        topics.ensure([TopicSpec(notes.topic, replication_factor=replicas)])
    if "kafka" in signals.channels:
        Topics(signal_settings(config)).ensure([TopicSpec(signal_topic(config), replication_factor=replicas)])


class SignalService:
    """The desk, and what brings signals to it."""

    def __init__(
        self,
        config: ProducerConfig,
        state: State,
        registry: SplitRegistry,
        publisher: TransactionalProducer,
        log_reader: BinlogReader,
    ) -> None:
        notes, prefix = config.notifications, config.topics.prefix
        topic = notes.topic if "sink" in notes.channels else None
        notifier = NotificationService(
            publisher,
            prefix=prefix,
            topic=None
            if topic is None
            else RecordConverter(config.converters).topic(topic, NOTIFICATION_KEY, NOTIFICATION_VALUE),
            finish_table="log" in notes.channels,
            open_transaction=log_reader.open_transaction,
        )
        self.desk = SignalProcessor(
            IncrementalSnapshotQueue.from_state(state.signals),
            registry,
            publisher,
            notifier,
            prefix=prefix,
            wanted=config.filters.tables.includes,
            open_transaction=log_reader.open_transaction,
        )
        table = config.signals.table
        log_reader.attend(self.desk, None if table is None else SourceSignalChannel(table))
        self._log_reader = log_reader
        self._channels: Channels | None = None
        openers = list(self._openers(config))
        if openers:
            interval = config.signals.poll_interval_ms / 1000
            self._channels = Channels(openers, log_reader.inbox.ask, self._take, interval_s=interval)

    def _openers(self, config: ProducerConfig) -> Iterator[Callable[[], Channel]]:
        signals, marks = config.signals, self.desk.marks
        if "kafka" in signals.channels:
            yield partial(
                KafkaChannel,
                signal_consumer(config),
                topic=signal_topic(config),
                prefix=config.topics.prefix,
                mark=marks.kafka,
                wait_s=signals.kafka_wait_ms / 1000,
            )
        if "file" in signals.channels:
            yield partial(FileChannel, Path(signals.file), mark=marks.file)

    def _take(self, found: Found, move: Callable[[ChannelOffsets], ChannelOffsets]) -> None:
        """Take what a channel found; durable on return."""
        self.desk.take(found, move(self.desk.marks))
        self._log_reader.commit()

    def start(self) -> None:
        """Begin to look for signals."""
        if self._channels is not None:
            self._channels.start()

    def close(self) -> None:
        """End what runs beside the log."""
        if self._channels is not None:
            self._channels.close()
