"""Writes rows in the background of a test."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.database import Database

_NUMBERS: Final = itertools.count(1)
"""Numbers of transactions: a second writer of one table must not use the same keys."""


@contextmanager
def writing(database: Database, change: Callable[[Any, int], None], *, pause_s: float) -> Iterator[None]:
    """Run ``change(cursor, number)`` in one transaction after another; raise its exception at the end of the block.

    Every number is new; ``pause_s`` seconds pass between two transactions.
    """
    stop = threading.Event()
    failure: list[BaseException] = []

    def write() -> None:
        try:
            with database.connect() as session, session.cursor() as cursor:
                while not stop.is_set():
                    cursor.execute("START TRANSACTION")
                    change(cursor, next(_NUMBERS))
                    cursor.execute("COMMIT")
                    stop.wait(pause_s)
        except BaseException as error:  # noqa: BLE001 - raised again by the test's thread
            failure.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failure, failure
