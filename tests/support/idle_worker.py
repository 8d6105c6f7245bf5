"""Snapshot readers that read nothing: they report their processes. One then waits for a server, one for its task."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any

from tailrace.producer.snapshot.workers import OpenReader, serve_pipe


def main(worker: int, pipe: Pipe) -> None:
    """Run in a worker process."""

    def new_opener(word: str) -> OpenReader:
        def open_reader(on_rows: Callable[[str, int], None]) -> Any:
            on_rows(word, os.getpid())
            if worker:
                threading.Event().wait()

        return open_reader

    serve_pipe(worker, new_opener, pipe)
