"""Where everything stands: asked from the producer, the consumer's checkpoint, Kafka, and the Delta logs."""

from __future__ import annotations

import http.client
import json
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tailrace.producer.mysql.gtid import GtidSet
from tailrace.schemas.names import schemas_topic, state_topic
from tests.demo import shop
from tests.demo.delta_log import DeltaLog
from tests.demo.running import Running

Offsets = dict[tuple[str, int], int]
"""Topic and partition -> offset."""


class TableProgress(NamedTuple):
    """One table. ``changes`` are records of the log, tombstones included."""

    rows_planned: int = 0
    rows_read: int = 0
    splits_done: int = 0
    splits_planned: int = 0
    changes: int = 0
    sink_rows: int = 0


@dataclass(frozen=True)
class Progress:
    """One look at everything; ``behind`` are records that the consumer has yet to commit, None before its first."""

    phase: str = "starting"
    position: str = ""
    gtids: str = ""
    lag_ms: int | None = None
    behind: int | None = None
    batches: int = 0
    tables: dict[str, TableProgress] = field(default_factory=dict)


class Observer:
    """Looks again and again; remembers what was read of the Delta logs."""

    def __init__(self, running: Running) -> None:
        self._running = running
        self._logs = {table: DeltaLog(running.sink / shop.DATABASE / table) for table in shop.TABLES}
        self._client: Consumer | None = None

    def look(self) -> Progress:
        """Return where everything stands now; what does not answer yet is left at its start."""
        status = _status(self._running.producer_status)
        stream = status.get("stream", {})
        batches, committed = _committed(self._running.checkpoint)
        known = status.get("tables", {})
        return Progress(
            phase=status.get("phase", "starting"),
            position=f"{stream['file']}:{stream['pos']}" if stream.get("file") else "",
            gtids=stream.get("gtids", ""),
            lag_ms=stream["lag_ms"] if stream.get("lag_ms", -1) >= 0 else None,
            behind=self._behind(committed) if batches else None,
            batches=batches,
            tables={
                table: _table(known.get(f"{shop.DATABASE}.{table}", {}), self._logs[table].rows())
                for table in shop.TABLES
            },
        )

    def log_is_written(self, progress: Progress) -> bool:
        """Tell whether the producer has every transaction of the source in Kafka."""
        with self._running.source.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_executed")
            [executed] = cursor.fetchone()
        return GtidSet.parse(progress.gtids).contains(GtidSet.parse(executed))

    def close(self) -> None:
        """Let the Kafka client go."""
        if self._client is not None:
            self._client.close()

    def _behind(self, committed: Offsets) -> int:
        """Return how many offsets of rows and watermarks lie after the last committed batch."""
        if self._client is None:
            self._client = Consumer(
                {"bootstrap.servers": self._running.bootstrap, "group.id": "demo-observer", "log_level": 0}
            )
        beside = {schemas_topic(shop.PREFIX), state_topic(shop.PREFIX)}
        behind = 0
        for name, topic in self._client.list_topics(timeout=10).topics.items():
            if name.startswith(f"{shop.PREFIX}.") and name not in beside:
                for number in topic.partitions:
                    try:
                        _, end = self._client.get_watermark_offsets(TopicPartition(name, number), timeout=10)
                    except KafkaException:
                        continue  # asked again at the next look
                    behind += max(0, end - committed.get((name, number), 0))
        return behind


def _table(status: dict[str, Any], sink_rows: int) -> TableProgress:
    return TableProgress(
        status.get("rows_estimated", 0),
        status.get("rows_read", 0),
        status.get("splits_done", 0),
        status.get("splits_planned", 0),
        status.get("records", 0),
        sink_rows,
    )


def _status(url: str) -> dict[str, Any]:
    """Return what the producer says of itself, nothing while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:  # noqa: S310 - our own http URL
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, http.client.HTTPException):
        return {}


def _committed(checkpoint: Path) -> tuple[int, Offsets]:
    """Return how many batches Spark has committed, and the offsets up to which the last of them went."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return 0, {}
    text = (checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8")
    found: Offsets = {}
    for line in text.splitlines()[2:]:  # a version, the batch's metadata, then one line per source
        for topic, partitions in json.loads(line).items():
            found |= {(topic, int(number)): int(offset) for number, offset in partitions.items()}
    return max(done) + 1, found
