"""The errors that both halves share.

::

    TailraceError                    message, hint (begins with a verb) and context (the values seen)
    ├── MultipleProblemsError        several problems that are reported together
    │   └── ConfigError              the configuration is not valid
    ├── NewerFormatError             what is stored has a later format (runtime/stored_format.py)
    ├── NoAnswerError                a running program does not answer
    ├── PortInUseError               a port is in use
    ├── SchemaError                  a row does not match the definition of its table
    └── KafkaRequestError            Kafka rejected a request
        └── KafkaUnavailableError    Kafka did not respond, or aborted a transaction (Retryable)

The errors of one half are in producer/errors.py and spark_consumer/errors.py. ``Retryable`` marks errors that a restart
from the stored state may resolve. All other errors stop the process.
"""

from __future__ import annotations

from collections.abc import Sequence

from tailrace.runtime.exit_code import ExitCode


class Retryable:
    """Marks an error that a restart from the stored state may resolve."""


class TailraceError(Exception):
    """Base of all errors that a user can see.

    ``hint`` says what to do and begins with a verb. ``context`` has the values seen, never a secret. Values of rows,
    and statements with them, are in ``context`` alone: logs have it, while states and the status keep the message.
    """

    exit_code: ExitCode | None = None
    """Of a process that it ends; None: ``exit_code_of`` decides."""

    def __init__(self, message: str, *, hint: str = "", **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context

    def add_context(self, **context: object) -> None:
        """Add values that the caller knows; those of the raiser stay."""
        self.context = {**context, **self.context}

    def fields(self) -> dict[str, object]:
        """Return what a state and the status may keep: all but the context."""
        return {"class": type(self).__name__, "message": self.message, "hint": self.hint}

    def __str__(self) -> str:
        context = "".join(f"\n  {name}: {value}" for name, value in self.context.items())
        return self.message + context + (f"\n  hint: {self.hint}" if self.hint else "")


class MultipleProblemsError(TailraceError):
    """Several problems that are reported together, so that a user can solve them all at once."""

    one, many = "problem", "problems"
    """What is counted, in singular and plural."""

    def __init__(self, problems: Sequence[str]) -> None:
        title = self.one if len(problems) == 1 else self.many
        super().__init__(f"{len(problems)} {title}:\n" + "\n".join(f"- {problem}" for problem in problems))
        self.problems = tuple(problems)

    def fields(self) -> dict[str, object]:
        """Return the problems as a list."""
        title = self.message.partition(":\n")[0]
        return super().fields() | {"message": title, "problems": list(self.problems)}


class ConfigError(MultipleProblemsError):
    """The configuration is not valid."""

    one, many = "configuration problem", "configuration problems"
    exit_code = ExitCode.CONFIG


class NoAnswerError(TailraceError):
    """A running program does not answer."""

    exit_code = ExitCode.UNAVAILABLE


class SchemaError(TailraceError):
    """A row does not match the definition of its table."""


class KafkaRequestError(TailraceError):
    """Kafka rejected a request."""


class KafkaUnavailableError(KafkaRequestError, Retryable):
    """Kafka did not respond, or aborted a transaction."""


class PortInUseError(TailraceError):
    """A port is in use, perhaps by the process that this one replaces."""

    exit_code = ExitCode.TEMPFAIL


def exit_code_of(error: BaseException) -> ExitCode:
    """Return the exit code of a process that an error ends."""
    if isinstance(error, TailraceError) and error.exit_code is not None:
        return error.exit_code
    if isinstance(error, BrokenPipeError):
        return ExitCode.ERROR  # of the reader of the output
    return ExitCode.TEMPFAIL if isinstance(error, Retryable | ConnectionError | TimeoutError) else ExitCode.ERROR
