"""One Delta table, at a path or in a catalog: creation, rows and table properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.delta_files import KnownFiles
from tailrace.spark_consumer.sink.delta_log import LogTransaction, columns_of
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.shape import Layout
from tailrace.spark_consumer.sink.table_names import Location, quote
from tailrace.spark_consumer.sink.target_table import (
    PLAIN,
    ColumnChanges,
    TargetTable,
    assignments,
    column_list,
    require_key,
)
from tailrace.spark_consumer.small_data import SMALL_FILES, SMALL_TABLE
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.sequence import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

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
_INTEGERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType)


def needs_mapping(name: str) -> bool:
    """Return whether a column of that name needs Delta's column mapping."""
    return _NEEDS_MAPPING.search(name) is not None


class DeltaTable(TargetTable):
    """A Delta table, at a path or in a catalog."""

    format: ClassVar[str] = "Delta"

    def __init__(self, spark: SparkSession, location: Location, files: KnownFiles | None = None) -> None:
        """``files``: what is known of all tables of a query."""
        super().__init__(spark, location)
        self._files = files or KnownFiles()

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
        options = {"userMetadata": metadata}
        if self._location.path is None:
            rows.writeTo(self.sql_name).options(**options).append()
        else:
            rows.write.format("delta").mode("append").options(**options).save(self._location.path)

    def replace(self, rows: DataFrame, *, once: tuple[str, int] | None) -> None:
        """Replace all rows in one commit; Delta skips a transaction that it has."""
        options = {} if once is None else {"txnAppId": once[0], "txnVersion": str(once[1])}
        if self._location.path is None:
            rows.writeTo(self.sql_name).options(**options).overwrite(fn.lit(True))
        else:
            rows.write.format("delta").mode("overwrite").options(**options).save(self._location.path)

    def commit_settings(self, metadata: str) -> Mapping[str, str]:
        """Return the settings of a session in which a statement commits with the metadata of a ledger."""
        return {_USER_METADATA: metadata}

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

    def ledger(self, topic: str) -> Ledger | None:
        """Return what the table has applied; None if its history does not tell."""
        if self._location.path is not None:
            metadata = self.transaction(self._spark).user_metadata
            found = Ledger.newest(topic, islice(metadata, _RECENT_COMMITS))
            if found is not None:
                return found
        recent = self._history(_RECENT_COMMITS)
        found = Ledger.newest(topic, recent)
        if found is None and len(recent) == _RECENT_COMMITS:
            found = Ledger.newest(topic, self._history(None))
        if found is None:
            found = Ledger(topic) if self.has_no_files else None
        return found

    @property
    def has_no_files(self) -> bool:
        """Whether the table is empty: it has no data files."""
        return bool(self._detail("numFiles") == 0)

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

    def _history(self, count: int | None) -> list[str | None]:
        limit = "" if count is None else f" LIMIT {count}"
        commits = self._spark.sql(f"DESCRIBE HISTORY {self.sql_name}{limit}").select("version", "userMetadata")
        return [row["userMetadata"] for row in sorted(commits.collect(), key=lambda row: -row["version"])]

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
        """Start a transaction of a table at a path."""
        assert self._location.path is not None
        return LogTransaction(spark, self._location.path, self._files)

    def _read_metadata(self, transaction: LogTransaction) -> None:
        found = transaction.metadata
        self._properties, self._columns = self._seen(found["configuration"]), columns_of(found)

    def create(self, schema: TableSchema, properties: Mapping[str, str], layout: Layout = PLAIN) -> None:
        """Create the empty table: the columns of the captured table, the sequence column, those of the layout."""
        check_names(schema, layout.names)
        require_key(schema)
        columns = [*row_type(schema).fields, tp.StructField(SEQUENCE_COLUMN, SEQUENCE_TYPE), *layout.columns]
        all_properties = {**DEFAULTS, **self.as_stored(properties), **layout.properties({})}
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
        self._properties = self._columns = None

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

    def needed_properties(self, changes: ColumnChanges) -> dict[str, str]:
        """Return the table properties that the changes need: Delta sets them by itself only at creation."""
        found = {}
        if any(isinstance(kind, tp.TimestampNTZType) for kind in [*changes.added.values(), *changes.widened]):
            found["delta.feature.timestampNtz"] = "supported"
        unmapped = self.properties.get(_MAPPING_MODE, "none") == "none"
        if unmapped and (changes.moved or any(map(needs_mapping, changes.added))):
            found[_MAPPING_MODE] = "name"
        if changes.widened:
            found["delta.enableTypeWidening"] = "true"
        return {name: value for name, value in found.items() if self.properties.get(name) != value}

    @property
    def blocking_properties(self) -> Mapping[str, str]:
        """A table for appends takes no changes."""
        is_set = self.properties.get(_APPEND_ONLY, "").lower() == "true"
        return {_APPEND_ONLY: "false"} if is_set else {}
