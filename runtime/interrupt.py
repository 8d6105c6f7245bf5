"""Signals that end a program."""

from __future__ import annotations

import signal


def interrupt_on(*numbers: int) -> None:
    """Let these signals raise KeyboardInterrupt in the main thread.

    A shell without job control starts a background job with SIGINT ignored. Python then installs no handler of its own.
    """
    for number in numbers:
        signal.signal(number, signal.default_int_handler)
