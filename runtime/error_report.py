"""How a process reports an error to its user. Needs no library, so that it works under spark-submit."""

from __future__ import annotations

import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

from tailrace.runtime.errors import TailraceError, exit_code_of
from tailrace.runtime.exit_code import ExitCode


@contextmanager
def reporting_errors(*, debug: bool = False) -> Iterator[None]:
    """Print an error to stderr and exit with its code (``ExitCode``).

    With ``debug`` an error is raised with its traceback.
    """
    try:
        yield
    except KeyboardInterrupt:
        raise SystemExit(ExitCode.INTERRUPTED) from None
    except Exception as error:
        if debug:
            raise
        if isinstance(error, (TailraceError, OSError)):
            sys.stderr.write(f"error: {error}\n")
        else:
            hint = "run with --debug and report the traceback"
            sys.stderr.write(f"error: {type(error).__name__}: {str(error) or _statement(error)}\n  hint: {hint}\n")
        raise SystemExit(exit_code_of(error)) from None


def _statement(error: Exception) -> str:
    """Return the statement that raised an error without a text, as most assertions are, and its place."""
    last = traceback.extract_tb(error.__traceback__)[-1]
    return f"{last.line} ({last.filename}:{last.lineno})"
