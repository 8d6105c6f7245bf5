"""What is known of a split whose reader is ended: in Kafka, not in Kafka, or unknown."""

from __future__ import annotations

import os
from multiprocessing.connection import Connection as Pipe
from types import SimpleNamespace
from typing import Any

import pytest

from tailrace.producer.snapshot.workers import ProcessWorkers, SplitCommitting, SplitFailed, SplitFinished
from tailrace.runtime.errors import Retryable

RESULT: Any = SimpleNamespace()
FINISHED = SplitFinished(0, RESULT)
SPLIT: Any = SimpleNamespace(id="t:1")
TASK: Any = SimpleNamespace(split=SPLIT)


class Reader:
    """The other end of a pipe, whose process ends when it is told to."""

    def __init__(self, _worker: int, pipe: Pipe) -> None:
        self.pipe = Pipe(os.dup(pipe.fileno()))

    def exit_code(self) -> int | None:
        return -9

    def end(self) -> None:
        self.pipe.close()


@pytest.mark.parametrize(
    ("received", "sent", "held", "expected"),
    [
        ([], [], SPLIT, None),
        ([], [SplitCommitting(0)], None, None),
        ([SplitCommitting(0)], [], None, None),
        ([], [SplitCommitting(0), FINISHED], None, FINISHED),
        ([SplitCommitting(0)], [FINISHED], None, FINISHED),
    ],
    ids=["reading", "committing", "known to commit", "finished", "finished after a known commit"],
)
def test_last_message_decides(received: list[Any], sent: list[Any], held: Any, expected: SplitFinished | None) -> None:
    """Only a split whose commit has not begun is put off; after a commit without a result, the session has to end."""
    workers = ProcessWorkers(1, Reader)
    try:
        workers.begin("argument")
        workers.submit(0, TASK)
        [reader] = workers._processes
        assert isinstance(reader, Reader)
        for message in received:
            reader.pipe.send(message)
            assert workers.next(10) is None
        assert workers.give_up({"t:2"}) is None
        for message in sent:
            reader.pipe.send(message)

        found = workers.give_up({"t:1"})

        if expected is not None:
            assert found is expected or found == expected
        else:
            assert isinstance(found, SplitFailed)
            assert found.held == held
            assert isinstance(found.error, Retryable)
        [successor] = workers._processes
        assert isinstance(successor, Reader)
        assert successor.pipe.recv() == ("argument",)
        assert workers.give_up({"t:1"}) is None
    finally:
        workers.close()
