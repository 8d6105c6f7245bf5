"""Publisher: one transactional producer. All that is sent between ``begin`` and ``commit`` appears at once, or never.

Delivery is not followed record by record: inside a transaction librdkafka fails the commit when any record failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException, Producer

from tailrace.producer.kafka.client import KafkaSettings, translate

Headers = list[tuple[str, str | bytes | None]]


class TransactionalProducer:
    """A transactional producer; its id fences an older holder of the same id."""

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._timeout = settings.request_timeout_s
        self._producer = Producer(settings.producer(transactional_id))
        self.in_transaction = False
        self.sent = 0
        """Records sent in the current transaction."""

    def fence(self) -> None:
        """Register the id: an older producer with it is fenced, its open transaction aborted."""
        try:
            self._producer.init_transactions(self._timeout)
        except KafkaException as failure:
            raise translate(failure, f"registering transactional id {self.transactional_id}") from failure

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        if self.in_transaction:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as failure:
            raise translate(failure, "beginning a transaction") from failure
        self.in_transaction = True
        self.sent = 0

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None, *, partition: int = -1
    ) -> None:
        """Add one record to the open transaction; a full queue is back-pressure, not an error. -1: as the key says."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, headers=headers)
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as failure:
                raise translate(failure, f"sending to {topic}") from failure
            else:
                self.sent += 1
                return

    def send_all(self, topic: str, records: Iterable[tuple[bytes, bytes | None]], headers: Headers | None) -> None:
        """Add many records that share topic and headers."""
        produce = self._producer.produce
        count = 0
        try:
            for key, value in records:
                try:
                    produce(topic, value, key, headers=headers)
                except BufferError:
                    self.send(topic, key, value, headers)
                    count -= 1
                count += 1
        except KafkaException as failure:
            raise translate(failure, f"sending to {topic}") from failure
        self.sent += count
        self._producer.poll(0)

    def commit(self) -> None:
        """Make the transaction's records visible. Returns when the broker has them; raises if any record failed."""
        try:
            self._producer.commit_transaction(self._timeout * 2)
        except KafkaException as failure:
            raise translate(failure, "committing a transaction") from failure
        self.in_transaction = False

    def abort(self) -> None:
        """Drop the open transaction, if any."""
        if not self.in_transaction:
            return
        try:
            self._producer.abort_transaction(self._timeout)
        except KafkaException as failure:
            raise translate(failure, "aborting a transaction") from failure
        self.in_transaction = False

    def close(self) -> None:
        """Let go without waiting: an open transaction is aborted by whoever registers the id next, or by time."""
        self._producer.purge()
        self._producer.close()
