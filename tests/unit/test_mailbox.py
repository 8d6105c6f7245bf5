"""The mailbox of the stream's thread, and the resources of a capture session."""

from __future__ import annotations

import threading

import pytest

from tailrace.producer.app.resources import Resources
from tailrace.producer.streaming.mailbox import CaptureStoppedError, Mailbox


def test_a_call_returns_the_result_of_the_other_thread() -> None:
    woken, stop = threading.Event(), threading.Event()
    mailbox = Mailbox(woken.set, stop)

    def serve() -> None:
        while not mailbox.wait(0.05):
            pass

    stream = threading.Thread(target=serve)
    stream.start()

    assert mailbox.call(threading.current_thread) is stream
    stream.join()
    assert woken.is_set()


def test_an_error_reaches_both_threads() -> None:
    """The stream must not continue after a failed request."""
    mailbox = Mailbox(lambda: None, threading.Event())

    def fail() -> None:
        raise ValueError("no")

    future = mailbox.submit(fail)
    with pytest.raises(ValueError, match="no"):
        mailbox.run_pending()
    with pytest.raises(ValueError, match="no"):
        future.result(timeout=0)


def test_a_stop_ends_a_call() -> None:
    stop = threading.Event()
    stop.set()
    mailbox = Mailbox(lambda: None, stop)

    with pytest.raises(CaptureStoppedError):
        mailbox.call(lambda: None)


def test_pending_functions_run_in_order() -> None:
    mailbox = Mailbox(lambda: None, threading.Event())
    found: list[int] = []
    for number in range(3):
        mailbox.submit(lambda number=number: found.append(number))  # type: ignore[misc]

    mailbox.run_pending()

    assert found == [0, 1, 2]
    assert not mailbox.wait(0.001)


class Resource:
    """Remembers in which order resources are closed."""

    def __init__(self, name: str, closed: list[str]) -> None:
        self.name = name
        self.closed = closed

    def close(self) -> None:
        self.closed.append(self.name)
        if self.name == "broken":
            raise OSError("already closed")


def test_resources_close_in_reverse_order_even_if_one_fails() -> None:
    closed: list[str] = []
    with Resources() as resources:
        for name in ("first", "broken", "last"):
            assert resources.add(Resource(name, closed)).name == name

    assert closed == ["last", "broken", "first"]
