"""The errors of the producer.

::

    TailraceError                     runtime/errors.py
    ├── MultipleProblemsError
    │   └── PrerequisiteError         the database server is not set up for capture
    ├── SourceError                   the database server rejected a connection or a statement
    │   ├── SourceUnavailableError    the database server did not respond (Retryable)
    │   │   ├── TableLockedError      a statement waited too long for the lock of a table
    │   │   └── StatementTooSlowError a statement took longer than it may
    │   ├── KeysRefusedError          a signal has keys that its table cannot have
    │   ├── TableMissingError         a statement names a table that does not exist
    │   └── TableAccessError          the account may not read a table (also a TableDefinitionError)
    ├── BinlogError                   the binlog cannot be read: purged, corrupt, or not supported
    │   └── SourceBehindError         the server has not executed all that was read: a replica that still applies
    ├── SplitTooSlowError             a split takes longer than a Kafka transaction may last
    ├── TableFailedError              a table cannot go on: the next session starts with it in error (Retryable)
    ├── InstanceReplacedError         another instance has taken over the prefix
    ├── StateDamagedError             a record of the state topic is not one that the producer writes
    ├── StateLostError                the state topic was deleted
    ├── SignalRefusedError            the producer has not applied a signal
    ├── ResponseUnknownError          a signal is sent, and its result is not known
    ├── TableNotReadError             the topic of a table lacks rows that are still to be read
    ├── TakeoverError                 the offset of a connector cannot be taken over
    ├── SchemaError                   runtime/errors.py
    │   ├── TableDefinitionError      a table cannot be captured as it is defined
    │   └── EarlierKeyError           rows are of a definition before the one that gave the table its key
    └── KafkaRequestError             runtime/errors.py
        ├── ProducerFencedError       the broker ended the epoch of a transactional producer (Retryable)
        ├── RecordTooLargeError       a record exceeds a size limit of the client or of its topic
        │   └── RecordRefusedError    the broker has refused it, some time after it was sent
        ├── BatchRefusedError         the broker has refused several records that were sent at once (Retryable)
        ├── TopicsRefusedError        Kafka refuses to create topics
        ├── TransactionTimeoutError   the broker does not allow transactions of the requested duration
        └── KafkaUnavailableError
            └── KafkaAuthenticationError    the brokers refuse the login
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from tailrace.producer.model.table import TableId
from tailrace.runtime.errors import (
    KafkaRequestError,
    KafkaUnavailableError,
    MultipleProblemsError,
    Retryable,
    SchemaError,
    TailraceError,
)
from tailrace.runtime.exit_code import ExitCode

if TYPE_CHECKING:
    from tailrace.producer.model.protocols import Offset


class PrerequisiteError(MultipleProblemsError):
    """The database server is not set up for capture. Each problem has the statement that solves it."""

    one, many = "prerequisite is not met", "prerequisites are not met"
    exit_code = ExitCode.CONFIG


class SourceError(TailraceError):
    """The database server rejected a connection or a statement."""


class SourceUnavailableError(SourceError, Retryable):
    """The database server did not respond, or the connection broke."""


class TableLockedError(SourceUnavailableError):
    """A statement waited too long for a lock, for example for the metadata lock of its table."""


class StatementTooSlowError(SourceUnavailableError):
    """A statement took longer than max_execution_time allows."""


class KeysRefusedError(SourceError):
    """A signal has keys that its table cannot have, or whose rows are not read by their keys: the table is healthy."""


class TableMissingError(SourceError):
    """A statement names a table or a database that does not exist."""


class BinlogError(TailraceError):
    """The binlog cannot be read from the stored offset."""


class ServerIdInUseError(BinlogError):
    """Another replica or reader has connected with the server id of this one, possibly another instance."""


class SplitTooSlowError(TailraceError):
    """A split takes longer than a Kafka transaction may last."""


class TableDefinitionError(SchemaError):
    """A table cannot be captured as it is defined: without a key, with a schema that the registry refuses."""


class DefinitionLockedError(TableLockedError, TableDefinitionError):
    """A definition cannot be read now: a statement locks its table."""


class EarlierKeyError(SchemaError):
    """Rows of the binlog are of a definition before the one that gave their table its key.

    Invariant: it is no error of the definition that the catalog has, so no retry takes the table up: the statement does
    that is ahead in the binlog. So a table does not go into error and back until the stream has passed it.
    """

    def __init__(self, table: TableId, key: Sequence[str], now: Sequence[str]) -> None:
        """``key``: of the rows, empty if they have none; ``now``: of the table."""
        found = f"the key ({', '.join(key)})" if key else "no key"
        super().__init__(
            f"changes of {table} have {found} here, and the table has the key ({', '.join(now)}) by a later statement",
            hint="set event.processing.failure.handling.mode=table: all rows are read when the stream has passed the "
            f"statement; or name columns that all rows have in message.key.columns ({table}:column)",
        )


def as_definition(error: TailraceError) -> TailraceError:
    """Return the error of a table that was being compiled: a SchemaError is one of its definition."""
    if not isinstance(error, SchemaError) or isinstance(error, TableDefinitionError | EarlierKeyError):
        return error
    return TableDefinitionError(error.message, hint=error.hint, **error.context)


class TableAccessError(SourceError, TableDefinitionError):
    """The account may not read a table, or a column of it."""


class TableFailedError(TailraceError, Retryable):
    """A table cannot go on while the others can: the next session starts with it in error."""

    def __init__(self, table: TableId, fault: TailraceError) -> None:
        super().__init__(fault.message, hint=fault.hint, **{"table": table, **fault.context})
        self.table = table
        self.fault = fault
        self.refused: RefusedChange | None = None
        """What Kafka has refused of the table, if that is why."""


class RefusedChange(NamedTuple):
    """A change that Kafka has refused, with all that was read with it. It has no reference to the session."""

    read_up_to: Offset
    """The change is from before this offset."""
    within: bool
    """A transaction that begins there was read in part."""
    message: str
    hint: str


class SourceBehindError(BinlogError):
    """The database server has not executed transactions that were read before; it may still execute them."""


class InstanceReplacedError(TailraceError):
    """Another instance has taken over the prefix."""


class SignalRefusedError(TailraceError):
    """The producer has not applied a signal."""


class ResponseUnknownError(TailraceError):
    """A signal is sent, and what the producer makes of it is not known."""


class TableNotReadError(TailraceError):
    """The topic of a table lacks rows that are still to be read."""


class TakeoverError(TailraceError):
    """The offset of a connector cannot be taken over."""


class ProducerFencedError(KafkaRequestError, Retryable):
    """The broker ended the epoch of a transactional producer.

    Either another producer with its id has registered, or a transaction was open for longer than its timeout.
    """


class KafkaAuthenticationError(KafkaUnavailableError):
    """The brokers refuse the login: at a start the configuration is wrong; later the password may be valid again."""

    exit_code = ExitCode.CONFIG


class RecordTooLargeError(KafkaRequestError):
    """A record exceeds a size limit of the client or of its topic."""

    key = b""
    """Its whole key; the context has what may be shown of it."""


class RecordRefusedError(RecordTooLargeError):
    """The broker has refused a record, some time after it was sent. It was alone in its batch, so it is at fault."""

    size = 0
    """Bytes of its key and its value."""


class BatchRefusedError(KafkaRequestError, Retryable):
    """The broker has refused a batch that may have several records: each of them is perhaps small enough."""

    batch_bytes = 0
    """How large the batches of the producer may be: the next session makes smaller ones."""


class TopicsRefusedError(KafkaRequestError):
    """Kafka refuses to create topics: the account may not, a policy forbids it, a setting is not valid."""

    def __init__(self, refused: Mapping[str, KafkaRequestError]) -> None:
        """``refused``: by topic; the message is that of the first one."""
        first = next(iter(refused.values()))
        super().__init__(first.message, hint=first.hint, **first.context)
        self.refused = refused


class TransactionTimeoutError(KafkaRequestError):
    """The broker does not allow transactions of the requested duration."""


class StateLostError(TailraceError):
    """The state topic was deleted, although the prefix has other topics with records."""


class StateDamagedError(TailraceError):
    """A record of the state topic is not one that the producer writes."""
