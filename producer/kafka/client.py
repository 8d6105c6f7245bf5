"""Settings of the Kafka clients."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import ClassVar, Final

from confluent_kafka import KafkaError, KafkaException, Producer

from tailrace.producer.kafka.errors import translate
from tailrace.runtime.errors import ConfigError

ClientConfig = dict[str, str | int | float | bool]

# Batches of one megabyte: librdkafka's cost is per request; batches of 16 KB need four times the CPU per record.
_PRODUCER_DEFAULTS: Final[Mapping[str, str | int | float | bool]] = {
    "enable.idempotence": True,
    "acks": "all",
    "compression.type": "lz4",
    "batch.size": 1_000_000,
    "batch.num.messages": 20_000,
    "queue.buffering.max.messages": 100_000,
    # What Kafka Connect sends at most (max.request.size), less the frame of a batch, which the client does not count.
    "message.max.bytes": 1_048_000,
    # The Java partitioner: a key must go to the same partition as with Kafka Connect.
    "partitioner": "murmur2_random",
    # A topic that was deleted is noticed by this alone; else its records wait for their time to deliver, a minute.
    "topic.metadata.refresh.interval.ms": 10_000,
    "delivery.report.only.error": True,
}
_LINGER_MS: Final = 1000
"""Parts of batches wait for the commit, which flushes them.

Of a partition, librdkafka (2.16) has one request in flight: it compares its limit of five requests with a number of
records. While a record waits for the answer and is older than linger.ms, the thread that sends polls without a pause.
With 20 ms that took half of the CPU time of a snapshot.
"""
_TIMEOUTS: Final = ("delivery.timeout.ms", "message.timeout.ms")
"""The names of the time to deliver a record."""
_QUEUE_KBYTES: Final = 65_536
_RECONNECT_MS: Final = 20
"""A new client waits half of it before its second connection, which its first request needs: 50 ms by the default of
the library, several times in a start. After each failure it doubles, up to ten seconds."""
_NOT_CREATED: Final = "Failed to create producer"


@dataclass(frozen=True, slots=True)
class KafkaSettings:
    """Connection of the Kafka clients; ``overrides`` are properties of librdkafka."""

    bootstrap_servers: str
    overrides: Mapping[str, str] = field(repr=False)
    transaction_timeout_ms: int
    """The broker aborts a transaction that is open for longer."""
    batch_bytes: int | None = None
    """Batches are not larger than this, whatever the overrides say: a broker has refused larger ones."""
    request_timeout_s: ClassVar[float] = 30.0
    """How long a request waits for the broker."""

    def common(self) -> ClientConfig:
        prefixes = (
            "security.",
            "sasl.",
            "ssl.",
            "client.",
            "socket.",
            "reconnect.",
            "debug",
            "broker.",
            "enable.ssl.",
            "https.",
        )
        return {
            "bootstrap.servers": self.bootstrap_servers,
            # The lines of the client are no lines of our log, and dozens a second while no broker answers. Its errors
            # come back from its calls; those of its connections are logged by ``ConnectionErrors``.
            "log_level": 0 if "debug" not in self.overrides else 7,
            "reconnect.backoff.ms": _RECONNECT_MS,
            **{name: value for name, value in self.overrides.items() if name.startswith(prefixes)},
        }

    def producer(self, transactional_id: str) -> ClientConfig:
        settings = {
            **self.common(),
            **_PRODUCER_DEFAULTS,
            "transaction.timeout.ms": self.transaction_timeout_ms,
            "linger.ms": self._linger_ms(),
            **self.overrides,
            "transactional.id": transactional_id,
        }
        # Of less, the client sends nothing before linger.ms; of more, it makes several batches.
        largest = int(settings["message.max.bytes"])
        settings["batch.size"] = min(int(settings["batch.size"]), largest, self.batch_bytes or largest)
        # A record that is larger than the queue could never be sent.
        largest_kbytes = largest // 1024 + 1
        settings.setdefault("queue.buffering.max.kbytes", max(_QUEUE_KBYTES, 2 * largest_kbytes))
        return settings

    def announcer(self) -> ClientConfig:
        """Return the configuration of a producer of one record outside of transactions, which may be there twice."""
        options = self.producer("")
        for name in ("transactional.id", "transaction.timeout.ms", "delivery.report.only.error", *_TIMEOUTS):
            options.pop(name, None)
        timeout_ms = int(self.request_timeout_s * 1000)
        return {**options, "enable.idempotence": False, "linger.ms": 0, "message.timeout.ms": timeout_ms}

    def _linger_ms(self) -> int:
        """Return less than the time to deliver a record, as the client requires; by default the transaction's."""
        # Zero: without an end. What is no number is refused by the client.
        chosen = (self.overrides.get(name, "") for name in _TIMEOUTS)
        limits = [int(text) for text in chosen if text.isdecimal() and int(text)]
        return min(_LINGER_MS, *(limit // 4 for limit in [self.transaction_timeout_ms, *limits]))

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


def write_outside_transaction(settings: KafkaSettings, topic: str, key: bytes, value: bytes, operation: str) -> int:
    """Write one record to a topic with one partition; return its offset when it is acknowledged.

    ``operation`` says in an error what failed.
    """
    reports: list[tuple[KafkaError | None, int | None]] = []
    try:
        producer = Producer(settings.announcer())
        producer.produce(
            topic, value, key, partition=0, on_delivery=lambda error, sent: reports.append((error, sent.offset()))
        )
        producer.flush()
        [(error, offset)] = reports
        if error is not None:
            raise KafkaException(error)
    except KafkaException as failure:
        raise translate(failure, operation) from failure
    assert offset is not None, "an acknowledged record has an offset"
    return offset


def check_options(settings: KafkaSettings) -> None:
    """Raise ConfigError for options that the client does not know, or cannot use. Nothing is connected."""
    problems = []
    for name, value in settings.overrides.items():
        problem = "" if name == "bootstrap.servers" else _problem({name: value})
        # Only together do some options make sense: those are tried below.
        if problem and not problem.startswith(_NOT_CREATED):
            problems.append(f"producer.override.{name}: {problem}")
    if not problems:
        whole = settings.producer("check")
        del whole["bootstrap.servers"]
        problems = [f"producer.override.*: {problem}" for problem in (_problem(whole),) if problem]
    if problems:
        raise ConfigError(problems)


def _problem(options: Mapping[str, str | int | float | bool]) -> str:
    try:
        Producer({**options, "log_level": 0})
    except (KafkaException, TypeError, ValueError) as error:
        reason = error.args[0]
        return reason.str() if isinstance(reason, KafkaError) else str(reason)
    return ""
