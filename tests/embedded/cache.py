"""The folder that keeps what tests fetch, unpack or install, and its locks."""

from __future__ import annotations

import contextlib
import fcntl
import os
from collections.abc import Iterator
from pathlib import Path


def cache_dir() -> Path:
    """Return the cache folder: TAILRACE_CACHE, else XDG_CACHE_HOME/tailrace, else ~/.cache/tailrace."""
    if named := os.environ.get("TAILRACE_CACHE"):
        folder = Path(named)
    elif xdg := os.environ.get("XDG_CACHE_HOME"):
        folder = Path(xdg) / "tailrace"
    else:
        folder = Path.home() / ".cache" / "tailrace"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


@contextlib.contextmanager
def locked(name: str) -> Iterator[None]:
    """Hold the cache's lock ``name``, so that two processes do not do the same work."""
    locks = cache_dir() / "locks"
    locks.mkdir(exist_ok=True)
    with (locks / name).open("w") as handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
