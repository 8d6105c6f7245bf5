"""One Delta table, at a path or in a catalog: creation, rows and table properties."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.sink.delta_files import KnownFiles, Stamp
from tailrace.spark_consumer.sink.delta_log import LogTransaction, columns_of
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.shape import PLAIN, Layout
from tailrace.spark_consumer.sink.state import SEVERAL
from tailrace.spark_consumer.sink.statements import assignments, column_list
from tailrace.spark_consumer.sink.table_names import Location, quote
from tailrace.spark_consumer.sink.target import Add, Drop, Operation, Rename, Widen
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.small_data import SMALL_FILES, SMALL_TABLE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, Row, SparkSession

DEFAULTS: Final[Mapping[str, str]] = {
    # A change marks rows as deleted instead of rewriting every file that contains one.
    "delta.enableDeletionVectors": "true",
    # Each batch is a commit, and the log of a month would be long.
    "delta.logRetentionDuration": "interval 7 days",
    # The checkpoint of each tenth commit would be a fifth of the work of small batches.
    "delta.checkpointInterval": "50",
}

_CLUSTERED: Final = (
    tp.ShortType,
    tp.IntegerType,
    tp.LongType,
    tp.FloatType,
    tp.DoubleType,
    tp.DecimalType,
    tp.StringType,
    tp.DateType,
    tp.TimestampType,
    tp.TimestampNTZType,
)
"""Types by which Delta can cluster."""
_MAX_CLUSTERED: Final = 4
_PLAIN_NAME: Final = re.compile(r"\w+")
"""Delta takes a dot in the name of a clustering column for a nested column."""
_WITH_STATISTICS: Final = 32
_RECENT_COMMITS: Final = 20
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
_MAPPING_MODE: Final = "delta.columnMapping.mode"
_APPEND_ONLY: Final = "delta.appendOnly"
_USER_METADATA: Final = "spark.databricks.delta.commitInfo.userMetadata"
_WRITE_SETTING: Final = "spark.databricks.delta.write"
_APPLICATION: Final = "tailrace/"
"""Start of the name under which a table counts the commits that have a ledger."""
_REPLACED: Final = "tailrace.replaced"
"""User metadata of a commit: which replacement of all rows it was."""
_RESTORE: Final = "RESTORE"
_INTEGERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType)


def needs_mapping(name: str) -> bool:
    """Return whether a column of that name needs Delta's column mapping."""
    return _NEEDS_MAPPING.search(name) is not None


def _is_replacement(metadata: str | None, name: str, number: int) -> bool:
    """Return whether a commit has replaced all rows under a name, with a number or a later one."""
    if metadata is None or _REPLACED not in metadata:
        return False
    found = json.loads(metadata)[_REPLACED]
    return bool(found[0] == name and found[1] >= number)


class DeltaTable(TargetTable):
    """A Delta table, at a path or in a catalog."""

    format: ClassVar[str] = "Delta"

    def __init__(self, spark: SparkSession, location: Location, files: KnownFiles | None = None) -> None:
        """``files``: what is known of all tables of a query."""
        super().__init__(spark, location)
        self._files = files or KnownFiles()
        self._read: tuple[Stamp, Ledger | None] | None = None
        """The version that the ledger was read at, or that was committed, and the ledger."""
        self._next: Mapping[str, str] = {}
        """The options that make the next commit fail, or be left out, if another one is made before."""
        self._number: int | None = None
        """The number of the newest commit with a ledger at that version; -1: there is none, None: it is not known."""
        self._has_whole_history = False
        """Whether the commits were read back to the first one; only if none of them has a ledger."""

    @property
    def exists(self) -> bool:
        """Whether the table exists; a directory whose log has no commit is left by a failed creation."""
        if self._location.path is None:
            return bool(self._spark.catalog.tableExists(self.sql_name))
        return self.transaction(self._spark).version >= 0

    def rows(self) -> DataFrame:
        """Return the rows of the table."""
        if self._location.path is None:
            return self._spark.read.table(self.sql_name)
        return self._spark.read.format("delta").load(self._location.path)

    def append(self, rows: DataFrame, metadata: str) -> None:
        """Append rows in one commit; columns are matched by name."""
        options = {"userMetadata": metadata, **self._next}
        if self._location.path is None:
            rows.writeTo(self.sql_name).options(**options).append()
        else:
            rows.write.format("delta").mode("append").options(**options).save(self._location.path)

    def replace(self, rows: Callable[[DataFrame], DataFrame], *, once: tuple[str, int] | None) -> None:
        """Replace all rows in one commit; not again if a commit says that it was made, and was not undone since.

        The commit fails if the rows are changed after its transaction has begun. For a table in a catalog that is after
        Spark has chosen the files: a commit in between is replaced.
        """
        options = {}
        if once is not None:
            if any(_is_replacement(text, *once) for text in self._user_metadata(self.transaction(self._spark))):
                return
            options["userMetadata"] = json.dumps({_REPLACED: once})
        replaced = rows(self.rows())
        if self._location.path is None:
            replaced.writeTo(self.sql_name).options(**options).overwrite(fn.lit(True))
        else:
            replaced.write.format("delta").mode("overwrite").options(**options).save(self._location.path)

    def commit_settings(self, metadata: str) -> Mapping[str, str]:
        """Return the settings of a session in which a statement commits with the metadata of a ledger."""
        return {_USER_METADATA: metadata, **{f"{_WRITE_SETTING}.{name}": value for name, value in self._next.items()}}

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        if self._properties is None:
            if self._location.path is None:
                self._properties = self._seen(self._detail("properties"))
            else:
                self._read_metadata(self.transaction(self._spark))
        return self._properties or {}

    @property
    def is_small(self) -> bool:
        """Whether it takes little time to read all files; Delta has their number and size in memory.

        Only for a table at a path.
        """
        if self._location.path is None:
            return False
        return self.transaction(self._spark).is_within(SMALL_FILES, SMALL_TABLE)

    @property
    def is_at_path(self) -> bool:
        """Whether the table is at a path, and not in a catalog."""
        return self._location.path is not None

    def newest_ledger(self, topic: str) -> Ledger | None:
        """Return the ledger of the newest version; the next commit is the one that follows it."""
        return self.ledger_at(self.transaction(self._spark), topic)

    def ledger_at(self, transaction: LogTransaction, topic: str) -> Ledger | None:
        """Return the ledger of the version that a transaction reads.

        Its commit, and that of the next statement, has the number that follows the one of this version. Of two commits
        with one number Delta refuses the later one, or leaves it out.
        """
        application = f"{_APPLICATION}{topic if self.shard is None else SEVERAL}"
        if self._read is None or self._read[0] != transaction.stamp:
            self._number = None
            self._read = transaction.stamp, Ledger.newest(topic, self._user_metadata(transaction, application))
        number = transaction.number_of(application, self._number)
        self._number = number - 1
        self._next = {"txnAppId": application, "txnVersion": str(number)}
        return self._read[1]

    def note(self, transaction: LogTransaction, ledger: Ledger) -> None:
        """Keep in mind which ledger a transaction has committed."""
        if made := transaction.follows:
            assert self._number is not None
            self._read, self._number = (made, ledger), self._number + 1

    @property
    def is_new(self) -> bool:
        """Whether nothing was written: the whole history says so, or the number of commits, which outlives it."""
        return (self._has_whole_history or self._next.get("txnVersion") == "0") and self.has_no_files

    @property
    def version(self) -> int:
        """The version that Delta has in memory: the last one that this process has read or committed."""
        return int(self._snapshot().version())

    @property
    def deleted_rows(self) -> int:
        """How many rows the deletion vectors of that version mark as deleted."""
        found = self._snapshot().numDeletedRecordsOpt()
        return int(found.get()) if found.isDefined() else 0

    def _snapshot(self) -> Any:
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        if self._location.path is None:
            log = java_class(self._spark, "io.delta.tables.DeltaTable").forName(session, self.sql_name).deltaLog()
        else:
            logs = java_class(self._spark, "org.apache.spark.sql.delta.DeltaLog")
            log = logs.forTable(session, self._location.path)
        return log.unsafeVolatileSnapshot()

    @property
    def file_count(self) -> int:
        """The number of data files."""
        return int(self._detail("numFiles"))

    @property
    def has_no_files(self) -> bool:
        """Whether the table is empty: it has no data files."""
        return self.file_count == 0

    def require_format(self) -> None:
        """Raise SinkError if a table of that name exists that is not a Delta table."""
        # At a path there is no table that is not a Delta table.
        if self.is_at_path or not self.exists:
            return
        found = str(self._detail("format")).lower()
        if found != "delta":
            raise SinkError(
                f"{self.name} is a table of the format {found}, not a Delta table",
                hint="set another sink.table, or rename the table",
            )

    def _detail(self, column: str) -> Any:
        return self._spark.sql(f"DESCRIBE DETAIL {self.sql_name}").select(column).collect()[0][column]

    def _user_metadata(self, transaction: LogTransaction, application: str = "") -> Iterator[str | None]:
        """Yield the user metadata of the commits, newest first, without those that a RESTORE has undone.

        The log tells the last ones without a job, unless one of them is a RESTORE. The number of the newest commit of
        an application is kept.
        """
        count = 0
        for commit in islice(transaction.commits, _RECENT_COMMITS):
            if self._number is None:
                self._number = commit.numbers.get(application)
            if commit.info.get("operation") == _RESTORE:
                break
            yield commit.info.get("userMetadata")
            count += 1
        self._has_whole_history = count > transaction.version
        if application and self._has_whole_history and self._number is None:
            self._number = -1
        if not self._has_whole_history:
            yield from self._history()

    def _history(self) -> Iterator[str | None]:
        """Yield the user metadata of all commits of the history; a RESTORE goes on with the version that it names."""
        commits = self._spark.sql(f"DESCRIBE HISTORY {self.sql_name}").collect()
        newest: int | None = None
        self._has_whole_history = any(commit["version"] == 0 for commit in commits)
        for commit in sorted(commits, key=lambda row: -row["version"]):
            if newest is not None and commit["version"] > newest:
                continue
            if commit["operation"] == _RESTORE:
                newest = self._restored(commit, commits)
            else:
                yield commit["userMetadata"]

    def _restored(self, commit: Row, commits: Iterable[Row]) -> int:
        """Return the version that a RESTORE has restored; it names a version, or a time."""
        named = commit["operationParameters"]
        if named.get("version"):
            return int(named["version"])
        [[moment]] = self._spark.range(1).select(fn.lit(named["timestamp"]).cast("timestamp")).collect()
        before = (row for row in commits if row["version"] < commit["version"])
        return max(int(row["version"]) for row in before if row["timestamp"] <= moment)

    @property
    def columns(self) -> tp.StructType:
        """The table's columns."""
        if self._columns is None:
            if self._location.path is None:
                self._columns = self.rows().schema
            else:
                self._read_metadata(self.transaction(self._spark))
        assert self._columns is not None
        return self._columns

    def transaction(self, spark: SparkSession) -> LogTransaction:
        """Start a transaction; only one of a table at a path is committed."""
        return LogTransaction(spark, self._location, self._files)

    def _read_metadata(self, transaction: LogTransaction) -> None:
        found = transaction.metadata
        self._properties, self._columns = self._seen(found["configuration"]), columns_of(found)

    def create(self, schema: TableSchema, properties: Mapping[str, str], layout: Layout = PLAIN) -> None:
        """Create the empty table: the columns of the captured table, the sequence column, those of the layout."""
        columns = self.new_columns(schema, layout)
        all_properties = {**DEFAULTS, **self.as_stored(properties)}
        if any(needs_mapping(column.name) for column in columns):
            all_properties.setdefault(_MAPPING_MODE, "name")
        types = {column.name: column.dataType for column in columns}
        clustered = [
            name for name in schema.key if isinstance(types[name], _CLUSTERED) and _PLAIN_NAME.fullmatch(name)
        ][:_MAX_CLUSTERED]
        if clustered:
            # File statistics are collected for the first columns only.
            last = 1 + max(index for index, column in enumerate(columns) if column.name in clustered)
            if last > _WITH_STATISTICS:
                all_properties.setdefault("delta.dataSkippingNumIndexedCols", str(last))
        cluster = f"CLUSTER BY ({', '.join(map(quote, clustered))})" if clustered else ""
        self._create_schema()
        self._spark.sql(
            f"CREATE TABLE {self.sql_name} ({column_list(columns)}) USING DELTA {cluster} "
            f"TBLPROPERTIES ({assignments(all_properties)})"
        )
        self.refresh()

    @staticmethod
    def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
        """Return whether Delta's type widening supports a change (delta.io, "Type widening")."""
        if isinstance(stored, _INTEGERS):
            if isinstance(wider, tp.DecimalType):
                return wider.precision - wider.scale >= (20 if isinstance(stored, tp.LongType) else 10)
            return isinstance(wider, _INTEGERS) or (
                isinstance(wider, tp.DoubleType) and not isinstance(stored, tp.LongType)
            )
        if isinstance(stored, tp.DecimalType):
            return isinstance(wider, tp.DecimalType)
        return (isinstance(stored, tp.FloatType) and isinstance(wider, tp.DoubleType)) or (
            isinstance(stored, tp.DateType) and isinstance(wider, tp.TimestampNTZType)
        )

    def needed_properties(self, operations: Sequence[Operation]) -> dict[str, str]:
        """Return the table properties that operations need: Delta sets them by itself only at creation."""
        found = {}
        added = [column for each in operations if isinstance(each, Add) for column in each.columns]
        widened = [each.kind for each in operations if isinstance(each, Widen)]
        moved = any(isinstance(each, Drop | Rename) for each in operations)
        if any(isinstance(kind, tp.TimestampNTZType) for kind in [*(column.dataType for column in added), *widened]):
            found["delta.feature.timestampNtz"] = "supported"
        unmapped = self.properties.get(_MAPPING_MODE, "none") == "none"
        if unmapped and (moved or any(needs_mapping(column.name) for column in added)):
            found[_MAPPING_MODE] = "name"
        if widened:
            found["delta.enableTypeWidening"] = "true"
        return {name: value for name, value in found.items() if self.properties.get(name) != value}

    @property
    def blocking_properties(self) -> Mapping[str, str]:
        """A table for appends takes no changes."""
        is_set = self.properties.get(_APPEND_ONLY, "").lower() == "true"
        return {_APPEND_ONLY: "false"} if is_set else {}
