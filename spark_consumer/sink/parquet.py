"""Sink ``parquet``: the changelog of each table as Parquet files in a folder of its own, partitioned by day.

``<path>/<database>/<table>/tailrace_part=2024-05-06/tailrace_write=<name>/part-….parquet``

The name of a write belongs to the records that it begins with. An attempt to write them again after a failure has the
same name, and replaces the files of the earlier attempt (Spark's dynamic overwrite of partitions). So after every
recovery each changelog row is there once.

A column keeps the type that it had in the first file: the columns are in ``_tailrace/columns.json``, which is written
before the first file that has them. Readers then need no merge of types.

A directory has the file ``_tailrace/topics/<topic>.json`` of each topic that writes to it, with the values of its shard
if it is shared. It is written before the first rows, and those of others are read before and after it.
"""

from __future__ import annotations

import hashlib
import threading
from collections import defaultdict
from collections.abc import Mapping
from contextlib import nullcontext
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.config.section import prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, DIRECTORY, TEXT, InvalidValueError, ValueType
from tailrace.runtime.errors import SchemaError
from tailrace.schemas import sequence as seq
from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.files import (
    children,
    delete_document,
    document_names,
    exists,
    read_document,
    write_document,
)
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.rowkind import RENAME_COLUMN
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import FIELD_PROPERTIES, MetadataOptions, fields_check
from tailrace.spark_consumer.sink.state import ALONE, Shard, require_owner
from tailrace.spark_consumer.sink.table_names import path_segment, quote
from tailrace.spark_consumer.small_data import with_settings
from tailrace.spark_consumer.source.common_type import can_check, common_type, convert_value, failing
from tailrace.spark_consumer.source.json_decoder import METADATA
from tailrace.spark_consumer.source.types import SEQUENCE_TYPE, sequence_literal

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

PART: Final = "tailrace_part"
WRITE: Final = "tailrace_write"
COLUMNS: Final = "_tailrace/columns.json"
TOPICS: Final = "_tailrace/topics"

_META: Final = tp.StructType(
    [
        tp.StructField("_kind", tp.StringType()),
        tp.StructField("_seq", SEQUENCE_TYPE),
        tp.StructField("_ts", tp.TimestampType()),
        tp.StructField("_key", tp.BinaryType()),
        tp.StructField("_partition", tp.IntegerType()),
        tp.StructField("_offset", tp.LongType()),
        tp.StructField("_part", tp.IntegerType()),
    ]
)
"""The columns that every file has besides those of the table."""
_RESERVED: Final = frozenset({PART, WRITE, *_META.names})
_FOUND: Final = ("kind", "seq", "ts_ms", "key", "partition", "offset", "part")
"""The columns of changelog rows that they come from."""
_SETTINGS: Final = {"spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS"}
"""Spark's default is a type that the format has given up."""
_NAME_DIGITS: Final = 24

log = structlog.get_logger(__name__)


def _read_shape(text: str) -> str:
    if text.strip().lower() != "history":
        raise InvalidValueError("files are only added, so the sink parquet has no other shape")
    return "history"


class ParquetOptions(MetadataOptions):
    """Settings of the Parquet sink."""

    shape: str = supported(
        "sink.shape",
        ValueType("history", _read_shape),
        default="history",
        doc="A changelog is a history.",
    )

    path: str = supported(
        "sink.path",
        DIRECTORY,
        required=True,
        doc="Directory of the changelogs, which are at <path>/<database>/<table>.",
    )
    part: str = supported(
        "sink.partition.by",
        TEXT,
        default="to_date(_ts)",
        doc="Spark SQL expression over the columns of the changelog by which the files are partitioned.",
    )
    writer: Mapping[str, str] = prefixed(
        "sink.parquet.*", ANY_TEXT, doc="Options of Spark's Parquet writer, such as compression."
    )


class ParquetSink:
    """Writes changelog rows as files."""

    def __init__(self, options: ParquetOptions, context: SinkContext) -> None:
        self._options = options
        self._context = context
        self._locks: defaultdict[str, threading.Lock] = defaultdict(threading.Lock)
        """By the path of a changelog that several tables share: Spark's writers must not meet in one directory."""
        self._columns: dict[str, tp.StructType] = {}
        """By topic: the columns that the files of a table have."""
        self._claimed: dict[str, str] = {}
        """By topic: the directory that it may write to."""

    def applied(self, schema: TableSchema) -> Mapping[int, int] | None:  # noqa: ARG002 - part of the protocol
        """Return nothing: the names of the writes tell what is repeated."""
        return None

    def prepare_table(self, schema: TableSchema) -> None:
        """Do nothing: the folder comes with its first rows."""

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - the write has its own name
        """Write the changelog rows of one table; rows of an earlier attempt are replaced."""
        schema, shard = batch.schema, self._context.shard(batch.schema.topic)
        path = f"{self._options.path.rstrip('/')}/{path_segment(schema.database)}/{path_segment(schema.table)}"
        try:
            with nullcontext() if shard is None else self._locks[path]:
                self._write(batch, path, shard)
        except BaseException:
            # The directory may be another one at the next attempt.
            self._columns.pop(batch.schema.topic, None)
            self._claimed.pop(batch.schema.topic, None)
            raise

    def close(self) -> None:
        """Do nothing: no resources are held."""

    def _write(self, batch: TableBatch, path: str, shard: Shard | None) -> None:
        schema, spark = batch.schema, batch.records.sparkSession
        text = f"{self._context.query_id} {batch.name}"
        if shard is not None:
            text += f" {schema.topic}"  # the same offsets of two shards are two writes
            self._columns.pop(schema.topic, None)  # another one may have added columns
        name = "w" + hashlib.sha256(text.encode()).hexdigest()[:_NAME_DIGITS]
        # The columns of a shared directory are read each time too, because others change them.
        is_known = shard is None and self._claimed.get(schema.topic) == path
        claim = schema.topic, _values(shard)
        is_claimed = is_known or read_document(spark, _claim_file(path, schema.topic), _claim_in) == claim
        if not is_claimed:
            require_owner(schema.topic, shard, _owners(spark, path), path)
        columns = self._prepare(spark, path, batch)
        if not is_claimed:
            _claim(spark, path, schema.topic, shard)
        self._claimed[schema.topic] = path
        rows = _rows(batch.records, schema, columns)
        if batch.truncated is not None:
            others = fn.col(WRITE) != name
            others = others if shard is None else others & fn.expr(shard.condition(columns))
            deletes = _deletes(spark, path, columns, batch.truncated, others)
            rows = rows if deletes is None else rows.unionByName(deletes)
        rows = rows.withColumns({PART: fn.expr(self._options.part), WRITE: fn.lit(name)})
        # Few files for each value, however many tasks have rows of it.
        rows = rows.hint("rebalance", fn.col(PART))
        writer = rows.write.mode("overwrite").options(**self._options.writer)
        writer.option("partitionOverwriteMode", "dynamic").partitionBy(PART, WRITE)
        with with_settings(spark, _SETTINGS):
            writer.parquet(path)

    def _prepare(self, spark: SparkSession, path: str, batch: TableBatch) -> tp.StructType:
        """Return the columns of the files of a table, after new ones have been noted."""
        schema, file = batch.schema, f"{path}/{COLUMNS}"
        metadata = [tp.StructField(field.column, field.type) for field in self._options.fields]
        _check_names(schema, {field.name.lower() for field in metadata})
        known = self._columns.get(schema.topic)
        if known is None:
            stored_columns = read_document(spark, file, tp.StructType.fromJson)
            if stored_columns is None and exists(spark, path):
                raise SinkError(
                    f"{path} exists and is no changelog of Tailrace: it has no file {COLUMNS}",
                    hint="set another sink.path, or move the directory away",
                )
            known = stored_columns or tp.StructType()
        stored = {field.name.lower(): field for field in known.fields}
        row = batch.records.schema["row"].dataType
        assert isinstance(row, tp.StructType)
        wanted = [*row.fields, *metadata]
        new = [tp.StructField(field.name, field.dataType) for field in wanted if field.name.lower() not in stored]
        for field in wanted:
            of = stored.get(field.name.lower(), field).dataType
            if common_type(field.dataType, of) != of and not can_check(field.dataType, of):
                raise SinkError(
                    f"the type of column {field.name} of {schema.database}.{schema.table} has changed, and the files "
                    "of a changelog keep the type of a column",
                    hint="move the directory away: the changelog then goes on in a new one",
                    path=path,
                    stored=of.simpleString(),
                    now=field.dataType.simpleString(),
                )
        if new:
            known = tp.StructType([*known.fields, *new])
            write_document(spark, file, known.jsonValue())
            log.info("columns of a changelog", path=path, new=[field.name for field in new])
        self._columns[schema.topic] = known
        return known


def _owners(spark: SparkSession, path: str) -> dict[str, str]:
    """Return the topics that write to a directory, with the values of their shards; not those of earlier releases."""
    names = document_names(spark, f"{path}/{TOPICS}")
    claims = (read_document(spark, f"{path}/{TOPICS}/{name}.json", _claim_in) for name in names)
    return dict(claim for claim in claims if claim is not None)


def _claim_file(path: str, topic: str) -> str:
    return f"{path}/{TOPICS}/{path_segment(topic)}.json"


def _claim_in(body: Mapping[str, Any]) -> tuple[str, str]:
    return body["topic"], body["shard"]


def _values(shard: Shard | None) -> str:
    return ALONE if shard is None else shard.text


def _claim(spark: SparkSession, path: str, topic: str, shard: Shard | None) -> None:
    """Note that a topic writes to a directory. Raises SinkError if another one has done so meanwhile."""
    write_document(spark, _claim_file(path, topic), {"topic": topic, "shard": _values(shard)})
    try:
        require_owner(topic, shard, _owners(spark, path), path)
    except SinkError:
        delete_document(spark, _claim_file(path, topic))
        raise


def _deletes(
    spark: SparkSession, path: str, columns: tp.StructType, truncated: seq.Sequence, others: Column
) -> DataFrame | None:
    """Return a ``-D`` for each row that a changelog has, if its last entry is before the truncate event.

    ``others`` takes the rows that count: not those that an earlier attempt of this write has stored.
    """
    if not any(entry.startswith(f"{PART}=") for entry in children(spark, path)):
        return None
    fields = [*columns.fields, *_META.fields]
    written = spark.read.schema(tp.StructType([*fields, tp.StructField(WRITE, tp.StringType())])).parquet(path)
    newest_first = Window.partitionBy("_key").orderBy(
        *(fn.col(each).desc() for each in ("_seq", "_partition", "_offset", "_part"))
    )
    last = written.where(others).withColumn("_rank", fn.row_number().over(newest_first))
    left = last.where((fn.col("_rank") == 1) & (fn.col("_kind") != RowKind.DELETE.value))
    older = left.where(fn.col("_seq") < sequence_literal(truncated))
    changed = {
        "_kind": fn.lit(RowKind.DELETE.value),
        "_seq": sequence_literal(truncated),
        "_part": fn.col("_part") + fn.lit(1),
    }
    return older.withColumns(changed).select(*(quote(field.name) for field in fields))


def _rows(changes: DataFrame, schema: TableSchema, columns: tp.StructType) -> DataFrame:
    """Return changelog rows with the columns of the files, in their types: values are represented, or checked."""
    row = changes.schema["row"].dataType
    assert isinstance(row, tp.StructType)
    images = {"row": row, METADATA: changes.schema[METADATA].dataType} if METADATA in changes.columns else {"row": row}
    given = {
        field.name.lower(): (image, field)
        for image, kind in images.items()
        if isinstance(kind, tp.StructType)
        for field in kind.fields
    }
    values = []
    for field in columns.fields:
        image, own = given.get(field.name.lower(), ("", None))
        value = fn.lit(None).cast(field.dataType)
        if own is not None:
            text = f"a value of {schema.database}.{schema.table}, column {own.name}, does not fit the files: "
            found = fn.col(image).getField(own.name)
            value, lost = convert_value(found, own.dataType, field.dataType)
            value = failing(value, lost, field.dataType, text, found)
        values.append(value.alias(field.name))
    meta = [fn.timestamp_millis("ts_ms") if name == "ts_ms" else fn.col(name) for name in _FOUND]
    named = [value.cast(field.dataType).alias(field.name) for value, field in zip(meta, _META.fields, strict=True)]
    return changes.select(*values, *named)


def _check_names(schema: TableSchema, added: set[str]) -> None:
    reserved = _RESERVED | added
    seen: dict[str, str] = {}
    for column in schema.columns:
        lower = column.name.lower()
        if lower in reserved or lower in seen:
            raise SchemaError(
                f"column {column.name!r} of {schema.database}.{schema.table} cannot be stored under its name",
                hint=RENAME_COLUMN,
                collides_with=seen.get(lower, lower),
            )
        seen[lower] = column.name


SINK = SinkPlugin(
    name="parquet",
    doc="Writes the changelog of each table as Parquet files.",
    options=ParquetOptions,
    images=Images.CHANGELOG,
    guarantee="exactly once with its checkpoint: a write that is repeated replaces its files",
    open=lambda _, options, context: ParquetSink(options, context),
    checks=(fields_check(_RESERVED),),
    rejected_elsewhere=FIELD_PROPERTIES,
    fields=attrgetter("fields"),
    merges_tables=True,
    # Each batch writes a file for each table and day.
    processing_time="1 minute",
)
