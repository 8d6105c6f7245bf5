"""The exit codes of all commands; docs/operations.md says what a supervisor does with each."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Why a command has ended; those above 64 are of sysexits.h."""

    OK = 0
    ERROR = 1
    USAGE = 2
    """The command line cannot be parsed: typer's code."""
    FOUND = 3
    """The command ran, and what it looks for is there: rows that differ, a table in error, a program that is idle."""
    UNAVAILABLE = 69
    """EX_UNAVAILABLE: a running program does not answer the command."""
    TEMPFAIL = 75
    """EX_TEMPFAIL: a restart may be enough."""
    CONFIG = 78
    """EX_CONFIG: a restart fails again, until somebody changes the configuration or the source."""
    INTERRUPTED = 130
    """Ctrl-C: 128 and the number of the signal."""
