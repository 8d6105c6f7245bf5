"""One Hudi table at a path: creation, rows, table properties and what its timeline tells.

The ledger (ledger.py) is in the metadata of each commit that the sink makes: the records of a batch and the offsets
that are applied with them are one commit. Hudi keeps at least the newest 20 commits in its active timeline. Commits of
others have no ledger; the newest one that has counts.

Hudi's MERGE statement is not used: it needs a table in a catalog and takes the key for the only condition. The sink
joins the changes with the table, and one upsert writes the rows that result. The column ``_hoodie_is_deleted`` tells
Hudi which of them are deletes; it is false in all rows that the table has.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Any, ClassVar, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.schemas import sequence as seq
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.files import children, delete, exists, read_text
from tailrace.spark_consumer.java_errors import SPARK_ERRORS
from tailrace.spark_consumer.jvm import java_class
from tailrace.spark_consumer.normalize.rowkind import DELETED_COLUMN
from tailrace.spark_consumer.sink.hudi_keys import check_key, check_names, checked_key, has_fault
from tailrace.spark_consumer.sink.ledger import Ledger, was_replaced
from tailrace.spark_consumer.sink.shape import IS_DELETED, PLAIN, Layout
from tailrace.spark_consumer.sink.state import COMMIT_OF_ALTERATION
from tailrace.spark_consumer.sink.statements import RowChanges
from tailrace.spark_consumer.sink.table_names import Location, quote
from tailrace.spark_consumer.sink.target import (
    Add,
    AllowNull,
    Drop,
    Operation,
    RemoveRows,
    Rename,
    Retype,
    SetProperties,
    Widen,
)
from tailrace.spark_consumer.sink.target_table import TargetTable
from tailrace.spark_consumer.source.json_decoder import row_type

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_DEFAULTS: Final[Mapping[str, str]] = {
    # A batch has one change per key, and the sink has compared it with the row that is stored.
    "hoodie.write.record.merge.mode": "COMMIT_TIME_ORDERING",
    "hoodie.combine.before.upsert": "false",
    "hoodie.combine.before.insert": "false",
    # It would be a second commit for each batch, to list the files of one directory.
    "hoodie.metadata.enable": "false",
    # A server on the driver, without authentication, for what the file system tells as well.
    "hoodie.embed.timeline.server": "false",
    "hoodie.write.markers.type": "DIRECT",
}
_CLUSTERING: Final = "org.apache.hudi.client.clustering"
_FIXED: Final[Mapping[str, str]] = {
    "hoodie.datasource.write.partitionpath.field": "",
    "hoodie.datasource.write.keygenerator.class": "org.apache.hudi.keygen.NonpartitionedKeyGenerator",
    "hoodie.datasource.write.commitmeta.key.prefix": "tailrace.",
    "hoodie.datasource.write.schema.allow.auto.evolution.column.drop": "true",
    # A clustering that was interrupted is given up by the next write; by default it would refuse all later ones.
    "hoodie.clustering.updates.strategy": f"{_CLUSTERING}.update.strategy.SparkAllowUpdateStrategy",
    "hoodie.clustering.rollback.pending.replacecommit.on.conflict": "true",
}
LEDGER: Final = "tailrace.ledger"
"""Metadata of a commit: the ledger."""
_REPLACED: Final = "tailrace.replaced"
"""Metadata of a commit: which replacement of all rows it was."""
_NAME: Final = "hoodie.table.name"
_KEY_FIELDS: Final = "hoodie.table.recordkey.fields"
_METADATA_TABLE: Final = "hoodie.table.metadata.partitions"
_CREATE_SCHEMA: Final = "hoodie.table.create.schema"
_META_FOLDER: Final = ".hoodie"
_COMPLETED: Final = re.compile(r"\d+(_\d+)?\.(commit|deltacommit|replacecommit)")
"""The name of the file of a completed commit, of all versions of tables."""
_META: Final = "_hoodie_"
_REMOVED: Final = "_hoodie_is_deleted"
_PROPERTIES_ENDS: Final = ("", ".backup")
"""Hudi replaces the file of its properties by way of a backup."""
_PACKAGE: Final = "org.apache.hudi.common.table"


class HudiTable(TargetTable):
    """A Hudi table at a path, without partitions."""

    format: ClassVar[str] = "Hudi"

    def __init__(self, spark: SparkSession, path: str, name: str, options: Mapping[str, str]) -> None:
        """``name``: letters, digits and _. ``options``: those of each write."""
        super().__init__(spark, Location(f"hudi.{quote(path)}", path))
        self._path = path
        self._options = {**_DEFAULTS, **options, **_FIXED, _NAME: name}

    @classmethod
    def at(cls, spark: SparkSession, path: str) -> HudiTable:
        """Return a table that exists, for a statement that a user runs."""
        found = cls(spark, path, "", {}).properties
        options = {"hoodie.metadata.enable": "true"} if found.get(_METADATA_TABLE) else {}
        return cls(spark, path, found[_NAME], options)

    @property
    def exists(self) -> bool:
        """Whether there is a Hudi table."""
        files = (f"{self._path}/.hoodie/hoodie.properties{end}" for end in _PROPERTIES_ENDS)
        return any(exists(self._spark, file) for file in files) and not self._is_unfinished

    @property
    def _is_unfinished(self) -> bool:
        """Whether there is nothing but the begin of a creation."""
        return children(self._spark, self._path) == [_META_FOLDER] and not self._has_commit

    @property
    def _has_commit(self) -> bool:
        """Whether there is a completed commit; the columns that CREATE TABLE has stored count as one."""
        folder = f"{self._path}/{_META_FOLDER}"
        names = [*children(self._spark, folder), *children(self._spark, f"{folder}/timeline")]
        if any(map(_COMPLETED.fullmatch, names)):
            return True
        texts = (read_text(self._spark, f"{folder}/hoodie.properties{end}") for end in _PROPERTIES_ENDS)
        return any(_CREATE_SCHEMA in text for text in texts if text)

    @property
    def options(self) -> Mapping[str, str]:
        """The options of each write; a table that somebody else has created keeps its name."""
        return {**self._options, _NAME: self.properties[_NAME]}

    def require_format(self) -> None:
        """Raise SinkError for a table that somebody may be about to write; every table at a path is a Hudi table."""
        if self.exists and not self._has_commit:
            raise SinkError(
                f"the Hudi table {self.name} has files and no completed commit",
                hint="wait until the job that writes them has ended; or move the directory away, and the table is "
                "created again",
            )

    def rows(self) -> DataFrame:
        """Return the rows of the table, without the columns of Hudi."""
        return self._read(self._spark)

    @property
    def columns(self) -> tp.StructType:
        """The table's columns, without those of Hudi."""
        if self._columns is None:
            self._columns = self.rows().schema
        return self._columns

    @property
    def properties(self) -> Mapping[str, str]:
        """The table's properties. Raises SinkError if the rows are older than an ALTER TABLE that they tell of."""
        if self._properties is None:
            client = self.client()
            stored = client.getTableConfig().getProps()
            found = {str(name): str(stored[name]) for name in stored}
            commit = found.get(COMMIT_OF_ALTERATION, "")
            self.require_commit(commit, found=not commit or _timeline(client).containsOrBeforeTimelineStarts(commit))
            self._properties = found
        return self._properties

    def set(self, properties: Mapping[str, str]) -> None:
        """Set table properties."""
        given = self._java("java.util.Properties")()
        for name, value in self.marked(properties, self._newest_commit).items():
            given.setProperty(name, value)
        client = self.client()
        self._java(f"{_PACKAGE}.HoodieTableConfig").update(client.getStorage(), client.getMetaPath(), given)
        self._properties = None

    def _newest_commit(self) -> str:
        return str(_timeline(self.client()).lastInstant().get().requestedTime())

    def unset(self, *names: str) -> None:
        """Remove table properties."""
        given = self._java("java.util.HashSet")()
        for name in names:
            given.add(name)
        client = self.client()
        self._java(f"{_PACKAGE}.HoodieTableConfig").delete(client.getStorage(), client.getMetaPath(), given)
        self._properties = None

    @property
    def key(self) -> Sequence[str]:
        """The columns by which Hudi identifies rows."""
        return self.properties[_KEY_FIELDS].split(",")

    @property
    def has_no_files(self) -> bool:
        """Whether the table has no rows."""
        return self.rows().isEmpty()

    @property
    def is_small(self) -> bool:
        """Not known in little time."""
        return False

    def check_schema(self, schema: TableSchema) -> None:
        """Raise SinkError for a key, SchemaError for a name that Hudi cannot hold."""
        super().check_schema(schema)
        check_names(schema)
        check_key(schema, {field.name: field.dataType for field in row_type(schema).fields})
        if self.exists and not self.state.topic:
            self._check_kind(schema)

    def _check_kind(self, schema: TableSchema) -> None:
        """Raise SinkError for a table of another kind than those of this sink, which Hudi cannot change afterwards."""
        wanted = {
            "hoodie.table.type": "COPY_ON_WRITE",
            "hoodie.table.partition.fields": "",
            "hoodie.record.merge.mode": self._options["hoodie.write.record.merge.mode"],
            _KEY_FIELDS: ",".join(schema.key),
        }
        stored = {name: self.properties.get(name, wanted[name]) for name in wanted}
        other = {name: value for name, value in stored.items() if value.lower() != wanted[name].lower()}
        if other:
            raise SinkError(
                f"the Hudi table {self.name} exists and cannot take the rows of {schema.database}.{schema.table}: "
                + "; ".join(
                    f"its property {name} is {value!r} and not {wanted[name]!r}" for name, value in other.items()
                ),
                hint="set another sink.path, or move the directory away",
            )

    def create(self, schema: TableSchema, properties: Mapping[str, str], layout: Layout = PLAIN) -> None:
        """Create the empty table: the columns of the captured table, the sequence column, those of the layout."""
        columns = self.new_columns(schema, layout)
        if self._is_unfinished:
            # Hudi cannot go on with some of what a killed process leaves.
            delete(self._spark, f"{self._path}/{_META_FOLDER}")
        self._write(self._no_rows(columns), "upsert", {}, new=schema.key)
        self.set({name: value for name, value in properties.items() if name not in self._options})
        self._columns = None

    def append(self, rows: DataFrame, metadata: str) -> None:
        """Append rows in one commit; columns are matched by name."""
        self._write(self._whole(rows), "insert", {LEDGER: metadata})

    def merge(self, changes: RowChanges) -> None:
        """Write the rows whose sequence is greater than the stored one, in one commit."""
        key, former = changes.schema.key, {name.lower() for name in changes.others}
        own = {name.lower() for name in (*changes.own, SEQUENCE_COLUMN)}
        others = [name for name in self.columns.names if name.lower() not in own | former]
        stored = self._read(changes.rows.sparkSession).alias("t")
        if within := changes.within:
            stored = stored.where(within)
        needed = [fn.col(quote(name)) for name in (*key, SEQUENCE_COLUMN, *others)]
        stored = stored.select(fn.struct(*needed).alias("t"))
        source = changes.rows.select(fn.struct("*").alias("s"))
        same = [fn.col(f"s.{quote(name)}") == fn.col(f"t.{quote(name)}") for name in key]
        later = fn.col(f"s.{SEQUENCE_COLUMN}") > fn.col(f"t.{SEQUENCE_COLUMN}")
        is_new = fn.col("t").isNull() & ~fn.col(f"s.{DELETED_COLUMN}")
        found = source.join(stored, reduce(and_, same), "left").where(later | is_new)
        removed = fn.col(f"s.{DELETED_COLUMN}").alias(_REMOVED)
        kept = [fn.col(f"t.{quote(name)}").alias(name) for name in others]
        written = [fn.col(f"s.{quote(name)}").alias(name) for name in (*changes.own, SEQUENCE_COLUMN)]
        self._write(self._whole(found.select(*written, *kept, removed)), "upsert", {LEDGER: changes.metadata})

    def truncate_before(self, sequence: seq.Sequence, layout: Layout) -> None:
        """Delete the rows with a smaller sequence, or mark them as deleted."""
        rows = self.rows().where(self.before(sequence))
        if layout.keeps_deleted:
            rows = rows.where(~fn.col(IS_DELETED)).withColumn(IS_DELETED, fn.lit(True))
        else:
            rows = rows.withColumn(_REMOVED, fn.lit(True))
        self._write(self._whole(rows), "upsert", self._carried())

    def replace(self, rows: Callable[[DataFrame], DataFrame], *, once: tuple[str, int] | None) -> None:
        """Replace all rows in one commit; not again if a commit says that it was made."""
        metadata = self._carried()
        if once is not None:
            if was_replaced((commit.get(_REPLACED, "") for commit in self._commits()), once):
                return
            metadata[_REPLACED] = f"{once[0]} {once[1]}"
        self._write(self._whole(rows(self.rows())), "insert_overwrite_table", metadata)

    def _explained(self, operations: Sequence[Operation]) -> str:
        """Return calls for PySpark: SQL has no name for a table at a path, and its changes need other readers.

        What ALTER TABLE changes with ``hoodie.schema.on.read.enable`` cannot be written without this setting.
        """
        calls = (call for each in operations for call in _calls(each))
        own = f"{type(self).__name__}.at(spark, {self._path!r})"
        return "; ".join([f"from {__name__} import {type(self).__name__}", *(f"{own}.{call}" for call in calls)])

    def add(self, column: str, kind: str) -> None:
        """Add a column with a type of SQL."""
        self.change([Add.one(column, self._type(kind))])

    def drop(self, column: str) -> None:
        """Drop a column."""
        self.change([Drop(column)])

    def rename(self, old: str, new: str) -> None:
        """Rename a column."""
        self.change([Rename(old, new)])

    def retype(self, column: str, kind: str) -> None:
        """Give a column another type of SQL."""
        given = self._type(kind)
        [stored] = [each.dataType for each in self.columns.fields if each.name.lower() == column.lower()]
        if self.can_widen(stored, given):
            self.change([Widen(column, given)])
        else:
            self._change_rows(lambda rows: rows.withColumn(column, fn.col(quote(column)).cast(given)))

    def allow_null(self) -> None:
        """Let all columns be NULL: a commit of this class has only such columns."""
        self._change_schema(self.columns.fields)

    def remove_rows(self) -> None:
        """Remove all rows, in one commit."""
        self._write(self._no_rows(self.columns.fields), "insert_overwrite_table", {})

    def _type(self, text: str) -> tp.DataType:
        """Return a type by its name in SQL."""
        return self._spark.range(0).select(fn.lit(None).cast(text)).schema.fields[0].dataType

    def _carry_out(self, operation: Add | Drop | Rename | Widen) -> None:
        """Change columns by a commit; Hudi writes the rows again for one that is dropped or renamed."""
        fields = self.columns.fields
        match operation:
            case Add():
                self._change_schema([*fields, *operation.columns])
            case Widen():
                name, kind = operation.column.lower(), operation.kind
                self._change_schema(
                    [tp.StructField(each.name, kind) if each.name.lower() == name else each for each in fields]
                )
            case Drop():
                self._change_rows(lambda rows: rows.drop(fn.col(quote(operation.column))))
            case Rename():
                self._change_rows(lambda rows: rows.withColumnRenamed(operation.old, operation.new))

    def mark_existing(self) -> None:
        """Mark the rows as not deleted that have no mark."""
        rows = self.rows().where(fn.col(IS_DELETED).isNull()).withColumn(IS_DELETED, fn.lit(False))
        self._write(self._whole(rows), "upsert", self._carried())

    def commit_settings(self, metadata: str) -> Mapping[str, str]:  # noqa: ARG002 - of the base class
        """Return nothing: ``merge`` gives the metadata to the commit."""
        return {}

    def newest_ledger(self, topic: str) -> Ledger | None:
        """Return the ledger of the newest commit that has one.

        Hudi rolls back what another writer has begun and not completed when the next write begins, so of two writers
        at the same time, one fails.
        """
        return Ledger.newest(topic, (commit.get(LEDGER) for commit in self._commits()))

    @staticmethod
    def can_widen(stored: tp.DataType, wider: tp.DataType) -> bool:
        """Return whether a column can get a wider type while its files stay as they are."""
        return (isinstance(stored, tp.IntegerType) and isinstance(wider, tp.LongType)) or (
            isinstance(stored, tp.FloatType) and isinstance(wider, tp.DoubleType)
        )

    def client(self) -> Any:
        """Return Hudi's client of the table, with the timeline as it is now."""
        context: Any = self._spark.sparkContext
        hadoop = context._jsc.hadoopConfiguration()  # noqa: SLF001 - Spark has no other way to it
        settings = self._java("org.apache.hudi.hadoop.fs.HadoopFSUtils").getStorageConf(hadoop)
        builder = self._java(f"{_PACKAGE}.HoodieTableMetaClient").builder()
        return builder.setConf(settings).setBasePath(self._path).build()

    def _read(self, spark: SparkSession) -> DataFrame:
        found = spark.read.format("hudi").load(self._path)
        return found.drop(*(name for name in found.columns if name.startswith(_META)))

    def _commits(self) -> Iterator[Mapping[str, str]]:
        """Yield the metadata of the commits in the active timeline, the newest one first."""
        timeline = _timeline(self.client())
        utilities, instants = self._java(f"{_PACKAGE}.timeline.TimelineUtils"), timeline.getInstants()
        for index in reversed(range(instants.size())):
            yield dict(utilities.getCommitMetadata(instants.get(index), timeline).getExtraMetadata())

    def _carried(self) -> dict[str, str]:
        """Return the metadata of a commit that applies nothing: the ledger goes on."""
        found = next((commit[LEDGER] for commit in self._commits() if LEDGER in commit), None)
        return {} if found is None else {LEDGER: found}

    def _change_schema(self, columns: Sequence[tp.StructField]) -> None:
        self._write(self._no_rows(columns), "upsert", self._carried())
        self._columns = None

    def _change_rows(self, change: Callable[[DataFrame], DataFrame]) -> None:
        rows = change(self.rows()).withColumn(_REMOVED, fn.lit(False))
        self._write(rows, "insert_overwrite_table", self._carried())
        self._columns = None

    def _no_rows(self, columns: Sequence[tp.StructField]) -> DataFrame:
        types = {column.name: column.dataType for column in columns} | {_REMOVED: tp.BooleanType()}
        return self._spark.range(0).select(*(fn.lit(None).cast(kind).alias(name) for name, kind in types.items()))

    def _whole(self, rows: DataFrame) -> DataFrame:
        """Return rows with all columns of the table, in its order; those that are missing are NULL."""
        given = {name.lower(): name for name in rows.columns}

        def value(column: tp.StructField) -> Column:
            name = given.get(column.name.lower())
            found = fn.lit(None) if name is None else fn.col(quote(name))
            return found.cast(column.dataType).alias(column.name)

        removed = fn.col(_REMOVED) if _REMOVED in given else fn.lit(False)
        return rows.select(*map(value, self.columns.fields), removed.alias(_REMOVED))

    def _write(
        self, rows: DataFrame, operation: str, metadata: Mapping[str, str], *, new: Sequence[str] | None = None
    ) -> None:
        """Make one commit; ``new``: the key of a table that is created by it."""
        key = new or self.key
        rows = rows.withColumn(key[0], checked_key(rows, key))
        options = {
            **(self.options if new is None else self._options),
            "hoodie.datasource.write.operation": operation,
            "hoodie.datasource.write.recordkey.field": ",".join(key),
            **metadata,
        }
        try:
            rows.write.format("hudi").options(**options).mode("append").save(self._path)
        except SPARK_ERRORS as error:
            if not has_fault(error):
                raise
            raise SinkError(
                f"a key does not fit the Hudi table {self.name}: Hudi identifies rows by the text of the key",
                hint="use another sink for the table, or other key columns (message.key.columns in the producer)",
            ) from error

    def _java(self, name: str) -> Any:
        return java_class(self._spark, name)


def _timeline(client: Any) -> Any:
    """Return the completed commits of the active timeline."""
    return client.getActiveTimeline().getCommitsTimeline().filterCompletedInstants()


def _calls(operation: Operation) -> list[str]:
    """Return the calls of a table that carry out an operation."""
    match operation:
        case Add():
            return [f"add({each.name!r}, {each.dataType.simpleString()!r})" for each in operation.columns]
        case Drop():
            return [f"drop({operation.column!r})"]
        case Rename():
            return [f"rename({operation.old!r}, {operation.new!r})"]
        case Widen() | Retype():
            return [f"retype({operation.column!r}, {operation.kind.simpleString()!r})"]
        case AllowNull():
            return ["allow_null()"]
        case SetProperties():
            return [f"set({dict(operation.properties)!r})"]
        case RemoveRows():
            return ["remove_rows()"]
        case _:
            raise TypeError(operation)
