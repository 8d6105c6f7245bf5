"""What the driver does by itself where queries could do the same: a failure of it turns it off for a while."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Final

import structlog

FIRST_PAUSE_S: Final = 60.0
LONGEST_PAUSE_S: Final = 3600.0
_LASTING: Final = 10
"""A failure lasts if the next one comes within so many lengths of the pause."""

log = structlog.get_logger(__name__)


class DriverPath:
    """Whether the driver tries to do something; thread-safe.

    What fails once often fails for each batch of each table, and each attempt costs time. So all of them wait after a
    failure. A pause is twice as long as the last one if the failure lasts.
    """

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``event`` says in the log what happens in a pause."""
        self._event = event
        self._clock = clock
        self._lock = threading.Lock()
        self._pause_s = 0.0
        self._ends = clock()

    @property
    def works(self) -> bool:
        """Whether there is no pause now."""
        with self._lock:
            return self._clock() >= self._ends

    def fail(self, cause: BaseException | None, **where: object) -> None:
        """Begin a pause and log it; nothing if another thread has begun one."""
        with self._lock:
            now = self._clock()
            if now < self._ends:
                return
            is_repeated = now < self._ends + _LASTING * self._pause_s
            self._pause_s = min(2 * self._pause_s, LONGEST_PAUSE_S) if is_repeated else FIRST_PAUSE_S
            self._ends = now + self._pause_s
            seconds = self._pause_s
        text = " ".join(f"{type(cause).__name__}: {cause}".splitlines()[:2])
        log.warning(self._event, seconds=seconds, cause=text, **where)
