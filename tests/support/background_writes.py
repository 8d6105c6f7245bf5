"""Somebody who changes rows all the time, beside the test."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final

from tests.support.database import Database

_NUMBERS: Final = itertools.count(1)
"""Of transactions: a second writer of one table must not make the same keys."""


@contextmanager
def writing(database: Database, change: Callable[[Any, int], None], *, pause_s: float) -> Iterator[None]:
    """Run ``change(cursor, number)`` as one transaction after another; raise what it raised at the block's end.

    The number is another one each time; ``pause_s`` seconds lie between two transactions.
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
