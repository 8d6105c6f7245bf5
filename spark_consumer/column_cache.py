"""Keeps columns of DataFrames for later batches: each function in a column takes several calls to the JVM."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import Final, Generic, TypeVar

from pyspark.sql.utils import is_remote

Built = TypeVar("Built")

_MOST: Final = 4096


class ColumnCache(Generic[Built]):
    """What was built for a key; several threads may use it. It is emptied when it is full."""

    def __init__(self) -> None:
        self._known: dict[Hashable, Built] = {}

    def get(self, key: Hashable, build: Callable[[], Built]) -> Built:
        """Return what ``build`` has returned for the key; columns of Spark Connect are kept apart."""
        own = (is_remote(), key)
        found = self._known.get(own)
        if found is None:
            if len(self._known) >= _MOST:
                self._known.clear()
            found = self._known[own] = build()
        return found
