"""One call beside the caller's own work, in the same Spark session: what waits for the driver fills idle cores."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from pyspark.util import InheritableThread

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

POOL: Final = "tailrace-beside"
"""Scheduler pool of its jobs: where the scheduler is FAIR, they do not wait behind all tasks of the caller's."""

_SCHEDULER_POOL: Final = "spark.scheduler.pool"


@contextmanager
def run_in_background(spark: SparkSession, call: Callable[[], None]) -> Iterator[None]:
    """Run ``call`` while the block runs; both have ended when this is left.

    An error of the block goes before one of the call, which is raised where the block has none. The call's jobs belong
    to the block's job group, so that a query that is stopped stops them too.
    """
    failed: list[BaseException] = []

    def run() -> None:
        try:
            spark.sparkContext.setLocalProperty(_SCHEDULER_POOL, POOL)
            call()
        except BaseException as error:  # noqa: BLE001 - raised on the caller's thread
            failed.append(error)

    thread = InheritableThread(target=run, name=POOL, daemon=True)
    thread.start()
    try:
        yield
    finally:
        thread.join()
    if failed:
        raise failed[0]
