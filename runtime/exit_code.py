"""The exit codes of all commands; docs/operations.md says what a supervisor does with each."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """Why a command has ended."""

    OK = 0
    ERROR = 1
    FOUND = 3
    """The command ran, and what it looks for is there: rows that differ, a table in error, a program that is idle."""
    UNAVAILABLE = 69
    """A program does not answer (EX_UNAVAILABLE of sysexits.h)."""
    INTERRUPTED = 130
    """Ctrl-C."""
