"""The errors of the consumer.

::

    TailraceError              runtime/errors.py
    ├── SinkError              the target rejected a batch
    │   ├── NewTopicError      a topic was deleted and created again
    │   ├── MissingTopicError  Kafka does not have a topic
    │   ├── TargetUnavailableError  the target cannot be reached: no table can go on
    │   └── UnreachableSinkError    the engine of one of several sinks cannot be reached: its tables cannot go on
    ├── IncompleteTopicError   a topic lacks records that were written to it
    ├── BadRecordError         a record cannot be decoded
    ├── DamagedTopicError      rows in a topic are not those that were written to it
    ├── TransformError         a transform does not fit a table
    ├── StoredFileError        a file next to the checkpoint or the target cannot be read or written
    └── KafkaRequestError      runtime/errors.py
        └── ControlTopicError  a control topic cannot be read: no table can go on
"""

from __future__ import annotations

import socket
from typing import Final, NamedTuple

import structlog

from tailrace.runtime.errors import KafkaRequestError, KafkaUnavailableError, TailraceError
from tailrace.runtime.exit_code import ExitCode
from tailrace.spark_consumer.java_errors import java_errors, session_is_lost, summary

log = structlog.get_logger(__name__)


class SinkError(TailraceError):
    """The target rejected a batch."""


class NewTopicError(SinkError):
    """A topic was deleted and created again: offsets that were applied say nothing about it."""


class MissingTopicError(SinkError):
    """Kafka does not have a topic: it was deleted."""


class TargetUnavailableError(SinkError):
    """The server of the target cannot be reached."""

    exit_code = ExitCode.TEMPFAIL


class UnreachableSinkError(SinkError):
    """The engine of one of several sinks cannot be reached."""

    exit_code = ExitCode.TEMPFAIL


class IncompleteTopicError(TailraceError):
    """A topic lacks records that were written to it."""


class BadRecord(NamedTuple):
    """The record that an error is about. It is never read from a text that may quote values."""

    topic: str
    partition: int
    offset: int
    reason: str


class BadRecordError(SinkError):
    """A record cannot be decoded."""

    record: BadRecord | None = None


class DamagedTopicError(TailraceError):
    """Rows in a topic are not those that were written to it."""


class TransformError(TailraceError):
    """A transform does not fit a table."""

    record: BadRecord | None = None
    """Set if it fails for one record."""


class StoredFileError(TailraceError):
    """A file next to the checkpoint or the target cannot be read or written."""


class ControlTopicError(KafkaRequestError):
    """A control topic cannot be read."""


_UNREACHABLE: Final = (
    "java.net.ConnectException",
    "java.net.NoRouteToHostException",
    "java.net.UnknownHostException",
    "org.apache.kafka.common.config.ConfigException",  # such as a broker without an address
    "org.apache.kafka.common.errors.AuthenticationException",
    "org.apache.kafka.common.errors.BrokerNotAvailableException",
    "org.apache.kafka.common.errors.DisconnectException",
    "org.apache.kafka.common.errors.NetworkException",
    "org.apache.kafka.common.errors.TimeoutException",
)
_OF_KAFKA: Final = "org.apache.kafka."
_OTHER_QUERY: Final = "CONCURRENT_STREAM_LOG_UPDATE"
"""Spark's condition for a checkpoint that another query writes to."""
_CONNECTION: Final = "08"
"""The SQLSTATE class of lost connections."""
_SHUTDOWN: Final = ("57P01", "57P02", "57P03")
"""PostgreSQL: the server stops, has crashed, or starts."""
_BETWEEN_EXECUTORS: Final = "io.netty."
"""The classes of connections between the driver and executors: one that is lost is that of a table's tasks."""
_SLOW: Final = "java.net.SocketTimeoutException"
"""One request took too long; the server answers others."""


def concerns_all_tables(error: BaseException) -> bool:
    """Return whether an error of one table says that no table can go on: the session, broker or target is lost.

    A task that runs out of memory, kills its executor, or waits too long for its files concerns its own table: it is
    parked at once, and the others go on. If the session cannot go on either, Spark ends it. The classes of exceptions,
    SQLSTATE and Spark's conditions decide, never a message.
    """
    if isinstance(error, TailraceError):
        return isinstance(error, (ControlTopicError, KafkaUnavailableError, TargetUnavailableError))
    if not isinstance(error, Exception) or isinstance(error, (OSError, MemoryError)):
        return True
    return session_is_lost(error) or _says_unreachable(error)


def is_unreachable(error: Exception) -> bool:
    """Return whether an error of a sink says that its server cannot be reached."""
    if isinstance(error, TailraceError):
        return isinstance(error, (KafkaUnavailableError, TargetUnavailableError))
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)):
        return True
    return not session_is_lost(error) and _says_unreachable(error)


def is_connection_state(sqlstate: str) -> bool:
    """Return whether the SQLSTATE of a database says that the connection is lost, or that the server stops."""
    return sqlstate.startswith(_CONNECTION) or sqlstate in _SHUTDOWN


def _says_unreachable(error: BaseException) -> bool:
    found = list(java_errors(error))
    if any(each.classes[0].startswith(_BETWEEN_EXECUTORS) or each.is_any(_SLOW) for each in found):
        return False
    return any(
        each.is_any(*_UNREACHABLE) or (each.is_any("java.sql.SQLException") and is_connection_state(each.sqlstate))
        for each in found
    )


def as_tailrace_error(error: BaseException, message: str = "the query failed") -> TailraceError:
    """Return the error itself, or a SinkError that says what it is; the log has its text, which may quote values."""
    if isinstance(error, TailraceError):
        return error
    log.error(message, exc_info=error)
    found = list(java_errors(error))
    if any(each.condition == _OTHER_QUERY for each in found):
        return SinkError(
            f"{message}: another query writes to its checkpoint",
            hint="stop the other query, or set another checkpointLocation for this one",
            cause=summary(error),
        )
    if _says_unreachable(error) and any(name.startswith(_OF_KAFKA) for each in found for name in each.classes):
        return KafkaUnavailableError(
            f"{message}: Kafka did not answer",
            hint="check that the brokers run, bootstrap.servers and the kafka. settings, and start again: the query "
            "goes on where it stopped",
            cause=summary(error),
        )
    return SinkError(message, hint="read the log above for the complete error", cause=summary(error))


def first_lines(text: str, count: int = 3) -> str:
    """Return the first lines of an error without those of a stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines[:count])[:1000]
