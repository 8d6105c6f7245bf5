"""The Kafka consumers of the driver that read groups of ranges: one for each thread that needs one."""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

import structlog

from tailrace.spark_consumer.source.group_reader import GroupReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange
    from tailrace.spark_consumer.source.raw_rows import RawRows

_RETRY_S: Final = 60
"""After a failure jobs read for so long: what fails for one group often fails for others, and each one may wait."""

log = structlog.get_logger(__name__)


class GroupReaders:
    """Keeps the consumers from one batch to the next; several threads use it."""

    def __init__(self, options: Mapping[str, str], most_bytes: int) -> None:
        """As GroupReader."""
        self._options = options
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._idle: list[GroupReader] = []
        self._not_before = 0.0
        self._is_closed = False

    def read(self, spark: SparkSession, ranges: Sequence[TopicRange]) -> dict[str, RawRows] | None:
        """Return the records of some ranges by topic; nothing if they are too large, None if a job must read them.

        Ranges that start at the earliest offset have none: only Kafka knows what that is.
        """
        with self._lock:
            if self._is_closed or time.monotonic() < self._not_before:
                return None
            reader = self._idle.pop() if self._idle else None
        try:
            reader = reader or GroupReader(spark, self._options, self._most_bytes)
            wanted = [found for found in ranges if all(each.start >= 0 for each in found.partitions.values())]
            found = reader.read(spark, wanted)
        except Exception as error:  # noqa: BLE001 - the job that reads instead has the error, if it lasts
            with self._lock:
                self._not_before = time.monotonic() + _RETRY_S
            cause = " ".join(f"{type(error).__name__}: {error}".splitlines()[:2])
            log.warning("topics are read by jobs for a while", topics=len(ranges), seconds=_RETRY_S, cause=cause)
            if reader is not None:
                reader.close()
            return None
        with self._lock:
            if not self._is_closed:
                self._idle.append(reader)
                return found
        reader.close()
        return found

    def close(self) -> None:
        """Close the consumers; those that are in use are closed after their read."""
        with self._lock:
            self._is_closed = True
            idle, self._idle = self._idle, []
        for reader in idle:
            reader.close()
