"""A transactional producer. Records between ``begin`` and ``commit`` become visible together, or not at all.

Delivery is not tracked per record: in a transaction, librdkafka fails the commit if any record failed. The report of a
failed record is kept, since the client's next answer is only that its state is erroneous.

One loss is not an error for librdkafka (2.16). It sends several batches of a partition at once. If the broker refuses
the first one, since it does not lead the partition yet, and takes the second one, the client takes that success for an
acknowledgement of both, and the commit succeeds without the first. A broker takes the second one if it knows nothing of
this producer, so this happens to the first batches of a partition. An acknowledgement that was inferred in this way has
no offset: the transaction is then not committed. See also ``Topics``, which waits for the leaders of a new topic, and
https://github.com/confluentinc/confluent-kafka-go/issues/921.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Final

import structlog
from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace.producer.errors import ProducerFencedError
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.delivery import DeliveryReports, record_too_large
from tailrace.producer.kafka.errors import FATAL, STATE, TIMED_OUT, TOO_LARGE, client_error, translate
from tailrace.producer.kafka.native_sender import new_client
from tailrace.runtime.errors import KafkaUnavailableError, TailraceError

if TYPE_CHECKING:
    from tailrace.producer.native.codec import Sender

log = structlog.get_logger(__name__)

Headers = list[tuple[str, str | bytes | None]]

_SLICE_S: Final = 0.5
"""A wait is cut into parts of this length: between them a stop is noticed, and signal handlers run."""
_SLICE_NS: Final = int(_SLICE_S * 1e9)
_IDLE_NS: Final = 100_000_000
"""A full batch is sent within that, although its partition may have to enter the transaction first."""
_CONNECTED_BY: Final = "__transaction_state"
"""A topic to ask for, because a request for all topics is long: registering creates it if it does not exist."""
_ROOM_S: Final = 0.05
"""How long a record waits for room in the queue before it is looked at again."""
_STOP_GRACE_S: Final = 4.0
"""How long a wait continues after a stop was requested."""
_POLL_RECORDS: Final = 500
"""Delivery reports are processed after so many records; a commit processes them as well."""
_FIRST_FLUSH_S: Final = 0.001
_LAST_FLUSH_S: Final = 0.01
_REASON_S: Final = 2.0
"""How long the client may take to say why its state is erroneous."""


class TransactionalProducer:
    """A transactional producer; it fences an older producer with the same transactional id."""

    def __init__(self, settings: KafkaSettings, transactional_id: str, stop: threading.Event | None = None) -> None:
        """``stop`` shortens the waits for a broker that does not answer."""
        self.transactional_id = transactional_id
        self.transaction_timeout_s = settings.transaction_timeout_ms / 1000
        """The broker aborts a transaction that is open for longer."""
        self._timeout = settings.request_timeout_s
        self._stop = stop or threading.Event()
        self._reports = DeliveryReports()
        self._client: Producer | None
        self._sender: Sender | None
        options = settings.producer(transactional_id)
        self._batch_bytes = int(options["batch.size"])
        self._client, self._sender = new_client({**options, **self._reports.callbacks()})
        self._unpolled = 0
        """Records since delivery reports were processed."""
        self.in_transaction = False
        self.records_in_transaction = 0
        """Number of records sent in the current transaction, or in the last one if none is open."""

    @property
    def _producer(self) -> Producer:
        assert self._client is not None, "the producer is closed"
        return self._client

    def init_transactions(self) -> None:
        """Register the transactional id: this fences an older producer with the id and aborts its open transaction."""
        self._connect()
        operation = f"registering transactional id {self.transactional_id}"
        self._repeat(self._producer.init_transactions, self._timeout, operation)

    def _connect(self) -> None:
        """Wait for a connection: if the client has none when it registers, it looks again after half a second.

        After the first answer, connections to brokers replace that to a bootstrap server; one of them gives the second.
        """
        # Registering waits as well, for longer, and its error says more.
        with suppress(KafkaException):
            for _ in range(2):
                self._producer.list_topics(_CONNECTED_BY, _SLICE_S)

    def partitions(self, topic: str) -> int:
        """Return the number of partitions of a topic; the records that are sent from now on are divided among them.

        Without this question the client divides them among those that it knows, for minutes.
        """
        found: list[int] = []

        def read(wait_s: float) -> None:
            found.append(len(self._producer.list_topics(topic, wait_s).topics[topic].partitions))

        self._repeat(read, self._timeout, f"asking for the partitions of topic {topic}")
        return found[-1]

    def begin(self) -> None:
        if self.in_transaction:
            return
        try:
            self._producer.begin_transaction()
        except KafkaException as error:
            raise self._translated(error, "beginning a transaction") from error
        self.in_transaction = True
        self.records_in_transaction = 0

    def send(
        self, topic: str, key: bytes | None, value: bytes | None, headers: Headers | None = None, *, partition: int = -1
    ) -> None:
        """Send one record in the open transaction; waits while the queue is full. -1: the key chooses the partition."""
        stop_at: float | None = None
        while True:
            try:
                self._producer.produce(topic, value, key, partition=partition, headers=headers)
            except BufferError:
                stop_at = self._wait_for_room(topic, key, value, stop_at)
            except KafkaException as error:
                raise self._not_sent(error, topic, key, value) from error
            else:
                self.records_in_transaction += 1
                return

    def send_all(
        self, topic: str, records: Sequence[tuple[bytes, bytes | None]], headers: Headers | None = None
    ) -> None:
        sender = self._sender
        if sender is None:
            self._send_by_binding(topic, records, headers)
        else:
            whole = sender.records(records)
            count, sent = len(whole), 0
            while (at := sender.send(topic, whole, sent, headers)) < count:
                # What is not accepted is sent by the binding, which waits for room or raises the error.
                self.records_in_transaction += at - sent
                self.send(topic, *whole[at], headers)
                sent = at + 1
            self.records_in_transaction += count - sent
        self._count_unpolled(len(records))

    @property
    def sender(self) -> Sender | None:
        """What hands over records without Python objects, if the extension is used; each batch is told to ``sent``."""
        return self._sender

    def sent(self, count: int) -> None:
        """Count records that ``sender`` was given in the open transaction."""
        self.records_in_transaction += count
        self._count_unpolled(count)

    def _count_unpolled(self, count: int) -> None:
        self._unpolled += count
        if self._unpolled >= _POLL_RECORDS:
            self._poll(0)

    def _send_by_binding(
        self, topic: str, records: Sequence[tuple[bytes, bytes | None]], headers: Headers | None
    ) -> None:
        produce = self._producer.produce
        # The client reads positions faster than names, and a dict faster than a list: together a tenth of a call.
        shared = dict(headers) if headers else None
        count = 0
        key: bytes | None = None
        value: bytes | None = None
        try:
            for key, value in records:
                try:
                    produce(topic, value, key, -1, None, None, 0, shared)
                except BufferError:
                    self.send(topic, key, value, headers)
                    count -= 1
                count += 1
        except KafkaException as error:
            raise self._not_sent(error, topic, key, value) from error
        self.records_in_transaction += count

    def commit(self) -> None:
        """Make the transaction's records visible. Returns when they are committed.

        Raises if any record failed, and KafkaUnavailableError if one may be lost.
        """
        until = time.monotonic() + self._timeout * 2
        self._flush(until)
        self._require_answers()
        self._repeat(self._producer.commit_transaction, until - time.monotonic(), "committing a transaction")
        self._require_answers()  # if the time was up before all were delivered, the commit has waited for the rest
        self.in_transaction = False

    def _flush(self, until: float) -> None:
        """Wait until all records are delivered or have failed; the commit says what is wrong if the time is up.

        Since delivery is not reported, the client looks for it only every 10 ms, and at the end of its time.
        """
        wait_s = _FIRST_FLUSH_S
        stop_at: float | None = None
        try:
            while not (self._batches_answered() and self._producer.flush(wait_s) == 0):
                # Each call wakes the client's threads, so the later ones are long.
                wait_s = wait_s * 1.2 if wait_s < _LAST_FLUSH_S else _SLICE_S
                stop_at = self._stop_deadline(stop_at)
                now = time.monotonic()
                if now >= until or (stop_at is not None and now >= stop_at):
                    return
        except (KafkaException, SystemError) as error:
            raise self._translated(error, "sending records") from error

    def _batches_answered(self) -> bool:
        """Wait until only parts of batches are left; return False if that takes longer than a part of a wait.

        In a flush all records are overdue, for which the client does not sleep (client.py). Full batches are sent
        without one. Kafka's binding does not tell what is in flight, so without the extension there is no such wait.
        """
        return self._sender is None or self._sender.wait_for_batches(self._batch_bytes, _SLICE_NS, _IDLE_NS)

    def _require_answers(self) -> None:
        """Raise if a record was acknowledged without an answer of its own: it may be missing in its partition."""
        if self._reports.inferred or (self._sender is not None and self._sender.inferred()):
            raise KafkaUnavailableError(
                "a record may not be in Kafka: the client has only an answer to a later one, so its transaction is not "
                "committed",
                hint="wait: the records are written again from the stored state",
                transactional_id=self.transactional_id,
            )

    def abort(self) -> None:
        """Abort the open transaction, if any.

        A failure is not raised, since it would hide the error that led here: the next producer with the id aborts it.
        """
        if not self.in_transaction:
            return
        try:
            self._repeat(self._producer.abort_transaction, self._timeout, "aborting a transaction")
        except TailraceError as error:
            log.debug("transaction not aborted", transactional_id=self.transactional_id, error=str(error))
        else:
            self.in_transaction = False

    def close(self) -> None:
        """Close without waiting: an open transaction is aborted by the next producer with the id, or by its timeout.

        The client's own ``close`` aborts the transaction first, and waits for that as long as no broker answers.
        """
        client, self._client, self._sender = self._client, None, None
        if client is not None:
            client.purge()

    # -- waiting -----------------------------------------------------------------------------------------------------

    def _repeat(self, call: Callable[[float], object], timeout_s: float, operation: str) -> None:
        """Call a function that resumes after its timeout, until it is done or the time is up."""
        until = time.monotonic() + timeout_s
        stop_at: float | None = None
        while True:
            try:
                call(_SLICE_S)
            except (KafkaException, SystemError) as error:
                reason = client_error(error).args[0]
                stop_at = self._stop_deadline(stop_at)
                now = time.monotonic()
                # At the end of its time the call may return what it was waiting for instead, such as the coordinator.
                if not reason.retriable() or now >= until or (stop_at is not None and now >= stop_at):
                    raise self._translated(error, operation) from error
            else:
                return

    def _stop_deadline(self, known: float | None) -> float | None:
        """Return when a wait ends because of a stop; None if none was requested."""
        if known is None and self._stop.is_set():
            return time.monotonic() + _STOP_GRACE_S
        return known

    def _wait_for_room(self, topic: str, key: bytes | None, value: bytes | None, stop_at: float | None) -> float | None:
        """Wait for a moment until the queue has sent something. Raises RecordTooLargeError if it is empty already."""
        # The count includes records whose delivery is not processed yet, so it is taken before they are.
        before = len(self._producer)
        if self._sender is None:
            self._poll(_ROOM_S)
        else:
            # Parts of batches alone can fill the queue, if there are many partitions: nothing is in flight then.
            room_ns = int(_ROOM_S * 1e9)
            self._sender.wait_for_batches(self._batch_bytes, room_ns, room_ns)
            self._poll(0)
        if not before:
            raise record_too_large(
                "a record is larger than the queue of the Kafka client",
                "raise producer.override.buffer.memory above the size, or remove it: then the queue follows "
                "producer.override.max.request.size",
                topic=topic,
                key=key,
                size=len(key or b"") + len(value or b""),
            )
        if len(self._producer) >= before:
            self._push()
        stop_at = self._stop_deadline(stop_at)
        if stop_at is not None and time.monotonic() >= stop_at:
            raise KafkaUnavailableError("Kafka did not take the records before the stop", topic=topic)
        return stop_at

    def _push(self) -> None:
        """Send parts of batches: if they fill the queue, nothing else makes room before linger.ms."""
        try:
            self._producer.flush(_ROOM_S)
        except (KafkaException, SystemError) as error:
            raise self._translated(error, "sending records") from error

    # -- errors ------------------------------------------------------------------------------------------------------

    def _poll(self, timeout_s: float) -> None:
        """Process delivery reports. The client raises here if it has failed for good."""
        self._unpolled = 0
        try:
            self._producer.poll(timeout_s)
        except (KafkaException, SystemError) as error:
            raise self._translated(error, "sending records") from error

    def _not_sent(self, error: KafkaException, topic: str, key: bytes | None, value: bytes | None) -> TailraceError:
        if error.args[0].code() in TOO_LARGE:
            return record_too_large(
                "a record is larger than the Kafka client may send",
                "raise producer.override.max.request.size above the size, and max.message.bytes of the topic with it; "
                "or exclude the column with column.exclude.list",
                topic=topic,
                key=key,
                size=len(key or b"") + len(value or b""),
            )
        return self._translated(error, f"sending to {topic}")

    def _translated(self, raised: KafkaException | SystemError, operation: str) -> TailraceError:
        """Return the error to raise, with the reason that the client's answer may hide."""
        error = self._reason(client_error(raised))
        code = error.args[0].code()
        if self._sender is not None and (failed := self._sender.failed()) is not None:
            self._reports.note(*failed)
        if code in TOO_LARGE:
            return self._reports.too_large(self._batch_bytes)
        if self._reports.refused_time:
            error = KafkaException(KafkaError(KafkaError.INVALID_TIMESTAMP, error.args[0].str()))
        translated = translate(error, operation, cause=self._reports.connections.last)
        translated.context["transactional_id"] = self.transactional_id
        if self._reports.failed_topic() and not isinstance(translated, ProducerFencedError):
            translated.context["topic"] = self._reports.failed_topic()
        return translated

    def _reason(self, error: KafkaException) -> KafkaException:
        """Return the first error of the transaction.

        After it, the client answers only that its state is erroneous; a commit, which is not possible any more, returns
        the reason. A thread of the client answers it, so without a moment of time it may say only that it timed out.
        """
        try:
            self._producer.poll(0)
            if error.args[0].code() in {STATE, FATAL}:
                self._producer.commit_transaction(_REASON_S)
        except (KafkaException, SystemError) as raised:
            reason = client_error(raised)
            return error if reason.args[0].code() == TIMED_OUT else reason
        return error


def stream_transactional_id(prefix: str) -> str:
    """Return the transactional id of the binlog stream: with it a new instance fences the one before it."""
    return f"{prefix}-tailrace-stream"


def reader_transactional_id(prefix: str, worker: int) -> str:
    return f"{prefix}-tailrace-snapshot-{worker}"
