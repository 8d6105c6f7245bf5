"""Topic names as in Debezium, and who owns a topic.

A topic belongs to one table, or to the producer itself: of two tables in one topic, readers see one table that has the
rows of both. ``TopicOwners`` is the only place that decides it, for tables at a start and for new ones.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final

from tailrace.producer.config import ProducerConfig, TopicsConfig
from tailrace.producer.model.table import TableId
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

_MAX_LENGTH = 249
SHARED_TOPIC_HINT: Final = (
    "exclude one of them by table.exclude.list, capture it under another topic.prefix, or, if their names differ in "
    "characters that a topic name cannot have, set topic.naming.strategy="
    "io.debezium.schema.DefaultUnicodeTopicNamingStrategy under a new topic.prefix"
)
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]")
_ESCAPED = re.compile(r"[^A-Za-z0-9.-]")


def sanitized(name: str) -> str:
    """Return a legal topic name: ``_`` for each UTF-16 unit that is not allowed, truncated to 249 characters."""
    if _NOT_ALLOWED.search(name):
        # Java replaces UTF-16 units: a character above U+FFFF becomes two.
        name = _NOT_ALLOWED.sub(lambda found: "_" * (len(found[0].encode("utf-16-le")) // 2), name)
    name = name[:_MAX_LENGTH]
    return "_" * len(name) if name in {".", ".."} else name


def unicode_name(name: str) -> str:
    """Return the topic name of Debezium's Unicode strategy: ``_u6ce8`` for each UTF-16 unit, also for ``_`` itself."""
    return _ESCAPED.sub(_escapes, name)[:_MAX_LENGTH]


def _escapes(found: re.Match[str]) -> str:
    units = found[0].encode("utf-16-be")
    numbers = (int.from_bytes(units[at : at + 2], "big") for at in range(0, len(units), 2))
    # As Debezium writes them: two zeros before one or two digits, none before three.
    return "".join(f"_u00{number:x}" if number < 0x100 else f"_u{number:x}" for number in numbers)


_MAX_CACHED_NAMES = 50_000


class TopicNames:
    """The topic names of one prefix."""

    def __init__(self, topics: TopicsConfig) -> None:
        self._topics = topics
        self._tables: dict[TableId, str] = {}

    def table(self, table: TableId) -> str:
        """Return the topic of a table's rows: prefix, database, table."""
        known = self._tables.get(table)
        if known is None:
            name = self._topics.delimiter.join((self._topics.prefix, table.database, table.table))
            known = unicode_name(name) if self._topics.naming == "unicode" else sanitized(name)
            if len(self._tables) >= _MAX_CACHED_NAMES:
                self._tables.clear()
            self._tables[table] = known
        return known

    @property
    def schema_changes(self) -> str:
        return self._topics.prefix

    @property
    def transactions(self) -> str:
        return self._topics.delimiter.join((self._topics.prefix, self._topics.transaction))

    @property
    def heartbeats(self) -> str:
        return self._topics.heartbeat_name or self._topics.delimiter.join(
            (self._topics.heartbeat_prefix, self._topics.prefix)
        )


def signal_topic(config: ProducerConfig) -> str:
    return config.signals.kafka_topic or f"{config.topics.prefix}-signal"


def reserved_topics(config: ProducerConfig) -> dict[str, str]:
    """Return all topics that the producer writes or reads and that belong to no table, with what is in them."""
    prefix, names, notifications = config.topics.prefix, TopicNames(config.topics), config.notifications
    own = (state_topic(prefix), schemas_topic(prefix), watermarks_topic(prefix))
    found = dict.fromkeys(own, "the topic of that name itself")
    found |= {names.schema_changes: "schema changes", names.transactions: "transactions"}
    found[names.heartbeats] = "heartbeats"
    if "sink" in notifications.channels and notifications.topic is not None:
        found[notifications.topic] = "notifications"
    if "kafka" in config.signals.channels:
        found[signal_topic(config)] = "signals"
    return found


class TopicOwners:
    """Who owns which topic. A table owns its topic from the start or its first sight until it is gone."""

    def __init__(self, config: ProducerConfig) -> None:
        self._names = TopicNames(config.topics)
        self._owners: dict[str, TableId | str] = dict(reserved_topics(config))

    def own(self, table: TableId) -> str:
        """Let a table own its topic; return why it cannot, empty if it does."""
        fault = self.fault(table)
        if not fault:
            self._owners[self._names.table(table)] = table
        return fault

    def fault(self, table: TableId) -> str:
        """Return why a table cannot own its topic; empty if it can. Only Kafka's metrics confuse ``.`` and ``_``."""
        topic = self._names.table(table)
        owner = self._owners.get(topic, table)
        return "" if owner == table else f"the topic {topic} would serve both {owner} and {table}"

    def release(self, table: TableId) -> None:
        """The table is not captured any more: its topic may serve another one."""
        topic = self._names.table(table)
        if self._owners.get(topic) == table:
            del self._owners[topic]

    def own_all(self, tables: Iterable[TableId]) -> dict[TableId, str]:
        """Let tables own their topics; return the faults of those that cannot."""
        faults = {table: self.own(table) for table in tables}
        return {table: f"{fault}: {SHARED_TOPIC_HINT}" for table, fault in faults.items() if fault}
