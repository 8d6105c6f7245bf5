"""The library: change events as typed DataFrames, in a program or a notebook of one's own.

::

    from tailrace.spark_consumer import apply_changes, read_changes

    changes = read_changes(spark, "shop.shop.orders", prefix="shop", bootstrap_servers="broker:9092")
    changes.writeStream.foreachBatch(lambda batch, _: apply_changes(batch, "main.shop.orders")).start()

There is no access to the JVM. docs/library.md describes the columns.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Window
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.rowkind import Op, RowKind
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.small_data import with_settings
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.formats.record_format import record_format
from tailrace.spark_consumer.source.formats.registry import FormatSettings
from tailrace.spark_consumer.source.json_decoder import row_type
from tailrace.spark_consumer.source.kafka import CLIENT_DEFAULTS, READ_COMMITTED, select_raw
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.version_decoder import decode_versions

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

_CHANGE_TYPES: Final[Mapping[str, str]] = {
    RowKind.INSERT.value: "insert",
    RowKind.UPDATE_BEFORE.value: "update_preimage",
    RowKind.UPDATE_AFTER.value: "update_postimage",
    RowKind.DELETE.value: "delete",
}
"""Row kinds, and the words of Spark's change data feeds."""

_UTC: Final = frozenset({"UTC", "ETC/UTC", "GMT", "Z", "+00:00"})
_ONE_CALLER: Final = threading.Lock()
_NEWER_SCHEMA: Final = "a record names a table schema that was published after the query started: restart the query"


def read_changes(
    spark: SparkSession,
    topic: str,
    *,
    prefix: str,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
) -> DataFrame:
    """Return the changes of one table as a streaming DataFrame (columns: ``decode``).

    ``topic`` is the topic of the table, ``prefix`` the producer's ``topic.prefix``. ``options`` are options of Spark's
    Kafka source, also those of the client (``kafka.…``). The columns are those of all schemas that are published when
    the stream is defined; a record with a later schema fails the query with a request to restart it.
    """
    client = {"kafka.bootstrap.servers": bootstrap_servers, **(options or {})}
    tracker = _published(spark, prefix, client)
    own = {**CLIENT_DEFAULTS, "startingOffsets": "earliest", **client}
    fixed = {"kafka.isolation.level": READ_COMMITTED, "subscribe": topic, "includeHeaders": "true"}
    records = spark.readStream.format("kafka").options(**{**own, **fixed}).load()
    return _decode(select_raw(records, "headers"), tracker.versions(topic))


def decode(
    records: DataFrame,
    topic: str,
    *,
    prefix: str,
    bootstrap_servers: str,
    options: Mapping[str, str] | None = None,
    settings: FormatSettings | None = None,
) -> DataFrame:
    """Return the changes in records of Kafka, as ``spark.read.format("kafka")`` with ``includeHeaders`` returns them.

    For a batch, for example in ``foreachBatch``. ``settings`` describes topics that Debezium wrote
    (docs/debezium-topics.md). The columns are ``kind`` (RowKind: +I, +U, -D), ``_change_type`` (Spark's word), ``key``
    (struct), ``before`` and ``after`` (structs), ``sequence`` (struct, comparable per key), ``database``, ``table``,
    ``op_ts``, ``position`` (struct of Kafka partition and offset), ``headers`` and ``schema_version`` (fingerprint).
    An invalid record fails the query when ``kind`` is evaluated.
    """
    client = {"kafka.bootstrap.servers": bootstrap_servers, **(options or {})}
    tracker = _published(records.sparkSession, prefix, client, optional=settings is not None)
    raw = select_raw(records.where(fn.col("topic") == topic), "headers")
    if settings is None:
        return _decode(raw, tracker.versions(topic))
    found = record_format(settings).resolve(raw, topic, tracker)
    schema, rows = decode_versions(_wrapped(found.records), found.schemas, Images.CHANGELOG, read=found.read)
    return _changes(rows, schema)


def to_changelog(changes: DataFrame) -> DataFrame:
    """Return one row per changelog entry: an update gives ``-U`` with ``before`` and ``+U`` with ``after``.

    The columns are those of ``decode`` with ``row`` in place of ``before`` and ``after``.
    """
    update = fn.col("kind") == RowKind.UPDATE_AFTER.value
    entries = (
        fn.when(update, fn.array(_entry(RowKind.UPDATE_BEFORE, "before"), _entry(RowKind.UPDATE_AFTER, "after")))
        .when(fn.col("kind") == RowKind.DELETE.value, fn.array(_entry(RowKind.DELETE, "before")))
        .otherwise(fn.array(_entry(RowKind.INSERT, "after")))
    )
    others = [name for name in changes.columns if name not in {"kind", "_change_type", "before", "after"}]
    exploded = changes.select(fn.explode(entries).alias("entry"), *others)
    kind = fn.col("entry.kind")
    return exploded.select(
        kind.alias("kind"), change_type(kind).alias("_change_type"), fn.col("entry.row").alias("row"), *others
    )


def latest(changes: DataFrame) -> DataFrame:
    """Return the last change of each key, by sequence and then by Kafka's order. For a batch, not for a stream."""
    order = [fn.col(name).desc() for name in ("sequence", "position") if name in changes.columns]
    newest_first = Window.partitionBy("key").orderBy(*order)
    return changes.withColumn("_rank", fn.row_number().over(newest_first)).where(fn.col("_rank") == 1).drop("_rank")


def apply_changes(batch: DataFrame, sink: str, *, using: str = "delta") -> None:
    """Merge the changes of a batch into a table; for ``foreachBatch``.

    ``sink`` names the table in SQL: ``catalog.schema.table``, or ``delta.`/path```. It is created with the columns of
    the rows and ``_seq``. A row changes only if its sequence is greater than that of the table, so a batch that is
    applied again changes nothing. A new column needs the session setting
    ``spark.databricks.delta.schema.autoMerge.enabled``.
    """
    spark = batch.sparkSession
    keys = _fields(batch, "key")
    deleted = fn.col("kind") == RowKind.DELETE.value
    columns = [
        (
            fn.when(deleted, fn.col("key")[name]).otherwise(fn.col("after")[name])
            if name in keys
            else fn.col("after")[name]
        ).alias(name)
        for name in _fields(batch, "after")
    ]
    rows = latest(batch).select(*columns, fn.col("sequence").alias(SEQUENCE_COLUMN), deleted.alias("_deleted"))
    listed = ", ".join(
        f"{_quoted(field.name)} {field.dataType.simpleString()}" for field in rows.drop("_deleted").schema
    )
    with _verbatim(spark, listed):
        spark.sql(f"CREATE TABLE IF NOT EXISTS {sink} ({listed}) USING {using}")
    names = [_quoted(name) for name in rows.drop("_deleted").columns]
    same = " AND ".join(f"t.{_quoted(name)} = s.{_quoted(name)}" for name in keys)
    newer = f"s.{SEQUENCE_COLUMN} > t.{SEQUENCE_COLUMN}"
    # Braces in names are not placeholders.
    target, names, same = _escaped(sink), [_escaped(name) for name in names], _escaped(same)
    statement = (
        f"MERGE INTO {target} t USING {{changes}} s ON {same} "
        f"WHEN MATCHED AND {newer} AND s._deleted THEN DELETE "
        f"WHEN MATCHED AND {newer} THEN UPDATE SET {', '.join(f't.{name} = s.{name}' for name in names)} "
        f"WHEN NOT MATCHED AND NOT s._deleted THEN INSERT ({', '.join(names)}) "
        f"VALUES ({', '.join(f's.{name}' for name in names)})"
    )
    with _verbatim(spark, listed):
        spark.sql(statement, changes=rows)


@contextmanager
def _verbatim(spark: SparkSession, names: str) -> Iterator[None]:
    """Let Spark take statements of the block as they are: in names of the source, ``${env:NAME}`` is no variable.

    Only where there are such names, one caller at a time: the session is the caller's, whose own texts may have
    variables.
    """
    if "${" not in names:
        yield
        return
    with _ONE_CALLER, with_settings(spark, {"spark.sql.variable.substitute": "false"}):
        yield


def _require_utc(spark: SparkSession, schema: TableSchema) -> None:
    """Raise SchemaError if the time zone of the session would move the values of a DATETIME."""
    zone = spark.conf.get("spark.sql.session.timeZone") or ""
    moved = [field.name for field in row_type(schema) if isinstance(field.dataType, tp.TimestampNTZType)]
    if moved and zone.upper() not in _UTC:
        raise SchemaError(
            f"the session time zone {zone} would move the times without a zone of topic {schema.topic}",
            hint="set spark.sql.session.timeZone=UTC before the call, and show times in another zone after it",
            columns=", ".join(moved),
        )


def change_type(kind: Column) -> Column:
    """Return Spark's word for a row kind."""
    words = [fn.lit(text) for pair in _CHANGE_TYPES.items() for text in pair]
    return fn.create_map(*words)[kind]


def _published(spark: SparkSession, prefix: str, client: Mapping[str, str], *, optional: bool = False) -> SchemaTracker:
    kafka = {name: value for name, value in client.items() if name.startswith("kafka.")}
    tracker = SchemaTracker(ControlTopic(schemas_topic(prefix), kafka, optional=optional))
    tracker.refresh(spark)
    return tracker


def _decode(raw: DataFrame, schemas: list[TableSchema]) -> DataFrame:
    known = fn.col("schema").isNull() | fn.col("schema").isin([schema.fingerprint for schema in schemas])
    checked = fn.when(known, fn.col("schema")).otherwise(fn.raise_error(fn.lit(_NEWER_SCHEMA)).cast("string"))
    schema, rows = decode_versions(_wrapped(raw.withColumn("schema", checked)), schemas, Images.CHANGELOG)
    return _changes(rows, schema)


def _wrapped(raw: DataFrame) -> DataFrame:
    """Put what the decoder does not know into the key, which it passes on."""
    return raw.withColumn("key", fn.when(fn.col("key").isNotNull(), fn.struct("key", "headers", "schema")))


def _changes(rows: DataFrame, schema: TableSchema) -> DataFrame:
    _require_utc(rows.sparkSession, schema)
    op = fn.col("op")
    kind = (
        fn.when(op.isin(Op.CREATE.value, Op.READ.value), RowKind.INSERT.value)
        .when(op == Op.UPDATE.value, RowKind.UPDATE_AFTER.value)
        .when(op == Op.DELETE.value, RowKind.DELETE.value)
        .otherwise(fn.raise_error(fn.lit(f"a truncate event of topic {schema.topic} has no row kind")).cast("string"))
    )
    # Spark moves no filter below an expression that is not deterministic. Otherwise a filter of the caller would come
    # before the selection of the records of each schema, and records would be decoded with the schema of others.
    kind = fn.when(fn.spark_partition_id() < 0, fn.lit(None)).otherwise(kind)
    key = fn.struct(*(fn.coalesce(fn.col("after")[name], fn.col("before")[name]).alias(name) for name in schema.key))
    return rows.select(
        kind.alias("kind"),
        change_type(kind).alias("_change_type"),
        key.alias("key"),
        "before",
        "after",
        fn.col("seq").alias("sequence"),
        fn.lit(schema.database).alias("database"),
        fn.lit(schema.table).alias("table"),
        fn.timestamp_millis("ts_ms").alias("op_ts"),
        fn.struct("partition", "offset").alias("position"),
        fn.col("key.headers").alias("headers"),
        fn.col("key.schema").alias("schema_version"),
    )


def _entry(kind: RowKind, image: str) -> Column:
    return fn.struct(fn.lit(kind.value).alias("kind"), fn.col(image).alias("row"))


def _fields(frame: DataFrame, name: str) -> list[str]:
    found: Any = frame.schema[name].dataType
    assert isinstance(found, tp.StructType)
    return list(found.names)


def _escaped(text: str) -> str:
    return text.replace("{", "{{").replace("}", "}}")


def _quoted(name: str) -> str:
    return f"`{name.replace('`', '``')}`"
