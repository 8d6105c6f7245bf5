"""Translates errors of the Kafka clients: which of them a restart from the stored state may resolve."""

from __future__ import annotations

from typing import Final

from confluent_kafka import KafkaError, KafkaException

from tailrace.producer.errors import KafkaAuthenticationError, ProducerFencedError, TransactionTimeoutError
from tailrace.runtime.errors import KafkaRequestError, KafkaUnavailableError, TailraceError

# The Python binding prefixes librdkafka's own error codes with an underscore, but they are public.
ALL_BROKERS_DOWN: Final = KafkaError._ALL_BROKERS_DOWN  # noqa: SLF001
AUTHENTICATION: Final = KafkaError._AUTHENTICATION  # noqa: SLF001
TRANSPORT: Final = KafkaError._TRANSPORT  # noqa: SLF001
TIMED_OUT: Final = KafkaError._TIMED_OUT  # noqa: SLF001
TIMED_OUT_QUEUE: Final = KafkaError._TIMED_OUT_QUEUE  # noqa: SLF001
MESSAGE_TIMED_OUT: Final = KafkaError._MSG_TIMED_OUT  # noqa: SLF001
RESOLVE: Final = KafkaError._RESOLVE  # noqa: SLF001
SSL: Final = KafkaError._SSL  # noqa: SLF001
STATE: Final = KafkaError._STATE  # noqa: SLF001
FATAL: Final = KafkaError._FATAL  # noqa: SLF001
FENCED: Final = KafkaError._FENCED  # noqa: SLF001
PURGED: Final = frozenset({KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT})  # noqa: SLF001
PARTITION_EOF: Final = KafkaError._PARTITION_EOF  # noqa: SLF001
NO_GROUP: Final = KafkaError.GROUP_AUTHORIZATION_FAILED
"""The client looks for the coordinator of its group, also where partitions are assigned and nothing is stored for the
group. So the account needs no right to one, and this error says nothing about the records."""
UNKNOWN_PARTITION: Final = frozenset(
    {
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_PARTITION,  # noqa: SLF001
        KafkaError._UNKNOWN_TOPIC,  # noqa: SLF001
    }
)
"""The brokers do not know a partition, or not yet."""
NO_LEADER: Final = frozenset(
    {
        KafkaError.BROKER_NOT_AVAILABLE,
        KafkaError.FENCED_LEADER_EPOCH,
        KafkaError.KAFKA_STORAGE_ERROR,
        KafkaError.LEADER_NOT_AVAILABLE,
        KafkaError.NETWORK_EXCEPTION,
        KafkaError.NOT_CONTROLLER,
        KafkaError.NOT_ENOUGH_REPLICAS,
        KafkaError.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        KafkaError.NOT_LEADER_FOR_PARTITION,
        KafkaError.OFFSET_NOT_AVAILABLE,
        KafkaError.REPLICA_NOT_AVAILABLE,
        KafkaError.UNKNOWN_LEADER_EPOCH,
        KafkaError._NOENT,  # noqa: SLF001 - of the client: it found no leader of any partition that it was to query
    }
)
"""A partition has no leader for a moment, or another one than the client knows: Kafka's clients retry these errors, but
not in every request."""
TOO_LARGE: Final = frozenset({KafkaError.MSG_SIZE_TOO_LARGE, KafkaError.RECORD_LIST_TOO_LARGE})

_FENCED: Final = frozenset({FENCED, KafkaError.PRODUCER_FENCED, KafkaError.INVALID_PRODUCER_EPOCH})

_REFUSED_LOGIN: Final = frozenset({AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED})

_UNREACHABLE: Final = frozenset(
    {
        *_REFUSED_LOGIN,
        ALL_BROKERS_DOWN,
        TRANSPORT,
        TIMED_OUT,
        TIMED_OUT_QUEUE,
        MESSAGE_TIMED_OUT,
        RESOLVE,
        SSL,
        KafkaError.REQUEST_TIMED_OUT,
        KafkaError.COORDINATOR_NOT_AVAILABLE,
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        *NO_LEADER,
    }
)

_PRODUCER_UNUSABLE: Final = frozenset(
    {
        STATE,
        FATAL,
        KafkaError.CONCURRENT_TRANSACTIONS,
        KafkaError.INVALID_PRODUCER_ID_MAPPING,
        KafkaError.INVALID_TXN_STATE,
        KafkaError.OUT_OF_ORDER_SEQUENCE_NUMBER,
        KafkaError.TRANSACTION_COORDINATOR_FENCED,
        KafkaError.TRANSACTION_ABORTABLE,
        KafkaError.UNKNOWN_PRODUCER_ID,
        *UNKNOWN_PARTITION,
    }
)
"""The producer cannot continue, but a new one can: it registers again, and missing topics are created again."""

_DENIED: Final = frozenset(
    {
        KafkaError.CLUSTER_AUTHORIZATION_FAILED,
        KafkaError.TOPIC_AUTHORIZATION_FAILED,
        KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)

_FINAL: Final = frozenset(
    {
        *TOO_LARGE,
        KafkaError.INVALID_CONFIG,
        KafkaError.INVALID_RECORD,
        KafkaError.INVALID_REPLICATION_FACTOR,
        KafkaError.POLICY_VIOLATION,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
        KafkaError.UNSUPPORTED_FOR_MESSAGE_FORMAT,
        KafkaError.UNSUPPORTED_VERSION,
    }
)
"""The same request fails again, also where the client only asks for the transaction to be aborted."""


def client_error(raised: KafkaException | SystemError) -> KafkaException:
    """Return the error of the client behind what a call of it has raised; raises what has another cause.

    The binding raises the end of a producer's epoch while it still calls back for records. Python finds a callback that
    has returned with an exception set, and raises a SystemError whose cause is the error.
    """
    found: BaseException | None = raised
    while isinstance(found, SystemError):
        found = found.__cause__
    if not isinstance(found, KafkaException):
        raise raised
    return found


def translate(exception: KafkaException, operation: str, *, cause: KafkaError | None = None) -> TailraceError:
    """Return the error to raise for a client's exception; it is retryable if a restart from the stored state may help.

    ``cause`` is what the client has reported about its connections.
    """
    error: KafkaError = exception.args[0]
    code = error.code()
    context = {"operation": operation, "error": error.str() or error.name()}
    if cause is not None:
        context["cause"] = cause.str() or cause.name()
    if code in _FENCED:
        return ProducerFencedError(
            "Kafka has ended the transactions of this producer: another producer with its transactional id has "
            "started, or a transaction was open for longer than its timeout",
            hint="run one producer for one topic.prefix; if this process was paused, raise "
            "producer.override.transaction.timeout.ms",
            **context,
        )
    if code == KafkaError.INVALID_TRANSACTION_TIMEOUT:
        return TransactionTimeoutError(
            "the transaction timeout is longer than the broker allows",
            hint="lower producer.override.transaction.timeout.ms, or raise transaction.max.timeout.ms of the brokers",
            **context,
        )
    if code == KafkaError.INVALID_TIMESTAMP:
        return KafkaUnavailableError(
            "Kafka refuses the time of records: the clock of this host and that of the broker differ",
            hint="correct the clocks, or raise message.timestamp.after.max.ms (this host is ahead) or "
            "message.timestamp.before.max.ms of the topic",
            **context,
        )
    if code in _DENIED:
        return KafkaRequestError(
            "Kafka denied access",
            hint="grant the account what docs/operations.md lists for topics and transactional ids",
            **context,
        )
    if code not in _FINAL and (
        code in _UNREACHABLE or code in _PRODUCER_UNUSABLE or error.retriable() or error.txn_requires_abort()
    ):
        if code in _UNREACHABLE and not _REFUSED_LOGIN.isdisjoint({code, code if cause is None else cause.code()}):
            return KafkaAuthenticationError(
                "Kafka refuses the login of this account",
                hint="set producer.override.sasl.jaas.config (or kafka.sasl.username and kafka.sasl.password) to an "
                "account that the brokers know, and producer.override.sasl.mechanism to one that they accept for it",
                **context,
            )
        return KafkaUnavailableError(
            "Kafka did not answer, or aborted a transaction",
            hint="check bootstrap.servers, the security settings, and that the brokers are up",
            **context,
        )
    return KafkaRequestError(
        "Kafka rejected a request", hint="fix the cause that the broker reports, then restart", **context
    )
