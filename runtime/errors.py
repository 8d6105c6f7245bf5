"""The error tree of both halves.

::

    TailraceError            message, hint (what mends it) and facts for the log line
    ├── ConfigError          the configuration is wrong; all faults at once
    ├── PrerequisiteError    the source server is not set up for capture; all faults at once
    ├── SourceError          the source database answered with an error, or not at all
    ├── LogError             the binlog cannot be followed: purged, corrupt, or of an unknown kind
    ├── SchemaError          a row does not fit the table definition that should describe it
    ├── KafkaFailure         Kafka refused, fenced, or is not reachable
    ├── AdoptError           the place where a connector stopped cannot be taken over
    └── SinkError            a target table refused a batch

``Retryable`` marks what a restart from the stored state may cure; everything else stops the process.
"""

from __future__ import annotations

from collections.abc import Sequence


class Retryable:
    """Marker: starting again from the stored state may succeed."""


class TailraceError(Exception):
    """Base of every error a user can meet.

    ``hint`` begins with a verb and says what mends it; ``facts`` are the values seen, never a secret.
    """

    def __init__(self, message: str, *, hint: str = "", **facts: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.facts = facts

    def __str__(self) -> str:
        facts = "".join(f"\n  {name}: {value}" for name, value in self.facts.items())
        return self.message + facts + (f"\n  remedy: {self.hint}" if self.hint else "")


class MultipleProblemsError(TailraceError):
    """Several faults found together, so that a user mends them in one go."""

    title = "faults"

    def __init__(self, faults: Sequence[str]) -> None:
        super().__init__(f"{len(faults)} {self.title}:\n" + "\n".join(f"- {fault}" for fault in faults))
        self.faults = tuple(faults)


class ConfigError(MultipleProblemsError):
    """The configuration is wrong; every fault is listed."""

    title = "configuration fault(s)"


class PrerequisiteError(MultipleProblemsError):
    """The source is not set up for capture; every fault is listed with the statement that mends it."""

    title = "prerequisite(s) not met"


class SourceError(TailraceError):
    """The source database answered with an error."""


class SourceUnavailableError(SourceError, Retryable):
    """The source did not answer, or the connection broke."""


class BinlogError(TailraceError):
    """The binlog cannot be followed from where it should be."""


class SchemaError(TailraceError):
    """A row does not fit the table definition at its position."""


class KafkaRequestError(TailraceError):
    """Kafka refused a request for good."""


class KafkaUnavailableError(KafkaRequestError, Retryable):
    """Kafka did not answer, or aborted a transaction that can be repeated."""


class TakeoverError(TailraceError):
    """The place where a connector stopped cannot be taken over."""


class SinkError(TailraceError):
    """A target refused a batch."""
