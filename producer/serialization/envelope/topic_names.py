"""Topic names as in Debezium, and tables that would share a topic."""

from __future__ import annotations

import re
from collections.abc import Iterable

from tailrace.producer.config import TopicsConfig
from tailrace.producer.model.table import TableId

_MAX_LENGTH = 249
_NOT_ALLOWED = re.compile(r"[^A-Za-z0-9._-]")


def sanitized(name: str) -> str:
    """Return a legal topic name: ``_`` for each UTF-16 unit that is not allowed, truncated to 249 characters."""
    if _NOT_ALLOWED.search(name):
        # Java replaces UTF-16 units: a character above U+FFFF becomes two.
        name = _NOT_ALLOWED.sub(lambda found: "_" * (len(found[0].encode("utf-16-le")) // 2), name)
    name = name[:_MAX_LENGTH]
    return "_" * len(name) if name in {".", ".."} else name


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
            known = sanitized(self._topics.delimiter.join((self._topics.prefix, table.database, table.table)))
            if len(self._tables) >= _MAX_CACHED_NAMES:
                self._tables.clear()
            self._tables[table] = known
        return known

    @property
    def schema_changes(self) -> str:
        """The topic of DDL statements."""
        return self._topics.prefix

    @property
    def transactions(self) -> str:
        """The topic of BEGIN and END records."""
        return self._topics.delimiter.join((self._topics.prefix, self._topics.transaction))

    @property
    def heartbeats(self) -> str:
        """The topic of heartbeats."""
        return self._topics.heartbeat_name or self._topics.delimiter.join(
            (self._topics.heartbeat_prefix, self._topics.prefix)
        )

    def collisions(self, tables: Iterable[TableId], *, reserved: Iterable[str] = ()) -> list[str]:
        """Return one fault for each topic that two tables, or a table and another topic of the producer, share."""
        return list(self.topic_faults(sorted(tables), reserved=reserved).values())

    def topic_faults(self, tables: Iterable[TableId], *, reserved: Iterable[str] = ()) -> dict[TableId, str]:
        """Return the faults of ``collisions`` by the table that comes later."""
        used_by: dict[str, str] = dict.fromkeys(reserved, "the topic of that name itself")
        used_by |= {self.schema_changes: "schema changes", self.transactions: "transactions"}
        used_by[self.heartbeats] = "heartbeats"
        # Only Kafka's metrics confuse '.' and '_': topics that differ in them are two topics.
        faults: dict[TableId, str] = {}
        for table in tables:
            topic = self.table(table)
            if topic in used_by:
                faults[table] = (
                    f"the topic {topic} would serve both {used_by[topic]} and {table}: "
                    "exclude one of them by table.exclude.list, or capture it under another topic.prefix"
                )
            used_by.setdefault(topic, str(table))
        return faults
