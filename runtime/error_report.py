"""How a process reports an error to its user."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from tailrace.runtime.errors import MultipleProblemsError, TailraceError, exit_code_of
from tailrace.runtime.exit_code import ExitCode
from tailrace.runtime.logging import is_json
from tailrace.runtime.printable import printable, printable_lines

_UNKNOWN_HINT: Final = "run with --debug and report the traceback"


@contextmanager
def reporting_errors(*, debug: bool = False, in_log: bool = False) -> Iterator[None]:
    """Print an error to stderr and exit with its code (``ExitCode``).

    With ``debug`` an error is raised with its traceback. With ``in_log`` it is an event of the log, if that is JSON.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except Exception as error:
        if debug:
            raise
        code = exit_code_of(error)
        if in_log and is_json():
            structlog.get_logger(__name__).critical(
                "the program ends with an error", error=_event(error), exit_code=code
            )
        else:
            sys.stderr.write(f"error: {shown(error)}\n")
        raise SystemExit(code) from None


def shown(error: Exception) -> str:
    """Return an error as it is printed: names and values in it can add no line, such as another hint."""
    if isinstance(error, OSError) and str(error):
        return printable(str(error))
    if not isinstance(error, TailraceError):
        text = printable_lines(str(error)) or _statement(error)
        return f"{type(error).__name__}: {text}\n  hint: {_UNKNOWN_HINT}"
    lines = [printable(error.message)]
    if isinstance(error, MultipleProblemsError):
        title = error.message.partition("\n")[0]
        lines = [title, *(f"- {printable_lines(problem)}" for problem in error.problems)]
    lines += [f"  {name}: {printable_lines(str(value))}" for name, value in error.context.items()]
    if error.hint:
        lines.append(f"  hint: {printable_lines(error.hint)}")
    return "\n".join(lines)


def _event(error: Exception) -> object:
    if isinstance(error, TailraceError):
        return error
    hint = "" if isinstance(error, OSError) else _UNKNOWN_HINT
    return {"class": type(error).__name__, "message": str(error) or _statement(error), "hint": hint}


def _statement(error: Exception) -> str:
    """Return the statement that raised an error without a text, as most assertions are, and its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.line} ({last.filename}:{last.lineno})"
