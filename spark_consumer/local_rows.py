"""Rows of a DataFrame in the driver: plans that read them need no job, and nothing is computed again."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_LOCAL: Final = "org.apache.spark.sql.catalyst.plans.logical.LocalRelation"


def local_rows(rows: DataFrame) -> DataFrame:
    """Compute rows and return them as a DataFrame of values that are known. The rows stay in the JVM."""
    spark = rows.sparkSession
    execution = _execution(rows)
    data = _computed(spark, execution)
    none = java_class(spark, "scala.Option").empty()
    relation = java_class(spark, _LOCAL)(execution.analyzed().output(), data, False, none)
    datasets: Any = java_class(spark, "org.apache.spark.sql.classic.Dataset")
    return DataFrame(datasets.ofRows(_session(spark), relation), spark)


def row_sequence(rows: DataFrame) -> Any:
    """Compute rows and return them as a sequence of Scala with internal rows."""
    return _computed(rows.sparkSession, _execution(rows))


def read_bytes(rows: DataFrame) -> int:
    """Return an estimate of the bytes that rows are computed from; exact for what is cached."""
    leaves = _execution(rows).optimizedPlan().collectLeaves()
    return sum(int(str(leaves.apply(index).stats().sizeInBytes())) for index in range(leaves.size()))


def _computed(spark: SparkSession, execution: Any) -> Any:
    found = execution.executedPlan().executeCollect()
    return companion(spark, "scala.collection.immutable.ArraySeq").unsafeWrapArray(found)


def _execution(rows: DataFrame) -> Any:
    return rows._jdf.queryExecution()  # noqa: SLF001


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession  # noqa: SLF001
