"""Columns of a DataFrame as functions of rows in the driver: planned once, and used for the rows of each later batch.

To analyze, plan and run a query for ten rows costs many times what the rows cost. Spark's interpreted expressions
compute the same values without a query.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import DataFrame

from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql import types as tp

_PROJECTION: Final = "org.apache.spark.sql.catalyst.expressions.InterpretedProjection"

_SESSIONS: Final = "org.apache.spark.sql.classic.SparkSession"


class NotPlannedError(Exception):
    """A DataFrame does not compute each row from one row."""


def rows_of_type(spark: SparkSession, schema: tp.StructType) -> DataFrame:
    """Return a DataFrame of a type, to be planned and not to be computed: it has no rows."""
    session: Any = spark._jsparkSession  # noqa: SLF001 - the only access to the JVM
    context: Any = spark.sparkContext
    nothing = context._jsc.emptyRDD().rdd()  # noqa: SLF001
    # The optimizer does not know that it is empty, as it would of a relation without rows.
    return DataFrame(session.internalCreateDataFrame(nothing, session.parseDataType(schema.json()), False), spark)


def set_active(spark: SparkSession) -> None:
    """Let expressions that are computed on this thread see the settings of a session."""
    java_class(spark, _SESSIONS).setActiveSession(spark._jsparkSession)  # noqa: SLF001


class RowFunction:
    """Computes the columns of a DataFrame for other rows; for one thread at a time."""

    def __init__(self, rows: DataFrame) -> None:
        """``rows`` are selected from ``rows_of_type``. Raises NotPlannedError."""
        self._spark = spark = rows.sparkSession
        plan = rows._jdf.queryExecution().optimizedPlan()  # noqa: SLF001
        steps = []
        while plan.nodeName() == "Project":
            steps.append(java_class(spark, _PROJECTION)(plan.projectList(), plan.child().output()))
            plan = plan.child()
        if int(plan.children().size()):
            raise NotPlannedError(str(plan.nodeName()))
        self.steps = steps[::-1]
        """Functions of Scala."""

    def of(self, rows: Any) -> Any:
        """Return the results for a collection of Scala with internal rows, whose columns are those of the type."""
        buffers = companion(self._spark, "scala.collection.mutable.ArrayBuffer")
        return getattr(buffers, "from")(self._results(rows))

    def json(self, rows: Any) -> list[Any]:
        """Return the results of one column, which is JSON."""
        return [value for [value] in json.loads(f"[{self._results(rows).mkString(',')}]")]

    def _results(self, rows: Any) -> Any:
        # Each row passes all steps before the next one: a step may return the same object for each row, as the parser
        # of JSON does. Rows within a row are new.
        results = rows.iterator()
        for step in self.steps:
            results = results.map(step)
        return results
