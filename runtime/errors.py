"""The errors that both halves share.

::

    TailraceError                    message, hint (begins with a verb) and context (the values seen)
    ├── MultipleProblemsError        several problems that are reported together
    │   └── ConfigError              the configuration is not valid
    ├── NewerFormatError             what is stored has a later format (runtime/stored_format.py)
    ├── NoAnswerError                a running program does not answer
    ├── SchemaError                  a row does not match the definition of its table
    └── KafkaRequestError            Kafka rejected a request
        └── KafkaUnavailableError    Kafka did not respond, or aborted a transaction (Retryable)

The errors of one half are in producer/errors.py and spark_consumer/errors.py. ``Retryable`` marks errors that a restart
from the stored state may resolve. All other errors stop the process.
"""

from __future__ import annotations

from collections.abc import Sequence


class Retryable:
    """Marks an error that a restart from the stored state may resolve."""


class TailraceError(Exception):
    """Base of all errors that a user can see.

    ``hint`` says what to do and begins with a verb. ``context`` has the values seen, never a secret. Values of rows,
    and statements with them, are in ``context`` alone: logs have it, while states and the status keep the message.
    """

    def __init__(self, message: str, *, hint: str = "", **context: object) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.context = context

    def add_context(self, **context: object) -> None:
        """Add values that the caller knows; those of the raiser stay."""
        self.context = {**context, **self.context}

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


class ConfigError(MultipleProblemsError):
    """The configuration is not valid."""

    one, many = "configuration problem", "configuration problems"


class NoAnswerError(TailraceError):
    """A running program does not answer."""


class SchemaError(TailraceError):
    """A row does not match the definition of its table."""


class KafkaRequestError(TailraceError):
    """Kafka rejected a request."""


class KafkaUnavailableError(KafkaRequestError, Retryable):
    """Kafka did not respond, or aborted a transaction."""
