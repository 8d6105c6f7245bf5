"""Runs one call in a background thread of the same Spark session, to use cores that are idle while the driver waits."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.util import InheritableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL: Final = "tailrace-background"
"""Scheduler pool of the background jobs. With a FAIR scheduler they do not wait for the tasks of the foreground."""

_SCHEDULER_POOL: Final = "spark.scheduler.pool"


@contextmanager
def run_in_background(spark: SparkSession, call: Callable[[], None]) -> Iterator[None]:
    """Run ``call`` while the block runs, and wait for it at the end of the block.

    An error of the block takes precedence over an error of the call. The call's jobs belong to the job group of the
    block, so stopping the query stops them too.
    """
    errors: list[BaseException] = []

    def run() -> None:
        try:
            spark.sparkContext.setLocalProperty(_SCHEDULER_POOL, POOL)
            call()
        except BaseException as error:  # noqa: BLE001 - raised again on the caller's thread
            errors.append(error)

    thread = InheritableThread(target=run, name=POOL, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if errors:
        raise errors[0]
