"""Data files of a Delta table and their deletion vectors, through Delta's classes in the JVM.

Rows that the driver has are written to a file without a job, by the classes of Delta's tasks (``write_rows``). A job
with one task costs more than a small file: its plan is analyzed, described for the user interface, serialized and
scheduled. What depends on the columns of the table only is prepared once (``RowLayout``).
"""

from __future__ import annotations

import json
import struct
import threading
from collections import OrderedDict
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MOST_FILES: Final = 256
"""The driver looks at the statistics of at most so many files of a table."""

_DELTA: Final = "org.apache.spark.sql.delta"
_VECTORS: Final = f"{_DELTA}.deletionvectors"
_SOURCES: Final = "org.apache.spark.sql.execution.datasources"
_SEQUENCES: Final = "org.apache.spark.api.python.PythonUtils"


class DataFile:
    """A data file of a version of a table."""

    def __init__(self, action: Any) -> None:
        """``action`` is the AddFile action of Delta."""
        self.action = action
        found: dict[str, Any] = json.loads(action.json())["add"]
        stats: dict[str, Any] = json.loads(found.get("stats") or "{}")
        self.path: str = found["path"]
        self.size: int = found["size"]
        self.records: int | None = stats.get("numRecords")
        """The rows with those that are deleted; None if the table has no statistics of the file."""
        self.content = json.dumps([self.path, found.get("deletionVector")], sort_keys=True)
        """What tells the rows of the table in it: a file is never changed, rows of it are only marked as deleted."""
        greatest = stats.get("maxValues", {})
        self._bounds = {
            name: (least, greatest[name])
            for name, least in stats.get("minValues", {}).items()
            if isinstance(least, int) and isinstance(greatest.get(name), int)
        }

    def bounds(self, column: str) -> tuple[int, int] | None:
        """Return the least and greatest value of an integer column, by its physical name; None if not known."""
        return self._bounds.get(column)


class Stamp(NamedTuple):
    """A version of a table. Its number alone does not tell it: a copy may have been put back, and committed to."""

    version: int
    committed_ms: int


class KnownFiles:
    """The data files of the versions that this query has read or committed last.

    Delta has the list of some dozen files in memory only; beyond that a job reads it from the log. Those of the tables
    changed last are kept, at most ``tables`` with ``MOST_FILES`` files each. A file holds memory of the JVM as long as
    its statistics are, some KB for 32 columns. Thread-safe; one thread at a time writes a table.
    """

    def __init__(self, tables: int = 100) -> None:
        self._most = tables
        self._lock = threading.Lock()
        self._lists: OrderedDict[str, tuple[tuple[str, Stamp], tuple[DataFile, ...]]] = OrderedDict()

    def of(self, path: str, table: str, version: Stamp) -> tuple[DataFile, ...] | None:
        """Return the files of a version of the table with an id; None if they are not known."""
        with self._lock:
            at, files = self._lists.get(path, (None, ()))
            return files if at == (table, version) else None

    def set(self, path: str, table: str, version: Stamp, files: Iterable[DataFile]) -> None:
        """Keep the files of a version, unless they are too many."""
        listed = tuple(files)
        with self._lock:
            self._lists.pop(path, None)
            if len(listed) <= MOST_FILES:
                self._lists[path] = (table, version), listed
            while len(self._lists) > self._most:
                self._lists.popitem(last=False)


class Deletions(NamedTuple):
    """What deletes rows of some files."""

    actions: list[Any]
    marked: list[DataFile]
    """The files that have further rows, with their new deletion vectors."""


def deletions(spark: SparkSession, log: Any, deleted: Mapping[DataFile, Sequence[int]]) -> Deletions:
    """Return the actions that delete rows, which are numbered in each file.

    A file without further rows is removed. The bitmaps of the others are in one new file of deletion vectors.
    """
    path = log.dataPath()
    store = companion(spark, f"{_DELTA}.storage.dv.DeletionVectorStore").createInstance(log.newDeltaHadoopConf())
    actions, bitmaps = [], {}
    for file, rows in deleted.items():
        bitmap = java_class(spark, f"{_VECTORS}.RoaringBitmapArray")()
        earlier = file.action.deletionVector()
        if earlier is not None:
            bitmap.merge(companion(spark, f"{_VECTORS}.StoredBitmap").create(earlier, path).load(store))
        bitmap.addAll(_longs(spark, rows))
        if int(bitmap.cardinality()) == file.records:
            actions.append(file.action.remove())
        else:
            bitmaps[file] = bitmap
    changed = _marked(spark, store, path, bitmaps) if bitmaps else []
    for pair in changed:
        actions += [pair.productElement(0), pair.productElement(1)]
    return Deletions(actions, [DataFile(pair.productElement(0)) for pair in changed])


def _marked(spark: SparkSession, store: Any, path: Any, bitmaps: Mapping[DataFile, Any]) -> list[Any]:
    """Write bitmaps and return for each file the actions that add it with its bitmap and remove it without."""
    portable = java_class(spark, f"{_VECTORS}.RoaringBitmapArrayFormat").Portable()
    descriptor = companion(spark, f"{_DELTA}.actions.DeletionVectorDescriptor")
    option = java_class(spark, "scala.Option")
    identifier = java_class(spark, "java.util.UUID").randomUUID()
    changed = []
    with closing(
        store.createWriter(store.generateFileNameInTable(store.pathWithFileSystem(path), identifier, ""))
    ) as to:
        for file, bitmap in bitmaps.items():
            written = to.write(bitmap.serializeAsByteArray(portable))
            begin, size, count = option.apply(written.offset()), written.length(), bitmap.cardinality()
            vector = descriptor.onDiskWithRelativePath(identifier, "", size, count, begin, option.empty())
            changed.append(file.action.removeRows(vector, True, True))
    return changed


def _longs(spark: SparkSession, values: Sequence[int]) -> Any:
    """Return a sequence of Scala, in few calls to the JVM."""
    packed = struct.pack(f">{len(values)}q", *values)
    gateway: Any = spark.sparkContext._gateway  # noqa: SLF001
    array = gateway.new_array(gateway.jvm.long, len(values))
    java_class(spark, "java.nio.ByteBuffer").wrap(packed).asLongBuffer().get(array)
    return companion(spark, "scala.collection.immutable.ArraySeq").unsafeWrapArray(array)


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
