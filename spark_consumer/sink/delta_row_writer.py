"""Writes rows that the driver has to a file of a Delta table without a job, through the classes of Delta's tasks.

A job with one task costs more than a small file: its plan is analyzed, described for the user interface, serialized and
scheduled. What depends on the columns of the table only is prepared once (``RowLayout``).
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

_DELTA: Final = "org.apache.spark.sql.delta"
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"
_SEQUENCES: Final = "org.apache.spark.api.python.PythonUtils"


class RowLayout:
    """How the rows of a table are written, as Delta derives it from the metadata of the table."""

    def __init__(self, spark: SparkSession, transaction: Any, stored: DataFrame) -> None:
        """``stored`` are rows of the table in the version that the transaction of Delta reads."""
        log, metadata = transaction.deltaLog(), transaction.metadata()
        rows, none = stored._jdf, java_class(spark, "scala.Option").empty()  # noqa: SLF001
        normalized = transaction.normalizeData(log, none, rows)
        self.output: Any = normalized._2()  # noqa: SLF001
        """The columns of the file."""
        checks = companion(spark, f"{_DELTA}.constraints.Constraints").getAll(metadata, _session(spark))
        self.is_plain = bool(
            normalized._3().isEmpty()  # noqa: SLF001
            and checks.isEmpty()
            and metadata.partitionColumns().isEmpty()
        )
        """Whether nothing is checked, computed, or stored in the path of the file."""
        types = companion(spark, "org.apache.spark.sql.catalyst.types.DataTypeUtils")
        self.schema: Any = types.fromAttributes(self.output)
        pair = transaction.getOptionalStatsTrackerAndStatsCollection(
            self.output, log.dataPath(), metadata.physicalPartitionSchema(), rows
        )
        found = pair._1()  # noqa: SLF001
        self._statistics = None if found.isEmpty() else (found.get().dataCols(), found.get().statsColExpr())

    def statistics(self, spark: SparkSession, log: Any) -> Any | None:
        """Return what collects the statistics of a file; None if there are none."""
        if self._statistics is None:
            return None
        tracker = java_class(spark, f"{_DELTA}.stats.DeltaJobStatisticsTracker")
        return tracker(log.newDeltaHadoopConf(), log.dataPath(), *self._statistics)


def write_rows(spark: SparkSession, transaction: Any, layout: RowLayout, rows: Any) -> list[Any]:
    """Write rows to a new file and return the actions that add it.

    ``rows`` is a collection of Scala with internal rows in the columns of the table.
    """
    log, metadata = transaction.deltaLog(), transaction.metadata()
    getattr(transaction, "hasWritten_$eq")(True)
    options = getattr(metadata.configuration(), "$plus$plus")(log.options())
    job = java_class(spark, "org.apache.hadoop.mapreduce.Job").getInstance(
        _session(spark).sessionState().newHadoopConfWithOptions(options)
    )
    nothing = companion(spark, "scala.collection.immutable.Map").empty()
    files = log.fileFormat(transaction.protocol(), metadata)
    factory = files.prepareWrite(_session(spark), job, nothing, layout.schema)
    conf = java_class(spark, "org.apache.spark.util.SerializableConfiguration")(job.getConfiguration())
    basic = java_class(spark, f"{_SOURCES}.BasicWriteJobStatsTracker")
    counts = basic(conf, basic.metrics())
    # The history of the table tells them.
    transaction.registerSQLMetrics(_session(spark), counts.driverSideMetrics())
    statistics = layout.statistics(spark, log)
    trackers = [counts] if statistics is None else [counts, statistics]
    description = java_class(spark, f"{_SOURCES}.WriteJobDescription")(
        "",
        conf,
        factory,
        layout.output,
        layout.output,
        sequence(spark),
        java_class(spark, "scala.Option").empty(),
        log.dataPath().toString(),
        nothing,
        0,
        spark.conf.get("spark.sql.session.timeZone"),
        sequence(spark, *trackers),
    )
    committer = transaction.getCommitter(log.dataPath())
    result, context = _run_task(spark, description, committer, rows)
    for index, tracker in enumerate(trackers):
        tracker.processStats(sequence(spark, result.summary().stats().apply(index)), 0)
    committer.commitJob(context, sequence(spark, result.commitMsg()))
    # A session or a table can have compaction after each commit.
    transaction.registerPostCommitHook(companion(spark, f"{_DELTA}.hooks.AutoCompact"))
    added = committer.addedStatuses()
    return [_with_statistics(spark, added.apply(index), statistics) for index in range(int(added.size()))]


def sequence(spark: SparkSession, *values: Any) -> Any:
    """Return a sequence of Scala."""
    listed = java_class(spark, "java.util.ArrayList")()
    for value in values:
        listed.add(value)
    return java_class(spark, _SEQUENCES).toSeq(listed)


def _run_task(spark: SparkSession, description: Any, committer: Any, rows: Any) -> tuple[Any, Any]:
    """Do what a task of Spark does; return its result and its context."""
    attempt = java_class(spark, "org.apache.hadoop.mapreduce.TaskAttemptID")
    context = java_class(spark, "org.apache.hadoop.mapreduce.task.TaskAttemptContextImpl")(
        description.serializableHadoopConf().value(), attempt()
    )
    committer.setupTask(context)
    metrics = companion(spark, "scala.collection.immutable.Map").empty()
    writer = java_class(spark, f"{_DELTA}.files.DeltaSingleDirectoryDataWriter")(
        description, context, committer, metrics
    )
    try:
        writer.writeWithIterator(rows.iterator())
        return writer.commit(), context
    except BaseException:
        writer.abort()
        raise
    finally:
        writer.close()


def _with_statistics(spark: SparkSession, action: Any, statistics: Any | None) -> Any:
    if statistics is None:
        return action
    found = json.loads(action.json())
    found["add"]["stats"] = statistics.recordedStats().apply(action.toPath().getName())
    return companion(spark, f"{_DELTA}.actions.Action").fromJson(json.dumps(found))


def _session(spark: SparkSession) -> Any:
    return spark._jsparkSession  # noqa: SLF001
