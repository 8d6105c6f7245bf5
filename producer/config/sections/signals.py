"""Signals to the producer, and notifications from it."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import SecretStr

from tailrace.producer.config.value_types import TABLE_NAME
from tailrace.producer.model.table import TableId
from tailrace.runtime.config.section import Section, prefixed, supported
from tailrace.runtime.config.value_types import (
    SECRET,
    TEXT,
    TOPIC_PART,
    integer,
    matching,
    one_of,
    secret,
    set_of,
)
from tailrace.runtime.webhook import WebhookFormat


class SignalsConfig(Section):
    """The channels that deliver signals."""

    channels: frozenset[str] = supported(
        "signal.enabled.channels",
        set_of("source", "kafka", "file"),
        default="source",
        doc="Signal channels, separated by commas: a table (source), a topic (kafka), a file (file).",
    )
    collection: str | None = supported(
        "signal.data.collection",
        TABLE_NAME,
        doc="Table of the channel source, as `db.table`, with the columns id, type and data. It is captured only "
        "if the filters include it.",
    )
    poll_interval_ms: int = supported(
        "signal.poll.interval.ms", integer(1), default="5000", doc="Interval at which channels are polled."
    )
    kafka_topic: str | None = supported(
        "signal.kafka.topic",
        TOPIC_PART,
        default_note="`<topic.prefix>-signal`",
        doc="Topic of the channel kafka, with one partition; the key of a signal is the topic prefix.",
    )
    kafka_servers: str | None = supported(
        "signal.kafka.bootstrap.servers",
        TEXT,
        default_note="`bootstrap.servers`",
        doc="Kafka brokers of that topic.",
    )
    kafka_group: str = supported(
        "signal.kafka.groupId",
        TEXT,
        default="kafka-signal",
        doc="Consumer group of that topic, for access control only.",
    )
    kafka_wait_ms: int = supported(
        "signal.kafka.poll.timeout.ms",
        integer(0),
        default="0",
        doc="Longest wait of one poll of that topic.",
    )
    consumer: Mapping[str, SecretStr] = prefixed(
        "signal.consumer.*",
        SECRET,
        doc="Options of librdkafka for that topic; they override `producer.override.*`.",
    )
    file: str = supported(
        "signal.file",
        TEXT,
        default="file-signals.txt",
        doc="File of the channel file, with a signal in each line. It is deleted when it has been read.",
    )

    @property
    def table(self) -> TableId | None:
        """The signaling table, if the channel source is enabled."""
        if "source" not in self.channels or self.collection is None:
            return None
        database, _, table = self.collection.partition(".")
        return TableId(database, table)


class NotificationsConfig(Section):
    """The channels that receive notifications."""

    channels: frozenset[str] = supported(
        "notification.enabled.channels",
        set_of("sink", "log", "webhook"),
        default="",
        doc="Notification channels, separated by commas: a topic (sink), the log (log), an HTTP POST (webhook).",
    )
    topic: str | None = supported("notification.sink.topic.name", TOPIC_PART, doc="Topic of the channel sink.")
    webhook_url: SecretStr | None = supported(
        "tailrace.notification.webhook.url",
        secret(matching(r"https?://\S+", "a URL that begins with http:// or https://")),
        doc="URL of the channel webhook.",
    )
    webhook_format: WebhookFormat = supported(
        "tailrace.notification.webhook.format",
        one_of(WebhookFormat),
        default="json",
        doc="What the channel webhook posts: json, or slack, the `text` of Slack's incoming webhooks.",
    )
