"""The progress of a demo, read from the producer's status, the consumer's checkpoint, Kafka and the Delta logs."""

from __future__ import annotations

import http.client
import json
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from confluent_kafka import Consumer, KafkaException, TopicPartition

from tailrace.producer.mysql.gtid import GtidSet
from tailrace.schemas.names import schemas_topic, state_topic
from tests.demo import sample_database
from tests.demo.delta_log import DeltaLog
from tests.demo.deployment import Deployment

_ANSWER_S: Final = 10

Offsets = dict[tuple[str, int], int]
"""Topic and partition -> offset."""


class TableProgress(NamedTuple):
    """One table. ``change_records`` are records of the stream, tombstones included."""

    estimated_rows: int = 0
    snapshot_rows: int = 0
    splits_done: int = 0
    splits_planned: int = 0
    change_records: int = 0
    sink_rows: int = 0


@dataclass(frozen=True)
class Progress:
    """One observation. ``lag_records`` are records that the consumer has not committed, None while it is unknown."""

    phase: str = "starting"
    position: str = ""
    gtids: str = ""
    lag_ms: int | None = None
    lag_records: int | None = None
    batches: int = 0
    tables: dict[str, TableProgress] = field(default_factory=dict)


class Observer:
    """Observes a deployment. It keeps what it has read of the Delta logs."""

    def __init__(self, deployment: Deployment) -> None:
        self._deployment = deployment
        database = deployment.sink / sample_database.DATABASE
        self._logs = {table: DeltaLog(database / table) for table in sample_database.TABLES}
        self._client: Consumer | None = None

    def look(self) -> Progress:
        """Return the progress now. What does not answer yet has its initial value."""
        status = _status(self._deployment.producer_status)
        stream = status.get("stream", {})
        batches, committed = _committed(self._deployment.checkpoint)
        known = status.get("tables", {})
        return Progress(
            phase=status.get("phase", "starting"),
            position=f"{stream['file']}:{stream['pos']}" if stream.get("file") else "",
            gtids=stream.get("gtids", ""),
            lag_ms=stream.get("lag_ms"),
            lag_records=self._lag(committed) if batches else None,
            batches=batches,
            tables={
                table: _table(known.get(f"{sample_database.DATABASE}.{table}", {}), log.rows())
                for table, log in self._logs.items()
            },
        )

    def has_streamed_all(self, progress: Progress) -> bool:
        """Return whether every transaction of the source is in Kafka."""
        with self._deployment.source.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT @@GLOBAL.gtid_executed")
            [executed] = cursor.fetchone()
        return GtidSet.parse(progress.gtids).contains(GtidSet.parse(executed))

    def close(self) -> None:
        """Close the Kafka client."""
        if self._client is not None:
            self._client.close()

    def _lag(self, committed: Offsets) -> int | None:
        """Return how many records of rows and watermarks follow the last committed batch; None if Kafka is slow."""
        if self._client is None:
            self._client = Consumer(
                {"bootstrap.servers": self._deployment.bootstrap, "group.id": "demo-observer", "log_level": 0}
            )
        prefix = sample_database.PREFIX
        not_consumed = {schemas_topic(prefix), state_topic(prefix)}
        lag = 0
        try:
            for name, topic in self._client.list_topics(timeout=_ANSWER_S).topics.items():
                if name.startswith(f"{prefix}.") and name not in not_consumed:
                    for number in topic.partitions:
                        partition = TopicPartition(name, number)
                        _, end = self._client.get_watermark_offsets(partition, timeout=_ANSWER_S)
                        lag += max(0, end - committed.get((name, number), 0))
        except KafkaException:
            return None
        return lag


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
    """Return the producer's status, empty while it does not answer."""
    try:
        with urllib.request.urlopen(url, timeout=_ANSWER_S) as answer:  # noqa: S310 - our own http URL
            found: dict[str, Any] = json.load(answer)
            return found
    except (OSError, http.client.HTTPException):
        return {}


def _committed(checkpoint: Path) -> tuple[int, Offsets]:
    """Return the number of batches that Spark has committed, and the end offsets of the last one."""
    done = [int(path.name) for path in (checkpoint / "commits").glob("*") if path.name.isdigit()]
    if not done:
        return 0, {}
    text = (checkpoint / "offsets" / str(max(done))).read_text(encoding="utf-8")
    found: Offsets = {}
    for line in text.splitlines()[2:]:  # a version, the batch's metadata, then one line per source
        for topic, partitions in json.loads(line).items():
            found |= {(topic, int(number)): int(offset) for number, offset in partitions.items()}
    return max(done) + 1, found
