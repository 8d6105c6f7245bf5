"""One Delta table by its path: created with the captured table's types, widened by new columns, its properties."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import types as tp

from tailrace.runtime.errors import SinkError
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.normalize.sequence import SEQUENCE_TYPE
from tailrace.spark_consumer.source.json_decoder import row_type

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC: Final = "tailrace.topic"
QUERY: Final = "tailrace.query"
FIRST_LOAD: Final = "tailrace.firstLoad"
FIRST_LOAD_START: Final = "tailrace.firstLoadStart"
FIRST_LOAD_EARLY: Final = "tailrace.firstLoadEarly"

DEFAULTS: Final[Mapping[str, str]] = {
    # A change then marks rows as removed instead of rewriting every file that holds one.
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
    """A table at a path; what is known of it is read once and kept, since this query is its only writer."""

    def __init__(self, spark: SparkSession, path: str) -> None:
        self._spark = spark
        self.path = path
        self.sql_name = f"delta.{quote(path)}"
        self._properties: dict[str, str] | None = None
        self._columns: tp.StructType | None = None

    @property
    def exists(self) -> bool:
        """Tell whether a Delta log is at the path."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the only way to the cluster's own file systems
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
        """Create the table, empty, with the columns of the captured table and the sequence column."""
        check_names(schema)
        _require_key(schema)
        columns = [*row_type(schema).fields, tp.StructField(SEQUENCE_COLUMN, SEQUENCE_TYPE)]
        given = {**DEFAULTS, **properties}
        if any(_NEEDS_MAPPING.search(column.name) for column in columns):
            given.setdefault("delta.columnMapping.mode", "name")
        listed = ", ".join(f"{quote(c.name)} {c.dataType.simpleString()}" for c in columns)
        stated = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in given.items())
        self._spark.sql(f"CREATE TABLE {self.sql_name} ({listed}) USING DELTA TBLPROPERTIES ({stated})")
        self._properties = self._columns = None

    def evolve(self, schema: TableSchema) -> None:
        """Add the columns that the captured table has gained; raise SinkError for a change that cannot be followed."""
        _require_key(schema)
        known = {field.name.lower(): field for field in self.columns}
        if SEQUENCE_COLUMN not in known:
            raise SinkError(
                f"the Delta table at {self.path} was not made by Tailrace: it has no column {SEQUENCE_COLUMN}",
                hint="choose another sink.path, or move that table away",
            )
        missing = []
        for field in row_type(schema).fields:
            have = known.get(field.name.lower())
            if have is None:
                missing.append(field)
            elif not _storable(field.dataType, have.dataType):
                raise SinkError(
                    f"column {field.name} of {schema.database}.{schema.table} has changed its type",
                    hint="move the Delta table away and start with an empty checkpoint to load it anew",
                    stored=have.dataType.simpleString(),
                    now=field.dataType.simpleString(),
                )
        if missing:
            check_names(schema)
            listed = ", ".join(f"{quote(f.name)} {f.dataType.simpleString()}" for f in missing)
            self._spark.sql(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({listed})")
            self._columns = None

    def set(self, properties: Mapping[str, str]) -> None:
        """Set properties."""
        stated = ", ".join(f"{literal(name)} = {literal(value)}" for name, value in properties.items())
        self._spark.sql(f"ALTER TABLE {self.sql_name} SET TBLPROPERTIES ({stated})")
        self._properties = None

    def unset(self, *names: str) -> None:
        """Remove properties."""
        listed = ", ".join(literal(name) for name in names)
        self._spark.sql(f"ALTER TABLE {self.sql_name} UNSET TBLPROPERTIES IF EXISTS ({listed})")
        self._properties = None


def _require_key(schema: TableSchema) -> None:
    if not schema.key:
        raise SinkError(
            f"{schema.database}.{schema.table} has no key, so its rows cannot be told apart",
            hint="in the producer, name key columns for it with message.key.columns, and leave key columns out of "
            "column.mask and column.truncate",
        )


def _storable(now: tp.DataType, stored: tp.DataType) -> bool:
    """Tell whether values of one type can go into a column of the other; numbers that do not fit fail the write."""
    return now == stored or (isinstance(now, _NUMBERS) and isinstance(stored, _NUMBERS))
