"""The errors of the consumer.

::

    TailraceError              runtime/errors.py
    ├── SinkError              the target rejected a batch
    │   ├── NewTopicError      a topic was deleted and created again
    │   ├── MissingTopicError  a topic was deleted before its records were read
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

import re
import socket
from typing import Final, NamedTuple

from tailrace.runtime.errors import KafkaRequestError, KafkaUnavailableError, TailraceError


class SinkError(TailraceError):
    """The target rejected a batch."""


class NewTopicError(SinkError):
    """A topic was deleted and created again: offsets that were applied say nothing about it."""


class MissingTopicError(SinkError):
    """A topic was deleted before its records were read."""


class TargetUnavailableError(SinkError):
    """The server of the target cannot be reached."""


class UnreachableSinkError(SinkError):
    """The engine of one of several sinks cannot be reached."""


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


_SESSION_LOST: Final = re.compile(
    r"stopped SparkContext|SparkContext was shut down|cancelled job group|Job \d+ cancelled|JOB_CANCELLED"
    r"|OutOfMemoryError|ExecutorLostFailure"
)
_UNREACHABLE: Final = re.compile(
    r"Failed to create new KafkaAdminClient|BrokerNotAvailable"
    r"|common\.errors\.(?:Timeout|Disconnect|Network|SaslAuthentication|SslAuthentication)\w*Exception"
    r"|java\.net\.(?:Connect|SocketTimeout|UnknownHost|NoRouteToHost)Exception"
)


def concerns_all_tables(error: BaseException) -> bool:
    """Return whether an error of one table says that no table can go on: the session or the broker is lost."""
    if isinstance(error, TailraceError):
        return isinstance(error, (ControlTopicError, KafkaUnavailableError, TargetUnavailableError))
    if not isinstance(error, Exception) or isinstance(error, (OSError, MemoryError)):
        return True
    text = str(error)
    return bool(_SESSION_LOST.search(text) or _UNREACHABLE.search(text))


def is_unreachable(error: Exception) -> bool:
    """Return whether an error of a sink says that its server cannot be reached."""
    if isinstance(error, TailraceError):
        return isinstance(error, (KafkaUnavailableError, TargetUnavailableError))
    if isinstance(error, (ConnectionError, TimeoutError, socket.gaierror)):
        return True
    text = str(error)
    return bool(_UNREACHABLE.search(text)) and not _SESSION_LOST.search(text)


def as_tailrace_error(error: BaseException, message: str = "the query failed") -> TailraceError:
    """Return the error itself, or a SinkError with the first lines of Spark's message."""
    if isinstance(error, TailraceError):
        return error
    return SinkError(message, hint="read the log above for the complete error", cause=first_lines(str(error)))


def first_lines(text: str, count: int = 3) -> str:
    """Return the first lines of an error without those of a stack trace."""
    lines = [line.strip() for line in text.splitlines() if line.strip() and not line.lstrip().startswith("at ")]
    return " ".join(lines[:count])[:1000]
