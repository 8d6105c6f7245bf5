"""Settings of the Kafka clients, and the translation of their errors."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from confluent_kafka import KafkaError, KafkaException

from tailrace.runtime.errors import KafkaRequestError, KafkaUnavailableError, TailraceError

ClientConfig = dict[str, str | int | float | bool]

# Batches of one megabyte: librdkafka's cost is per request; batches of 16 KB need four times the CPU per record.
_PRODUCER_DEFAULTS: Final[Mapping[str, str | int | float | bool]] = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "linger.ms": 20,
    "batch.size": 1_000_000,
    "batch.num.messages": 20_000,
    "queue.buffering.max.messages": 100_000,
    "queue.buffering.max.kbytes": 65_536,
    # The Java partitioner: a key must go to the same partition as with Kafka Connect.
    "partitioner": "murmur2_random",
    "delivery.report.only.error": True,
}

# The Python binding prefixes librdkafka's own error codes with an underscore, but they are public.
ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
TRANSPORT: Final = KafkaError._TRANSPORT  # noqa: SLF001
TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001
TIMED_OUT_QUEUE: Final = KafkaError._TIMED_OUT_QUEUE  # noqa: SLF001
RESOLVE: Final = KafkaError._RESOLVE  # noqa: SLF001
FENCED: Final = KafkaError._FENCED  # noqa: SLF001
PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001

_UNREACHABLE: Final = frozenset(
    {
        ALL_BROKERS_DOWN,
        TRANSPORT,
        TIMED_OUT,
        TIMED_OUT_QUEUE,
        RESOLVE,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.LEADER_NOT_AVAILABLE,
    }
)
_FENCED: Final = frozenset({FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Connection of the Kafka clients; ``overrides`` are properties of librdkafka."""

    bootstrap_servers: str
    overrides: Mapping[str, str] = field(repr=False)
    transaction_timeout_ms: int
    """The broker aborts a transaction that is open for longer."""
    request_timeout_s: ClassVar[float] = 30.0
    """How long a request waits for the broker."""

    def common(self) -> ClientConfig:
        """Return the configuration that every client needs."""
        prefixes = (
            "security.",
            "sasl.",
            "ssl.",
            "client.",
            "socket.",
            "debug",
            "broker.",
            "enable.ssl.",
            "https.",
        )
        return {
            "bootstrap.servers": self.bootstrap_servers,
            "log_level": 3,
            **{name: value for name, value in self.overrides.items() if name.startswith(prefixes)},
        }

    def producer(self, transactional_id: str) -> ClientConfig:
        """Return the configuration of a transactional producer."""
        return {
            **self.common(),
            **_PRODUCER_DEFAULTS,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            **self.overrides,
            "transactional.id": transactional_id,
        }

    def consumer(self) -> ClientConfig:
        """Return the configuration of a consumer that reads committed records of one assigned partition."""
        return {
            **self.common(),
            "group.id": "tailrace-unused",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "error",
            "enable.partition.eof": False,
            "check.crcs": True,
        }


def translate(exception: KafkaException, operation: str) -> TailraceError:
    """Return the error to raise for a client's exception; it is retryable if a restart from the stored state helps."""
    error: KafkaError = exception.args[0]
    context = {"operation": operation, "error": error.str() or error.name()}
    if error.code() in _FENCED:
        return KafkaRequestError(
            "another producer with the same transactional id has taken over",
            hint="stop one of the two instances: a topic.prefix belongs to one producer at a time",
            **context,
        )
    if error.code() in _UNREACHABLE or error.retriable() or error.txn_requires_abort():
        return KafkaUnavailableError(
            "Kafka did not answer, or aborted a transaction",
            hint="check bootstrap.servers and that the brokers are up",
            **context,
        )
    return KafkaRequestError(
        "Kafka rejected a request", hint="fix the cause that the broker reports, then restart", **context
    )
