"""The errors of the consumer.

::

    TailraceError    runtime/errors.py
    └── SinkError    the target rejected a batch
"""

from __future__ import annotations

from tailrace.runtime.errors import TailraceError


class SinkError(TailraceError):
    """The target rejected a batch."""
