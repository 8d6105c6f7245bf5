"""The log of a Delta table at a path, through Delta's classes in the JVM: what it has in memory needs no Spark job.

A commit of a small table costs little next to the jobs and plans of a MERGE. ``LogTransaction`` makes such a commit.
"""

from __future__ import annotations

import json
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyspark.sql import DataFrame
from pyspark.sql import types as tp

from tailrace.spark_consumer.files import read_text
from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.jvm import companion, java_class
from tailrace.spark_consumer.sink.delta_files import (
    DataFile,
    Deletions,
    KnownFiles,
    RowLayout,
    Stamp,
    deletions,
    sequence,
    write_rows,
)
from tailrace.spark_consumer.small_data import with_settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.sink.statements import Changes
    from tailrace.spark_consumer.sink.table_names import Location

_SESSIONS: Final = "org.apache.spark.sql.classic.SparkSession"
_DELTA: Final = "org.apache.spark.sql.delta"
_OPERATION: Final = f"{_DELTA}.DeltaOperations$StreamingUpdate"
_RENAMES: Final = "spark.sql.streaming.checkpointFileManagerClass"
_ON_LOCAL_DISK: Final = {
    _RENAMES: "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
}
"""For the checksum file of a commit, which no other writer has: by default Hadoop starts five processes for it."""


class Staged(NamedTuple):
    """Files of a table that is written again, before the commit."""

    actions: list[Any]
    """Those of the commit."""
    added: tuple[DataFile, ...]
    """The new files."""


class Commit(NamedTuple):
    """What the log tells of a commit."""

    info: Mapping[str, Any]
    numbers: Mapping[str, int]
    """Of applications: those that the commit has."""


_CONFLICTS: Final = ("DELTA_CONCURRENT_", "DELTA_METADATA_CHANGED", "DELTA_PROTOCOL_CHANGED")
"""Starts of the error conditions of a transaction that lost against another one."""


class LogTransaction:
    """A transaction on the newest version of a table; given up unless ``change`` or ``commit_staged`` is called."""

    def __init__(self, spark: SparkSession, location: Location, known: KnownFiles | None = None) -> None:
        """Start the transaction on the thread of ``spark``, whose settings hold for it.

        ``known`` is kept from one transaction to the next. Only a table at a path is changed by it.
        """
        self._known = known or KnownFiles()
        self._spark = spark
        self.is_at_path = location.path is not None
        self._path = location.shown
        session: Any = spark._jsparkSession  # noqa: SLF001
        # Delta takes the settings of the active session.
        self._class(_SESSIONS).setActiveSession(session)
        if location.path is None:
            self._log: Any = self._class("io.delta.tables.DeltaTable").forName(session, location.sql_name).deltaLog()
        else:
            self._log = self._class(f"{_DELTA}.DeltaLog").forTable(session, location.path)
        self._transaction: Any = self._log.startTransaction()
        self._snapshot: Any = self._transaction.snapshot()
        self._application: tuple[str, int] | None = None
        self.committed: Stamp | None = None
        """The version that the transaction has made; None also if others have made one behind it."""

    @cached_property
    def version(self) -> int:
        """The version that the transaction reads; -1 if the table does not exist."""
        return int(self._snapshot.version())

    @cached_property
    def stamp(self) -> Stamp:
        """What tells the version that the transaction reads."""
        return _stamp(self._snapshot)

    @cached_property
    def metadata(self) -> dict[str, Any]:
        """The ``metaData`` action of the table, as it is in the log."""
        found: dict[str, Any] = json.loads(self._snapshot.metadata().json())["metaData"]
        return found

    @property
    def commits(self) -> Iterator[Commit]:
        """The commits, newest first, as far back as the log has a file for each of them."""
        folder = str(self._log.logPath())
        for version in range(self.version, -1, -1):
            text = read_text(self._spark, f"{folder}/{version:020d}.json")
            if text is None:
                return
            lines = (line for line in text.splitlines() if '"commitInfo"' in line or '"txn"' in line)
            actions = [json.loads(line) for line in lines]
            info: dict[str, Any] = next((each["commitInfo"] for each in actions if "commitInfo" in each), {})
            yield Commit(info, {each["txn"]["appId"]: each["txn"]["version"] for each in actions if "txn" in each})

    def number_of(self, application: str, last: int | None) -> int:
        """Return the number of the next commit of an application: this one, which another one meanwhile conflicts with.

        ``last``: the number of the newest one, -1: there is none. None: not known, and Delta reads the state of the
        whole table, which takes some jobs after each commit.
        """
        if last is None:
            last = int(self._transaction.txnVersion(application))
        else:
            getattr(self._transaction.readTxn(), "$plus$eq")(application)
        self._application = application, last + 1
        return last + 1

    def is_within(self, files: int, size: int) -> bool:
        """Return whether the table has at most so many data files and bytes, and Delta has their list in memory."""
        checksum = self._snapshot.checksumOpt()
        if checksum.isEmpty() or checksum.get().allFiles().isEmpty():
            return False
        return int(checksum.get().numFiles()) <= files and int(checksum.get().tableSizeBytes()) <= size

    @property
    def has_deletion_vectors(self) -> bool:
        """Whether rows can be marked as deleted without writing their file again."""
        writable = companion(self._spark, f"{_DELTA}.commands.DeletionVectorUtils").deletionVectorsWritable
        return bool(writable(self._snapshot.protocol(), self._snapshot.metadata()))

    def files(self, most: int) -> Sequence[DataFile] | None:
        """Return the data files of the table, None if there are more than ``most``."""
        files = self._known.of(self._path, self.table_id, self.stamp)
        if files is None:
            actions = self._actions(most)
            if actions is None:
                return None
            files = tuple(map(DataFile, actions))
            self._known.set(self._path, self.table_id, self.stamp, files)
        return None if len(files) > most else files

    def _actions(self, most: int) -> Iterable[Any] | None:
        """Return the AddFile actions of at most so many files; a job reads them if Delta has no list in memory."""
        checksum = self._snapshot.checksumOpt()
        found = None if checksum.isEmpty() else checksum.get().allFiles()
        if found is None or found.isEmpty():
            return None if int(self._snapshot.numOfFiles()) > most else self._snapshot.allFiles().collect()
        listed = found.get()
        count = int(listed.size())
        return None if count > most else [listed.apply(index) for index in range(count)]

    def rows(self, files: Collection[DataFile]) -> DataFrame:
        """Return the rows of some files."""
        actions = sequence(self._spark, *(file.action for file in files))
        none = self._class("scala.Option").empty()
        return DataFrame(self._log.createDataFrame(self._snapshot, actions, False, none), self._spark)

    def path_of(self, file: DataFile) -> str:
        """Return the path of a file as Spark tells it in the column _metadata."""
        return str(file.action.absolutePath(self._log).toUri().toString())

    def change(self, deleted: Mapping[DataFile, Sequence[int]], rows: DataFrame | None, changes: Changes) -> None:
        """Delete rows, which are numbered in each file, and add some, in one commit."""
        # As for MERGE, any other commit that changes rows meanwhile is a conflict.
        self._transaction.readWholeTable()
        files = self._known.of(self._path, self.table_id, self.stamp)
        found = deletions(self._spark, self._log, deleted) if deleted else Deletions([], [])
        added = [] if rows is None else self._written(rows)
        self._commit([*found.actions, *added], changes)
        if files is not None and (made := self.follows):
            left = (file for file in files if file not in deleted)
            self._known.set(self._path, self.table_id, made, (*left, *found.marked, *map(DataFile, added)))

    def listed(self) -> Sequence[DataFile]:
        """Return the data files as the snapshot lists them, whatever this query knows; ``is_within`` was true."""
        found = self._snapshot.checksumOpt().get().allFiles().get()
        return [DataFile(found.apply(index)) for index in range(int(found.size()))]

    def layout(self, rows: DataFrame) -> RowLayout:
        """Return how rows of the table are written; ``rows`` are such rows."""
        return RowLayout(self._spark, self._transaction, rows)

    def stage(self, files: Sequence[DataFile], layout: RowLayout, rows: Any) -> Staged:
        """Write a file with ``rows``, a collection of Scala, that replaces all files of the table; commit nothing."""
        # As for MERGE, any other commit that changes rows meanwhile is a conflict.
        self._transaction.readWholeTable()
        added = [] if rows.isEmpty() else write_rows(self._spark, self._transaction, layout, rows)
        return Staged([*(file.action.remove() for file in files), *added], tuple(map(DataFile, added)))

    def commit_staged(self, staged: Staged, changes: Changes) -> int:
        """Commit what was staged; return the new version."""
        version = self._commit(staged.actions, changes)
        if made := self.follows:
            self._known.set(self._path, self.table_id, made, staged.added)
        return version

    @property
    def follows(self) -> Stamp | None:
        """The version that was made, if it follows the one that was read; a commit between may have added files."""
        made = self.committed
        return made if made is not None and made.version == self.version + 1 else None

    def _written(self, rows: DataFrame) -> list[Any]:
        """Write rows; return the actions that add their files."""
        files = self._transaction.writeFiles(rows._jdf)  # noqa: SLF001
        found = self._class("scala.jdk.javaapi.CollectionConverters").asJava(files)
        # An iterator of py4j ends with an exception of Java.
        return [found.get(index) for index in range(int(found.size()))]

    def _commit(self, actions: Iterable[Any], changes: Changes) -> int:
        is_local = str(self._log.dataPath()).startswith("file:")
        is_default = self._spark.conf.get(_RENAMES, None) is None
        if self._application is not None:
            now = self._class("scala.Option").apply(time.time_ns() // 1_000_000)
            actions = [*actions, self._class(f"{_DELTA}.actions.SetTransaction")(*self._application, now)]
        with with_settings(self._spark, _ON_LOCAL_DISK if is_local and is_default else {}):
            version = int(self._transaction.commit(sequence(self._spark, *actions), self._operation(changes)))
        newest = _stamp(self._log.unsafeVolatileSnapshot())
        self.committed = newest if newest.version == version else None
        return version

    def _operation(self, changes: Changes) -> Any:
        mode = self._class("org.apache.spark.sql.streaming.OutputMode").Update()
        metadata = self._class("scala.Option").apply(changes.metadata)
        return self._class(_OPERATION)(mode, changes.query, changes.batch, metadata)

    @property
    def table_id(self) -> str:
        """The id of the table: another one at the same path has another id."""
        return str(self.metadata["id"])

    def _class(self, name: str) -> Any:
        return java_class(self._spark, name)


def _stamp(snapshot: Any) -> Stamp:
    return Stamp(int(snapshot.version()), int(snapshot.logSegment().lastCommitFileModificationTimestamp()))


def columns_of(metadata: dict[str, Any]) -> tp.StructType:
    """Return the columns of a table without what only Delta's files need to know of them."""
    return tp.StructType.fromJson(_without_internal(json.loads(metadata["schemaString"])))


def _without_internal(found: Any) -> Any:
    if isinstance(found, list):
        return [_without_internal(each) for each in found]
    if not isinstance(found, dict):
        return found
    cleaned = {name: _without_internal(each) for name, each in found.items() if name != "metadata"}
    if "metadata" in found:
        cleaned["metadata"] = {name: each for name, each in found["metadata"].items() if not name.startswith("delta.")}
    return cleaned


def is_conflict(error: BaseException) -> bool:
    """Return whether a command of somebody else changed the same files, or what the table is."""
    return any(each.condition.startswith(_CONFLICTS) for each in java_errors(error))
