"""Finds the topics of a batch in the offset log that Spark keeps in the checkpoint.

If a batch has records of one table only, its raw records need no cache. The format of the offset log is internal to
Spark: if it is not as expected, the result is None and the pipeline finds the topics in the records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def topics_of_batch(spark: SparkSession, checkpoint: str, batch_id: int) -> set[str] | None:
    """Return the topics whose offsets advance in a batch, or None if the offset log cannot be read."""
    end = _offsets(spark, checkpoint, batch_id)
    start = {} if batch_id == 0 else _offsets(spark, checkpoint, batch_id - 1)
    if end is None or start is None:
        return None
    return {topic for topic, partitions in end.items() if partitions != start.get(topic)}


def _offsets(spark: SparkSession, checkpoint: str, batch_id: int) -> dict[str, Any] | None:
    jvm: Any = spark._jvm  # noqa: SLF001 - the only access to the cluster's file systems
    session: Any = spark._jsparkSession  # noqa: SLF001
    path = jvm.org.apache.hadoop.fs.Path(f"{checkpoint.rstrip('/')}/offsets/{batch_id}")
    try:
        stream = path.getFileSystem(session.sessionState().newHadoopConf()).open(path)
        try:
            text = jvm.org.apache.commons.io.IOUtils.toString(stream, "UTF-8")
        finally:
            stream.close()
    except Py4JError:
        return None
    return parse(text)


def parse(text: str) -> dict[str, Any] | None:
    """Return ``{topic: {partition: offset}}`` of an offset log entry with one source, or None."""
    lines = text.splitlines()
    if len(lines) != 3 or lines[0] != "v1":
        return None
    try:
        offsets = json.loads(lines[2])
    except json.JSONDecodeError:
        return None
    valid = isinstance(offsets, dict) and all(isinstance(partitions, dict) for partitions in offsets.values())
    return offsets if valid else None
