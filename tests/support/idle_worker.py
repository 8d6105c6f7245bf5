"""Snapshot readers that read nothing: they report their processes. One then waits for a server, one for its task."""

from __future__ import annotations

import os
import threading
from functools import partial
from multiprocessing.connection import Connection as Pipe
from typing import Any

from tailrace.producer.errors import SourceError
from tailrace.producer.snapshot.workers import OpenReader, SplitFailed, serve_pipe


def main(worker: int, pipe: Pipe) -> None:
    """Run in a worker process."""

    def open_reader(word: str) -> Any:
        pipe.send(SplitFailed(worker, SourceError(f"{word} {os.getpid()}")))
        if worker:
            threading.Event().wait()

    def new_opener(word: str) -> OpenReader:
        return partial(open_reader, word)

    serve_pipe(worker, new_opener, pipe)
