"""Names the record for which an expression of a transform fails: Spark's error has the values, but not the record.

Nothing is done before something fails, nor if tasks run out of memory or lose their executors. Otherwise the records
are transformed again, half by half, until one is left.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import functions as fn

from tailrace.runtime.errors import TailraceError
from tailrace.spark_consumer.errors import BadRecord, TransformError, concerns_all_tables
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.java_errors import ends_executors, summary
from tailrace.spark_consumer.spark_line import silence_contexts

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

    from tailrace.spark_consumer.transform.table_transform import TableTransform


@contextmanager
def failures_named(records: DataFrame, transform: TableTransform, images: Images) -> Iterator[None]:
    """Replace an error of the block by one that names a record, if the transform of ``records`` fails.

    ``records`` are decoded, and cached where there are many.
    """
    try:
        yield
    except TailraceError:
        raise
    except (PySparkException, Py4JJavaError) as error:
        # The search would end the executors of its tasks too, at each of its steps.
        searched = not (concerns_all_tables(error) or ends_executors(error))
        found = failing_record(records, transform, images) if searched else None
        if found is None:
            raise
        raise found from error


def failing_record(records: DataFrame, transform: TableTransform, images: Images) -> TransformError | None:
    """Return an error that names the first record of the lowest partition that fails; None if none does."""
    silence_contexts()  # an error that names the record is reported here
    if not transform.computes or _failure(records, transform, images) is None:
        return None
    offset = fn.col("offset")
    bounds = records.groupBy("partition").agg(fn.min(offset).alias("first"), fn.max(offset).alias("last"))
    for partition, first, last in sorted(tuple(row) for row in bounds.collect()):
        own = records.where(fn.col("partition") == partition)
        error = _failure(own, transform, images)
        if error is None:
            continue
        start, end = first, last + 1
        while end - start > 1:
            middle = (start + end) // 2
            earlier = _failure(own.where(offset.between(start, middle - 1)), transform, images)
            start, end = (middle, end) if earlier is None else (start, middle)
            error = earlier or error
        source, reason = transform.source, summary(error)
        found = TransformError(
            f"the transform of {source.database}.{source.table} fails for a record: topic {source.topic}, "
            f"partition {partition}, offset {start}: {reason}",
            hint="use a function that returns NULL, such as try_cast or try_divide, and start again",
        )
        found.record = BadRecord(source.topic, partition, start, reason)
        return found
    return None


def _failure(records: DataFrame, transform: TableTransform, images: Images) -> Exception | None:
    """Return the error of a job that computes everything the sink gets of some records."""
    try:
        transform.apply(records, images).write.format("noop").mode("overwrite").save()
    except (PySparkException, Py4JJavaError) as error:
        if concerns_all_tables(error) or ends_executors(error):
            raise
        return error
    return None
