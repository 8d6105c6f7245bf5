"""Changes rows in a background thread."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.database import Database

_NUMBERS: Final = itertools.count(1)
"""Numbers of transactions: a second writer must not create the same keys."""


@contextmanager
def background_writes(database: Database, change: Callable[[Any, int], None], *, pause_s: float) -> Iterator[None]:
    """Run transactions of ``change(cursor, number)`` with pauses of ``pause_s`` seconds until the block ends.

    Every transaction has its own number. Errors of the thread are raised at the end.
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
        except BaseException as error:  # noqa: BLE001 - raised in the thread of the test
            failure.append(error)

    thread = threading.Thread(target=write)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    assert not failure, failure
