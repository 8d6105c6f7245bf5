"""One Delta table, at a path or in a catalog: creation, rows and table properties."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.delta_log import LogTransaction, columns_of
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.table_names import Location, quote
from tailrace.spark_consumer.small_data import SMALL_FILES, SMALL_TABLE
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.sequence import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TOPIC: Final = "tailrace.topic"
"""Table property: the topic whose rows the table has."""
KEY: Final = "tailrace.key"
"""Table property: the key columns as a JSON array."""
QUERY: Final = "tailrace.query"
"""Table property: the id of the query that created the table."""
TRUNCATED: Final = "tailrace.truncated"
"""Table property: the sequence of the last truncate event; records with a smaller sequence stay out."""

DEFAULTS: Final[Mapping[str, str]] = {
    # A change marks rows as deleted instead of rewriting every file that contains one.
    "delta.enableDeletionVectors": "true",
    # Each batch is a commit, and the log of a month would be long.
    "delta.logRetentionDuration": "interval 7 days",
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


def needs_mapping(name: str) -> bool:
    """Return whether a column of that name needs Delta's column mapping."""
    return _NEEDS_MAPPING.search(name) is not None


def literal(text: str) -> str:
    """Quote a string for Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class DeltaTable:
    """A table at a path or in a catalog.

    Properties and columns are read once and cached, because this query is the only writer.
    """

    def __init__(self, spark: SparkSession, location: Location) -> None:
        self._spark = spark
        self._location = location
        self.sql_name = location.sql_name
        self._properties: dict[str, str] | None = None
        self._columns: tp.StructType | None = None

    @property
    def name(self) -> str:
        """The path, or the name in the catalog."""
        return self._location.shown

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

    def append(self, rows: DataFrame, **options: str) -> None:
        """Append rows in one commit; columns are matched by name."""
        if self._location.path is None:
            rows.writeTo(self.sql_name).options(**options).append()
        else:
            rows.write.format("delta").mode("append").options(**options).save(self._location.path)

    def replace(self, rows: DataFrame, **options: str) -> None:
        """Replace all rows in one commit."""
        if self._location.path is None:
            rows.writeTo(self.sql_name).options(**options).overwrite(fn.lit(True))
        else:
            rows.write.format("delta").mode("overwrite").options(**options).save(self._location.path)

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        if self._properties is None:
            if self._location.path is None:
                self._properties = dict(self._detail("properties"))
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
        size = self.transaction(self._spark).size
        return size is not None and size[0] <= SMALL_FILES and size[1] <= SMALL_TABLE

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

    def require_delta(self) -> None:
        """Raise SinkError if a table of that name exists that is not a Delta table."""
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
        return LogTransaction(spark, self._location.path)

    def _read_metadata(self, transaction: LogTransaction) -> None:
        found = transaction.metadata
        self._properties, self._columns = dict(found["configuration"]), columns_of(found)

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create the empty table with the columns of the captured table and the sequence column."""
        check_names(schema)
        require_key(schema)
        columns = [*row_type(schema).fields, tp.StructField(SEQUENCE_COLUMN, SEQUENCE_TYPE)]
        all_properties = {**DEFAULTS, **properties}
        if any(needs_mapping(column.name) for column in columns):
            all_properties.setdefault("delta.columnMapping.mode", "name")
        types = {column.name: column.dataType for column in columns}
        clustered = [
            name for name in schema.key if isinstance(types[name], _CLUSTERED) and _PLAIN_NAME.fullmatch(name)
        ][:_MAX_CLUSTERED]
        if clustered:
            # File statistics are collected for the first columns only.
            last = 1 + max(index for index, column in enumerate(columns) if column.name in clustered)
            if last > _WITH_STATISTICS:
                all_properties.setdefault("delta.dataSkippingNumIndexedCols", str(last))
        listed = ", ".join(f"{quote(c.name)} {c.dataType.simpleString()}" for c in columns)
        cluster = f"CLUSTER BY ({', '.join(map(quote, clustered))})" if clustered else ""
        schema_name = self._location.schema_name
        if schema_name and not self._spark.catalog.databaseExists(schema_name):
            self._spark.sql(f"CREATE SCHEMA IF NOT EXISTS {schema_name}")
        self._spark.sql(
            f"CREATE TABLE {self.sql_name} ({listed}) USING DELTA {cluster} "
            f"TBLPROPERTIES ({assignments(all_properties)})"
        )
        self._properties = self._columns = None

    def alter(self, change: str) -> None:
        """Run an ALTER TABLE statement; ``change`` is what follows the name of the table."""
        self._spark.sql(f"ALTER TABLE {self.sql_name} {change}")
        self._columns = self._properties = None

    def delete_before(self, sequence: Sequence) -> None:
        """Delete the rows with a smaller sequence."""
        fields = ", ".join(f"'{name}', {value}L" for name, value in sequence._asdict().items())
        self._spark.sql(f"DELETE FROM {self.sql_name} WHERE {SEQUENCE_COLUMN} < named_struct({fields})")

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        self.alter(f"SET TBLPROPERTIES ({assignments(properties)})")

    def unset(self, *names: str) -> None:
        """Remove table properties."""
        listed = ", ".join(literal(name) for name in names)
        self.alter(f"UNSET TBLPROPERTIES IF EXISTS ({listed})")


def assignments(properties: Mapping[str, str]) -> str:
    """Return table properties for Spark SQL."""
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def require_key(schema: TableSchema) -> None:
    """Raise SinkError for a table without a key."""
    if not schema.key:
        raise SinkError(
            f"{schema.database}.{schema.table} has no key, so its rows cannot be identified",
            hint="set key columns with message.key.columns in the producer, and do not mask or truncate key columns "
            "(column.mask, column.truncate)",
        )


def key_text(schema: TableSchema) -> str:
    """Return the key columns as the table property ``KEY`` stores them."""
    return json.dumps(list(schema.key))
