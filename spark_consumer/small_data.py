"""Little data in a session: planning and compiling takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Generic, TypeVar

from pyspark.sql.utils import is_remote

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Built = TypeVar("Built")

_MOST: Final = 4096


class ColumnCache(Generic[Built]):
    """Columns of DataFrames that were built for a key: each function in a column takes several calls to the JVM.

    Several threads may use it. It is emptied when it is full.
    """

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


SMALL_OFFSETS: Final = 2000
"""A range of at most so many offsets is small."""
SMALL_TABLE: Final = 32 << 20
SMALL_FILES: Final = 8
"""A target of at most so many bytes in so many files is small."""

_BY_OPERATOR: Final = {
    "spark.sql.codegen.wholeStage": "false",
    # Adaptive planning runs a job for each exchange, and one more to fill a cache.
    "spark.sql.adaptive.enabled": "false",
    # Each job begins with a text of its plan for the user interface; the default form lists every operator twice.
    "spark.sql.ui.explainMode": "simple",
}
_INTERPRETED: Final = {**_BY_OPERATOR, "spark.sql.codegen.factoryMode": "NO_CODEGEN"}


@contextmanager
def interpreted(spark: SparkSession, *, when: bool) -> Iterator[None]:
    """Interpret the plans of the block instead of compiling them, if ``when`` holds.

    Each table has plans of its own, so that code would be compiled for each of them.
    """
    with with_settings(spark, _INTERPRETED if when else {}):
        yield


@contextmanager
def by_operator(spark: SparkSession, *, when: bool) -> Iterator[None]:
    """Compile the expressions of the block, but no whole stages, and plan it once, if ``when`` holds."""
    with with_settings(spark, _BY_OPERATOR if when else {}):
        yield


@contextmanager
def with_settings(spark: SparkSession, settings: Mapping[str, str]) -> Iterator[None]:
    """Change settings of a session for the block."""
    before = {name: spark.conf.get(name, None) for name in settings}
    try:
        for name, value in settings.items():
            spark.conf.set(name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                spark.conf.unset(name)
            else:
                spark.conf.set(name, earlier)
