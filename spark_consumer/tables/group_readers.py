"""The Kafka consumers of the driver that read groups of ranges: one for each thread that needs one."""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from tailrace.spark_consumer.driver_path import DriverPath
from tailrace.spark_consumer.source.group_reader import GroupReader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange
    from tailrace.spark_consumer.source.raw_rows import RawRows


class GroupReaders:
    """Keeps the consumers from one batch to the next; several threads use it."""

    def __init__(self, options: Mapping[str, str], most_bytes: int) -> None:
        """As GroupReader."""
        self._options = options
        self._most_bytes = most_bytes
        self._lock = threading.Lock()
        self._idle: list[GroupReader] = []
        self._path = DriverPath("topics are read by jobs for a while")
        self._is_closed = False

    def read(self, spark: SparkSession, ranges: Sequence[TopicRange]) -> dict[str, RawRows] | None:
        """Return the records of some ranges by topic; nothing if they are too large, None if a job must read them.

        Ranges that start at the earliest offset have none: only Kafka knows what that is.
        """
        with self._lock:
            if self._is_closed or not self._path.works:
                return None
            reader = self._idle.pop() if self._idle else None
        try:
            reader = reader or GroupReader(spark, self._options, self._most_bytes)
            wanted = [found for found in ranges if all(each.start >= 0 for each in found.partitions.values())]
            found = reader.read(spark, wanted)
        except Exception as error:  # noqa: BLE001 - the job that reads instead has the error, if it lasts
            self._path.fail(error, topics=len(ranges))
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
