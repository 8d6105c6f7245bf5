"""The open Kafka transaction of the binlog stream, together with the offset that is stored when it commits.

Whatever the stream writes (changes, watermarks, state, signals, notifications, heartbeats) goes through this object.
So a record is visible exactly if the stored offset, or the state written with it, says that it was written.

One record that Kafka does not take must not end the stream at each start. A table whose record it is, is in error. What
only tells of something (a schema change, a notification, transaction metadata) is left out: the client refuses it at
once, and the broker with the whole transaction, so that the next session knows the size (``CommitSettings.refused``).
What the readers and the next start need of one table (state, watermarks, schemas) puts that table in error.

A commit is due as soon as the log is caught up, so that a change does not wait; while there is more to read, when the
interval has passed or the transaction is full. Between two commits the stream reads for at least as long as the last
one took: batches grow with the load, and commits take at most half of the time.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.producer.errors import RecordRefusedError, RecordTooLargeError
from tailrace.producer.kafka.delivery import TOPIC_LIMIT, TOPIC_LIMIT_HINT, record_too_large
from tailrace.producer.kafka.state_store import (
    OFFSET_KEY,
    StoredOffset,
    backfill_key,
    backfill_value,
    prepared_key,
    prepared_to_json,
)
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.binlog_events import PreparedTransactionEnded, TransactionPrepared
from tailrace.producer.model.protocols import Offset
from tailrace.producer.ops.status import Status
from tailrace.producer.streaming.heartbeat import Heartbeat
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.schemas.names import state_topic

if TYPE_CHECKING:
    from tailrace.producer.native.codec import Sender

log = structlog.get_logger(__name__)

_IDLE_INTERVAL_S: Final = 1.0
"""How often an offset is stored that advanced without records."""
_OWNERSHIP_S: Final = 5.0
"""How often an instance that has nothing to store commits nevertheless: only the owner of the prefix can."""


@dataclass(frozen=True, slots=True)
class CommitSettings:
    """When the transaction is committed."""

    prefix: str
    interval_s: float
    max_records: int
    refused: Mapping[str, int] = field(default_factory=dict)
    """Topics that belong to no table -> the size of the smallest record that the broker has refused.

    No record of that size is sent any more, although one that compresses better may be taken.
    """


class StreamTransaction:
    """The only user of the stream's producer. Not thread-safe: startup uses it first, then the stream's thread."""

    def __init__(
        self,
        producer: TransactionalProducer,
        offset: StreamOffset,
        registry: SplitRegistry,
        *,
        settings: CommitSettings,
        status: Status,
        heartbeat: Heartbeat | None = None,
    ) -> None:
        self.offset = offset
        """What has been read from the binlog; the next commit stores it."""
        self.prefix = settings.prefix
        self.before_commit: list[Callable[[], None]] = []
        """Called before each commit; they store what belongs to the offset."""
        self._producer = producer
        self._registry = registry
        self._settings = settings
        self.status = status
        self._heartbeat = heartbeat
        self._state_topic = state_topic(settings.prefix)
        self._stored = offset.position
        self._since = time.monotonic()
        """When the transaction was opened, or the last one was committed."""
        self._pause_until = self._since
        """Until then the stream reads on although it is caught up."""

    @property
    def stored(self) -> Offset:
        """What the last commit stored: everything before it is in Kafka. Any thread may read it."""
        return self._stored

    @property
    def records(self) -> int:
        """Number of records in the open transaction; 0 if none is open."""
        return self._producer.records_in_transaction if self._producer.in_transaction else 0

    @property
    def full(self) -> bool:
        return self._producer.records_in_transaction >= self._settings.max_records and self._producer.in_transaction

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; the records that are written from now on use all of them."""
        return self._producer.partitions(topic)

    def open(self) -> None:
        if not self._producer.in_transaction:
            self._producer.begin()
            self._since = time.monotonic()

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None, *, partition: int = -1
    ) -> None:
        """Write one record; -1: the key chooses the partition.

        Raises RecordTooLargeError for a record that Kafka does not take, or has refused in a session before.
        """
        limit = self._settings.refused.get(topic)
        if limit is not None and (size := len(key or b"") + len(value or b"")) >= limit:
            raise record_too_large(TOPIC_LIMIT, TOPIC_LIMIT_HINT, topic=topic, key=key, size=size)
        self.open()
        self._producer.send(topic, key, value, headers, partition=partition)

    def tell(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Headers | None = None,
        *,
        partition: int = -1,
        **about: object,
    ) -> None:
        """Write a record that no other one depends on: one that is too large is left out, with ``about`` in the log."""
        try:
            self.send(topic, key, value, headers, partition=partition)
        except RecordTooLargeError as error:
            if isinstance(error, RecordRefusedError):
                raise  # it is another record
            log.error(
                "a record is left out: it is larger than Kafka accepts",
                topic=topic,
                hint="raise producer.override.max.request.size, and max.message.bytes of the topic, above the size",
                size=error.context.get("size"),
                **about,
            )

    def send_all(self, topic: str, records: Sequence[tuple[bytes, bytes | None]], headers: Headers | None) -> None:
        if not self._producer.in_transaction:
            self.open()
        self._producer.send_all(topic, records, headers)

    @property
    def sender(self) -> Sender | None:
        return self._producer.sender

    @property
    def room(self) -> int:
        return self._settings.max_records - self.records

    def sent(self, count: int) -> None:
        self._producer.sent(count)

    def store(self, key: bytes, value: bytes | None) -> None:
        """Write a record of the state topic; None deletes the key."""
        self.send(self._state_topic, key, value)

    def seconds_until_commit(self) -> float:
        """Return how long the stream may wait for events before a commit is due."""
        if not self.records:
            return self._settings.interval_s
        due = self._since + self._settings.interval_s
        if self._is_whole:
            due = min(due, self._pause_until)
        return max(0.0, due - time.monotonic())

    def commit_if_due(self, *, caught_up: bool = False) -> None:
        """Commit what is due; ``caught_up``: the stream has nothing to read.

        An offset that advanced without records is stored less often.
        """
        now = time.monotonic()
        elapsed = now - self._since
        if self.records:
            idle = caught_up and self._is_whole and now >= self._pause_until
            if idle or self.full or elapsed >= self._settings.interval_s:
                self.commit()
        elif self._heartbeat_due or (self._offset_moved and elapsed >= _IDLE_INTERVAL_S):
            self.commit()
        elif elapsed >= _OWNERSHIP_S:
            self.commit(always=True)

    def commit(self, *, always: bool = False) -> None:
        """Commit what was written since the last commit, with the offset.

        Does nothing if there is nothing to store, unless ``always``: only the owner of the prefix can commit.
        """
        if always or self.records or self._offset_moved or self._heartbeat_due:
            self.open()
            if self._heartbeat is not None and self._heartbeat.due:
                self.tell(*self._heartbeat.next_record(), partition=0)
            for split_id, count in self._registry.take_backfill_counts().items():
                self._producer.send(self._state_topic, backfill_key(split_id), backfill_value(count))
            for store in self.before_commit:
                store()
            self.commit_with(self.offset.state())

    def commit_with(self, offset: StoredOffset) -> None:
        """Commit with an offset: startup with the one it restored, as the registry does not know the splits yet."""
        self.open()
        self._producer.send(self._state_topic, OFFSET_KEY, offset.to_json())
        began = time.monotonic()
        self._producer.commit()
        self._stored = self.offset.position
        self._since = time.monotonic()
        self._pause_until = 2 * self._since - began
        self.status.stream_committed(offset.position.to_json())

    @property
    def _is_whole(self) -> bool:
        """Whether no source transaction is partly written: the rest of one that has begun is about to arrive."""
        return self.offset.transaction is None

    @property
    def _offset_moved(self) -> bool:
        return self.offset.position != self._stored

    @property
    def _heartbeat_due(self) -> bool:
        return self._heartbeat is not None and self._heartbeat.due


class PreparedTransactions:
    """Prepared XA transactions in the state: those whose XA COMMIT or XA ROLLBACK was not read yet.

    A restart needs them: their rows precede the stored offset, but are written when they are committed. Changes are
    written with the offset behind them, at the next commit: most transactions end before that.
    """

    def __init__(
        self, transaction: StreamTransaction, stored: Iterable[TransactionPrepared], *, settings: str = ""
    ) -> None:
        """``settings``: fingerprint of the configuration."""
        self._transaction = transaction
        self._settings = settings
        self._stored = {prepared.xid for prepared in stored}
        self._changed: dict[str, TransactionPrepared | None] = {}
        transaction.before_commit.append(self._write)

    def on_prepared(self, event: TransactionPrepared) -> None:
        self._changed[event.xid] = event

    def on_ended(self, event: PreparedTransactionEnded) -> None:
        self._changed[event.xid] = None

    def _write(self) -> None:
        for xid, prepared in self._changed.items():
            if prepared is not None:
                self._transaction.store(prepared_key(xid), prepared_to_json(prepared._replace(settings=self._settings)))
                self._stored.add(xid)
            elif xid in self._stored:
                self._transaction.store(prepared_key(xid), None)
                self._stored.discard(xid)
        self._changed.clear()
