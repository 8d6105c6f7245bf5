"""Settings of a session while it processes little data: planning and compiling takes longer than the work itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
