"""One Delta table at a path: creation, new columns, table properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.sequence import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "tailrace.topic"
"""Table property: the topic whose rows the table has."""
QUERY: Final = "tailrace.query"
"""Table property: the id of the query that created the table."""

DEFAULTS: Final[Mapping[str, str]] = {
    # A change marks rows as deleted instead of rewriting every file that contains one.
    "delta.enableDeletionVectors": "true",
}
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
_NUMBERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType, tp.DecimalType, tp.FloatType, tp.DoubleType)


def quote(name: str) -> str:
    """Quote an identifier for Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def literal(text: str) -> str:
    """Quote a string for Spark SQL."""
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


class DeltaTable:
    """A table at a path. Properties and columns are read once and cached, because this query is the only writer."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self.sql_name = f"delta.{quote(path)}"
        self._properties: dict[str, str] | None = None
        self._columns: tp.StructType | None = None

    @property
    def exists(self) -> bool:
        """Whether the path has a Delta log."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the only access to the cluster's file systems
        path = jvm.org.apache.hadoop.fs.Path(f"{self.path}/_delta_log")
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        return bool(path.getFileSystem(session.sessionState().newHadoopConf()).exists(path))

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        if self._properties is None:
            detail = self._spark.sql(f"DESCRIBE DETAIL {self.sql_name}").select("properties").collect()
            self._properties = dict(detail[0]["properties"])
        return self._properties

    @property
    def columns(self) -> tp.StructType:
        """The table's columns."""
        if self._columns is None:
            self._columns = self._spark.read.format("delta").load(self.path).schema
        return self._columns

    def create(self, schema: TableSchema, properties: Mapping[str, str]) -> None:
        """Create the empty table with the columns of the captured table and the sequence column."""
        check_names(schema)
        _require_key(schema)
        columns = [*row_type(schema).fields, tp.StructField(SEQUENCE_COLUMN, SEQUENCE_TYPE)]
        all_properties = {**DEFAULTS, **properties}
        if any(_NEEDS_MAPPING.search(column.name) for column in columns):
            all_properties.setdefault("delta.columnMapping.mode", "name")
        listed = ", ".join(f"{quote(c.name)} {c.dataType.simpleString()}" for c in columns)
        self._spark.sql(
            f"CREATE TABLE {self.sql_name} ({listed}) USING DELTA TBLPROPERTIES ({_assignments(all_properties)})"
        )
        self._properties = self._columns = None

    def evolve(self, schema: TableSchema) -> None:
        """Add the columns that the captured table has gained; raises SinkError for a type change."""
        _require_key(schema)
        known = {field.name.lower(): field for field in self.columns}
        if SEQUENCE_COLUMN not in known:
            raise SinkError(
                f"the Delta table at {self.path} was not created by Tailrace: it has no column {SEQUENCE_COLUMN}",
                hint="set another sink.path, or move the table away",
            )
        missing = []
        for field in row_type(schema).fields:
            stored = known.get(field.name.lower())
            if stored is None:
                missing.append(field)
            elif not _storable(field.dataType, stored.dataType):
                raise SinkError(
                    f"the type of column {field.name} of {schema.database}.{schema.table} has changed",
                    hint="move the Delta table away and start with an empty checkpoint to load the table again",
                    stored=stored.dataType.simpleString(),
                    now=field.dataType.simpleString(),
                )
        if missing:
            check_names(schema)
            listed = ", ".join(f"{quote(f.name)} {f.dataType.simpleString()}" for f in missing)
            self._spark.sql(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({listed})")
            self._columns = None

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        self._spark.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ({_assignments(properties)})")
        self._properties = None

    def unset(self, *names: str) -> None:
        """Remove table properties."""
        listed = ", ".join(literal(name) for name in names)
        self._spark.sql(f"ALTER TABLE {self.sql_name} UNSET TBLPROPERTIES IF EXISTS ({listed})")
        self._properties = None


def _assignments(properties: Mapping[str, str]) -> str:
    return ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())


def _require_key(schema: TableSchema) -> None:
    if not schema.key:
        raise SinkError(
            f"{schema.database}.{schema.table} has no key, so its rows cannot be identified",
            hint="set key columns with message.key.columns in the producer, and do not mask or truncate key columns "
            "(column.mask, column.truncate)",
        )


def _storable(now: tp.DataType, stored: tp.DataType) -> bool:
    """Return whether a column can store values of a type; numbers that do not fit fail the write."""
    return now == stored or (isinstance(now, _NUMBERS) and isinstance(stored, _NUMBERS))
