"""One Delta table at a path: creation, new columns, table properties."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import types as tp

from tailrace.schemas.sequence import SEQUENCE_COLUMN, Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import check_names
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.source.common_type import common_type
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.sequence import SEQUENCE_TYPE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

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
}
log = structlog.get_logger(__name__)

_RECENT_COMMITS: Final = 20
_NEEDS_MAPPING: Final = re.compile(r"[ ,;{}()\n\t=]")
_INTEGERS: Final = (tp.ByteType, tp.ShortType, tp.IntegerType, tp.LongType)


_PLAIN_PATH: Final = re.compile(r"[^\w\-$ .]|^\.", re.ASCII)


def path_segment(name: str) -> str:
    """Return a database or table name as one segment of a path: other characters than ``A-Za-z0-9_-$ .`` encoded.

    The UTF-8 bytes of each other character, and a dot at the start, are written as %XX. Two names never give the same
    segment, and no name leaves its directory.
    """
    return _PLAIN_PATH.sub(lambda found: "".join(f"%{byte:02X}" for byte in found[0].encode()), name)


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
        """Whether the path has a Delta log with a commit; a directory without one is left by a failed creation."""
        jvm: Any = self._spark._jvm  # noqa: SLF001 - the only access to the cluster's file systems
        log = jvm.org.apache.hadoop.fs.Path(f"{self.path}/_delta_log")
        session: Any = self._spark._jsparkSession  # noqa: SLF001
        files = log.getFileSystem(session.sessionState().newHadoopConf())
        return files.exists(log) and any(status.getPath().getName()[:1].isdigit() for status in files.listStatus(log))

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties."""
        if self._properties is None:
            detail = self._spark.sql(f"DESCRIBE DETAIL {self.sql_name}").select("properties").collect()
            self._properties = dict(detail[0]["properties"])
        return self._properties

    def ledger(self, topic: str) -> Ledger | None:
        """Return what the table has applied; None if its history does not tell."""
        recent = self._history(_RECENT_COMMITS)
        found = Ledger.newest(topic, recent)
        if found is None and len(recent) == _RECENT_COMMITS:
            found = Ledger.newest(topic, self._history(None))
        if found is None:
            detail = self._spark.sql(f"DESCRIBE DETAIL {self.sql_name}").select("numFiles").collect()
            found = Ledger(topic) if detail[0]["numFiles"] == 0 else None
        return found

    def _history(self, count: int | None) -> list[str | None]:
        limit = "" if count is None else f" LIMIT {count}"
        commits = self._spark.sql(f"DESCRIBE HISTORY {self.sql_name}{limit}").select("version", "userMetadata")
        return [row["userMetadata"] for row in sorted(commits.collect(), key=lambda row: -row["version"])]

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
        """Add the columns that the captured table has gained, and widen the columns that no longer hold its values.

        Raises SinkError for a type that the column cannot be widened to, and for another key.
        """
        _require_key(schema)
        known = {field.name.lower(): field for field in self.columns}
        if SEQUENCE_COLUMN not in known:
            raise SinkError(
                f"the Delta table at {self.path} was not created by Tailrace: it has no column {SEQUENCE_COLUMN}",
                hint="set another sink.path, or move the table away",
            )
        self._require_same_key(schema)
        missing, wider = [], []
        for field in row_type(schema).fields:
            stored = known.get(field.name.lower())
            if stored is None:
                missing.append(field)
                continue
            common = common_type(field.dataType, stored.dataType)
            if common == stored.dataType:
                continue
            change = f"ALTER TABLE {self.sql_name} ALTER COLUMN {quote(stored.name)} TYPE "
            if common is None or not _can_widen(stored.dataType, common):
                raise SinkError(
                    f"the type of column {field.name} of {schema.database}.{schema.table} has changed, "
                    "and Delta cannot change the type of the column",
                    hint="move the Delta table away and start with an empty checkpoint to load the table again",
                    stored=stored.dataType.simpleString(),
                    now=field.dataType.simpleString(),
                    statement=change + (common or field.dataType).simpleString(),
                )
            wider.append(change + common.simpleString())
        if wider:
            self.set({"delta.enableTypeWidening": "true"})
        for statement in wider:
            self._spark.sql(statement)
        if missing:
            self._add(missing, schema)
        if missing or wider:
            self._columns = None

    def _add(self, missing: list[tp.StructField], schema: TableSchema) -> None:
        check_names(schema)
        needed = {}
        # Delta enables a feature by itself only when a table is created.
        if any(isinstance(field.dataType, tp.TimestampNTZType) for field in missing):
            needed["delta.feature.timestampNtz"] = "supported"
        if any(_NEEDS_MAPPING.search(field.name) for field in missing):
            needed["delta.columnMapping.mode"] = "name"
        needed = {name: value for name, value in needed.items() if self.properties.get(name) != value}
        if needed:
            self.set(needed)
        listed = ", ".join(f"{quote(f.name)} {f.dataType.simpleString()}" for f in missing)
        self._spark.sql(f"ALTER TABLE {self.sql_name} ADD COLUMNS ({listed})")
        log.warning(
            "columns added; rows of earlier batches have NULL in them. If the source has other values there "
            "(a default, a renamed column), send a signal for an incremental snapshot of the table",
            table=f"{schema.database}.{schema.table}",
            columns=[field.name for field in missing],
        )

    def _require_same_key(self, schema: TableSchema) -> None:
        stored = self.properties.get(KEY)
        if stored is not None and stored != key_text(schema):
            raise SinkError(
                f"the key of {schema.database}.{schema.table} has changed: its rows cannot be matched with the table",
                hint="move the Delta table away, start the producer with another topic.prefix and the consumer with an "
                "empty checkpoint",
                stored=stored,
                now=key_text(schema),
            )

    def delete_before(self, sequence: Sequence) -> None:
        """Delete the rows with a smaller sequence."""
        fields = ", ".join(f"'{name}', {value}L" for name, value in sequence._asdict().items())
        self._spark.sql(f"DELETE FROM {self.sql_name} WHERE {SEQUENCE_COLUMN} < named_struct({fields})")

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


def key_text(schema: TableSchema) -> str:
    """Return the key columns as the table property ``KEY`` stores them."""
    return json.dumps(list(schema.key))


def _can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
    """Return whether Delta's type widening supports a change (delta.io, "Type widening")."""
    if isinstance(stored, _INTEGERS):
        return isinstance(wider, (*_INTEGERS, tp.DecimalType)) or (
            isinstance(wider, tp.DoubleType) and not isinstance(stored, tp.LongType)
        )
    if isinstance(stored, tp.DecimalType):
        return isinstance(wider, tp.DecimalType)
    return (isinstance(stored, tp.FloatType) and isinstance(wider, tp.DoubleType)) or (
        isinstance(stored, tp.DateType) and isinstance(wider, tp.TimestampNTZType)
    )
