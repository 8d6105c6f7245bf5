"""Data files of a Delta table and their deletion vectors, through Delta's classes in the JVM."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterable, Mapping, Sequence
from contextlib import closing
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from tailrace.spark_consumer.jvm import companion, java_class

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_DELTA: Final = "org.apache.spark.sql.delta"
_VECTORS: Final = f"{_DELTA}.deletionvectors"


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
        self._least: dict[str, Any] = stats.get("minValues", {})
        self._greatest: dict[str, Any] = stats.get("maxValues", {})

    def bounds(self, column: str) -> tuple[int, int] | None:
        """Return the least and greatest value of an integer column, by its physical name; None if not known."""
        least, greatest = self._least.get(column), self._greatest.get(column)
        return (least, greatest) if isinstance(least, int) and isinstance(greatest, int) else None


class KnownFiles:
    """The data files of the version that this query has read or committed last.

    Delta has the list of some dozen files in memory only; beyond that a job reads it from the log.
    """

    def __init__(self) -> None:
        self._at: tuple[str, int] | None = None
        self._files: tuple[DataFile, ...] = ()

    def of(self, table: str, version: int) -> tuple[DataFile, ...] | None:
        """Return the files of a version of the table with an id; None if they are not known."""
        return self._files if self._at == (table, version) else None

    def set(self, table: str, version: int, files: Iterable[DataFile]) -> None:
        """Keep the files of a version."""
        self._at, self._files = (table, version), tuple(files)


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
