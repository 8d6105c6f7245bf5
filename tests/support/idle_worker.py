"""A snapshot reader that reads nothing: it reports its process, and the one that imported this module."""

from __future__ import annotations

import os
from collections.abc import Callable
from multiprocessing.connection import Connection as Pipe
from typing import Any, Final

from tailrace.producer.snapshot.workers import serve_pipe

IMPORTED_IN: Final = os.getpid()


def main(worker: int, pipe: Pipe) -> None:
    """Run in a worker process."""
    serve_pipe(worker, _open, pipe)


def _open(on_rows: Callable[[str, int], None]) -> Any:
    on_rows("process", os.getpid())
    on_rows("imported in", IMPORTED_IN)
