"""Writes the checkpoints of Delta's logs in the background.

Delta writes one in every tenth commit and reads the whole state of the table for it: that batch takes longer. A
checkpoint only saves readers time, so that one may be missing: the process can end before it is written.
"""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import structlog
from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.spark_consumer.background import POOL
from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_HOOK: Final = "org.apache.spark.sql.delta.hooks.CheckpointHook"
_SESSIONS: Final = "org.apache.spark.sql.classic.SparkSession"

log = structlog.get_logger(__name__)


class Checkpoints:
    """Checkpoints of all tables of a sink, one after the other on a thread of their own."""

    def __init__(self, spark: SparkSession) -> None:
        self._spark = spark
        # The settings of the sessions of tables change while a batch runs.
        self._session: Any = spark._jsparkSession.cloneSession()  # noqa: SLF001
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="tailrace-checkpoint")
        self._last: dict[str, Future[None]] = {}

    def take_from(self, transaction: Any) -> None:
        """Let a transaction of Delta not write the checkpoint in its commit."""
        getattr(transaction.postCommitHooks(), "$minus$eq")(companion(self._spark, _HOOK))

    def after(self, delta_log: Any, version: int) -> None:
        """Write the checkpoint of a committed version if one is due; not if an earlier one is still being written."""
        snapshot = delta_log.unsafeVolatileSnapshot()
        if int(snapshot.version()) != version or version % int(delta_log.checkpointInterval(snapshot.metadata())):
            return
        path = str(delta_log.dataPath().toString())
        last = self._last.get(path)
        if last is None or last.done():
            self._last[path] = self._thread.submit(self._write, delta_log, snapshot)

    def close(self) -> None:
        """Wait for the checkpoint that is being written."""
        self._thread.shutdown(cancel_futures=True)

    def _write(self, delta_log: Any, snapshot: Any) -> None:
        try:
            java_class(self._spark, _SESSIONS).setActiveSession(self._session)
            context = self._spark.sparkContext
            context.setLocalProperty("spark.scheduler.pool", POOL)
            context.setJobDescription(f"{delta_log.dataPath().toString()}: checkpoint")
            delta_log.checkpoint(snapshot, java_class(self._spark, "scala.Option").empty())
        except Py4JError as error:
            cause = " ".join(str(error).splitlines()[:2])
            log.warning("a checkpoint was not written; the next one will be", version=snapshot.version(), cause=cause)
