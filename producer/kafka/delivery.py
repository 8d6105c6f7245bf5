"""What a producer's client reports about its records and connections, and the errors that follow from it."""

from __future__ import annotations

import time
from collections.abc import Container
from dataclasses import dataclass, field
from typing import Any, ClassVar, Final

import structlog
from confluent_kafka import KafkaError, Message

from tailrace.producer.errors import BatchRefusedError, RecordRefusedError, RecordTooLargeError
from tailrace.producer.kafka.errors import ALL_BROKERS_DOWN, AUTHENTICATION, PURGED, SSL

log = structlog.get_logger(__name__)

_SHOWN_BYTES: Final = 200
_LOG_S: Final = 10.0
_SMALLER: Final = 4
TOPIC_LIMIT: Final = "a record is larger than its topic accepts"
TOPIC_LIMIT_HINT: Final = (
    "raise max.message.bytes of the topic above the size; for a row, excluding the column with column.exclude.list "
    "helps too"
)


class ConnectionErrors:
    """Keeps the last error of a client's connections: the client repeats its attempts and only times out.

    Errors are logged at most once in a while in a process, whatever the number of its clients and brokers.
    """

    _quiet_until: ClassVar[float] = 0.0

    def __init__(self) -> None:
        self.last: KafkaError | None = None

    def note(self, error: KafkaError) -> None:
        """Called by the client; the end of all connections says nothing new."""
        if error.code() != ALL_BROKERS_DOWN or self.last is None:
            self.last = error
        now = time.monotonic()
        if now >= ConnectionErrors._quiet_until:
            ConnectionErrors._quiet_until = now + _LOG_S
            log.warning("Kafka: a connection failed", error=error.str() or error.name())

    @property
    def refused(self) -> bool:
        """Whether the brokers refuse the connection: to try again does not help soon."""
        return self.last is not None and self.last.code() in {AUTHENTICATION, SSL}


class DeliveryReports:
    """Keeps the first failed record, or the largest one of those that fail together, and the last connection error.

    It has no reference to the producer, so that dropping the producer ends its client.
    """

    def __init__(self) -> None:
        self.connections = ConnectionErrors()
        self._failed: tuple[int, str | None, object, int] | None = None
        self.inferred = False
        """A record was acknowledged by the success of a later one alone."""

    def callbacks(self) -> dict[str, Any]:
        return {"error_cb": self.connections.note, "on_delivery": self._on_delivery}

    def _on_delivery(self, error: KafkaError | None, message: Message) -> None:
        """Called for failed records; for all of them where the extension does not see them."""
        if error is None:
            if message.offset() is None:
                self.inferred = True
            return
        if error.code() in PURGED:
            return
        key, value = message.key(), message.value()
        self.note(error.code(), message.topic(), key, len(key or b"") + len(value or b""))

    def note(self, code: int, topic: str | None, key: object, size: int) -> None:
        """Keep a failed record with its error code and the size of key and value."""
        if self._failed is None or (self._failed[0] == code and self._failed[3] < size):
            self._failed = code, topic, key, size

    @property
    def refused_time(self) -> bool:
        return self._failed is not None and self._failed[0] == KafkaError.INVALID_TIMESTAMP

    def failed_topic(self) -> str:
        """Return the topic of the failed record; empty if none failed."""
        return (self._failed[1] or "") if self._failed is not None else ""

    def too_large(self, batch_bytes: int) -> RecordRefusedError | BatchRefusedError:
        """Return the error for what its topic does not accept: a record, or a batch, of which no record is to blame.

        The broker compares a batch with the limit, and the client does not divide it. Invariant: a batch of several
        records has at most ``batch_bytes``, so one that has as much itself was alone.
        """
        _, topic, key, size = self._failed or (0, "", b"", 0)
        if size < batch_bytes and batch_bytes > 1:  # no batch can be smaller
            batch = BatchRefusedError(
                "a batch of records is larger than its topic accepts: smaller ones are sent",
                hint="lower producer.override.batch.size, or raise max.message.bytes of the topic: then no start needs "
                "to find out the size",
                topic=topic or "",
                batch_bytes=batch_bytes,
            )
            batch.batch_bytes = batch_bytes
            return batch
        error = RecordRefusedError(
            TOPIC_LIMIT, hint=TOPIC_LIMIT_HINT, topic=topic or "", key=printable(key), size=f"{size} bytes"
        )
        error.size, error.key = size, _key_bytes(key)
        return error


@dataclass(slots=True)
class RefusedSizes:
    """What brokers have refused to the sessions of this process: the next session knows it."""

    batch_bytes: int | None = None
    """The largest batch that is sent; None: as configured. It becomes smaller whenever one is refused."""
    records: dict[str, int] = field(default_factory=dict)
    """Topic -> the size of the smallest record that was refused."""

    def learn(self, error: BaseException, topics: Container[str]) -> bool:
        """Keep what an error tells of these topics, or of batches; return whether that was not known before."""
        if isinstance(error, BatchRefusedError):
            self.batch_bytes = max(1, error.batch_bytes // _SMALLER)
            return True
        if not isinstance(error, RecordRefusedError) or (topic := str(error.context["topic"])) not in topics:
            return False
        learned = error.size < self.records.get(topic, error.size + 1)
        if learned:
            self.records[topic] = error.size
        return learned


def record_too_large(message: str, hint: str, *, topic: str, key: object, size: int) -> RecordTooLargeError:
    error = RecordTooLargeError(message, hint=hint, topic=topic, key=printable(key), size=f"{size} bytes")
    error.key = _key_bytes(key)
    return error


def _key_bytes(key: object) -> bytes:
    return key.encode() if isinstance(key, str) else bytes(key) if isinstance(key, (bytes, bytearray)) else b""


def printable(key: object) -> str:
    """Return a record key for a message: as text if it is text, else in hexadecimal; long keys are cut."""
    data = _key_bytes(key)
    shown = data[:_SHOWN_BYTES]
    try:
        text = shown.decode()
        text = text if text.isprintable() else f"0x{shown.hex()}"
    except UnicodeDecodeError:
        text = f"0x{shown.hex()}"
    return text if len(data) <= _SHOWN_BYTES else f"{text}... ({len(data)} bytes)"
