"""Transactions in a background thread of a demo."""

from __future__ import annotations

import random
import threading
import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from tests.demo import sample_database
from tests.demo.deployment import Source

if TYPE_CHECKING:
    from pymysql import Connection


class Transactions(ABC):
    """Runs transactions of the sample database, at most ``rate`` per second, until stopped."""

    def __init__(self, server: Source, name: str, *, rate: float) -> None:
        """``name``: of the thread."""
        self._server = server
        self._pause_s = 1 / rate
        self._stop = threading.Event()
        self._rng = random.Random(11)
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._failure: BaseException | None = None
        self.changes = 0

    @abstractmethod
    def run_one(self, session: Connection[Any]) -> None:
        """Run one transaction; the session does not commit by itself."""

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Stop after the current transaction. Raise the error of the thread, if any."""
        self._stop.set()
        self._thread.join(300)
        self.check()

    def check(self) -> None:
        """Raise the error that ended the thread, if any."""
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        try:
            with self._server.connect(database=sample_database.DATABASE, autocommit=False) as session:
                due = time.monotonic()
                while not self._stop.is_set():
                    self.run_one(session)
                    due = max(due + self._pause_s, time.monotonic() - 1)  # catch up at most one second
                    self._stop.wait(max(0.0, due - time.monotonic()))
        except BaseException as error:  # noqa: BLE001 - raised by check()
            self._failure = error
