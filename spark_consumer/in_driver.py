"""What the driver does by itself where queries could do the same; a failure of it turns it off for a while.

To analyze, plan and run a query for ten rows costs many times what the rows cost. Spark's interpreted expressions
compute the same values without a query: the columns of a DataFrame are planned once, as functions of rows, and used for
the rows of each later batch. Plans that read rows of the driver need no job, and nothing is computed again.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql import types as tp

PAUSE_S: Final = 120.0

log = structlog.get_logger(__name__)


class DriverPath:
    """Whether the driver tries to do something; thread-safe.

    What fails once often fails for each batch of each table, and each attempt costs time. So all of them wait after a
    failure.
    """

    def __init__(self, event: str, clock: Callable[[], float] = time.monotonic) -> None:
        """``event`` says in the log what happens in a pause."""
        self._event = event
        self._clock = clock
        self._lock = threading.Lock()
        self._ends = clock()

    @property
    def works(self) -> bool:
        """Whether there is no pause now."""
        with self._lock:
            return self._clock() >= self._ends

    def fail(self, cause: BaseException | None, **where: object) -> None:
        """Begin a pause and log it; nothing if another thread has begun one."""
        with self._lock:
            now = self._clock()
            if now < self._ends:
                return
            self._ends = now + PAUSE_S
        text = " ".join(f"{type(cause).__name__}: {cause}".splitlines()[:2])
        log.warning(self._event, seconds=PAUSE_S, cause=text, **where)


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


def literal_rows(spark: SparkSession, rows: Sequence[Mapping[str, Any]], fields: str) -> DataFrame:
    """Return rows with the columns ``fields``; the values are those of JSON.

    ``createDataFrame`` needs Python workers on the executors.
    """
    text = fn.lit(json.dumps(rows))
    parsed = fn.from_json(text, f"array<struct<{fields}>>")
    return spark.range(1).select(fn.explode(parsed).alias("row")).select("row.*")
