"""A transactional producer. Records between ``begin`` and ``commit`` become visible together, or not at all.

Delivery is not tracked per record: in a transaction, librdkafka fails the commit if any record failed.
"""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import KafkaException, Producer

from tailrace.producer.kafka.client import KafkaSettings, translate

Headers = list[tuple[str, str | bytes | None]]


class TransactionalProducer:
    """A transactional producer; it fences an older producer with the same transactional id."""

    def __init__(self, settings: KafkaSettings, transactional_id: str) -> None:
        self.transactional_id = transactional_id
        self._timeout = settings.request_timeout_s
        self._producer = Producer(settings.producer(transactional_id))
        self.in_transaction = False
        self.records_in_transaction = 0
        """Number of records sent in the current transaction, or in the last one if none is open."""

    def init_transactions(self) -> None:
        """Register the transactional id: this fences an older producer with the id and aborts its open transaction."""
        try:
            self._producer.init_transactions(self._timeout)
        except KafkaException as error:
            raise translate(error, f"registering transactional id {self.transactional_id}") from error

    def begin(self) -> None:
        """Open a transaction, unless one is open."""
        if self.in_transaction:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise translate(error, "beginning a transaction") from error
        self.in_transaction = True
        self.records_in_transaction = 0

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None, *, partition: int = -1
    ) -> None:
        """Send one record in the open transaction; waits while the queue is full. -1: the key chooses the partition."""
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, headers=headers)
            except BufferError:
                self._producer.poll(0.05)
            except KafkaException as error:
                raise translate(error, f"sending to {topic}") from error
            else:
                self.records_in_transaction += 1
                return

    def send_all(self, topic: str, records: Iterable[tuple[bytes, bytes | None]], headers: Headers | None) -> None:
        """Send many records that share topic and headers."""
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
        except KafkaException as error:
            raise translate(error, f"sending to {topic}") from error
        self.records_in_transaction += count
        self._producer.poll(0)

    def commit(self) -> None:
        """Make the transaction's records visible. Returns when they are committed; raises if any record failed."""
        try:
            self._producer.commit_transaction(self._timeout * 2)
        except KafkaException as error:
            raise translate(error, "committing a transaction") from error
        self.in_transaction = False

    def abort(self) -> None:
        """Abort the open transaction, if any."""
        if not self.in_transaction:
            return
        try:
            self._producer.abort_transaction(self._timeout)
        except KafkaException as error:
            raise translate(error, "aborting a transaction") from error
        self.in_transaction = False

    def close(self) -> None:
        """Close without waiting: an open transaction is aborted by the next producer with the id, or by its timeout."""
        self._producer.purge()
        self._producer.close()
