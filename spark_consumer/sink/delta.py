"""Delta tables, one per captured table: the last change per key of each batch, applied once.

A batch makes at most two commits per table, an append (first_load.py) and a MERGE, each stamped with a transaction id
of this query, table and batch number, so that Delta skips what an earlier try has committed. MERGE changes a row only
where the record's sequence is greater than the stored one. The batch that makes the table needs no MERGE: nothing can
be found in an empty table, so what each key ends as is appended in one commit. Run again after that commit, the same
records take MERGE, whose guard finds each of them applied.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import reduce
from typing import TYPE_CHECKING, Final

import structlog
from pyspark.sql import DataFrame
from pyspark.sql import functions as fn

from tailrace.runtime.errors import SinkError
from tailrace.schemas.rowkind import Op
from tailrace.schemas.sequence import SEQUENCE_COLUMN
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.changelog.flatten import DELETED_COLUMN, upsert_columns
from tailrace.spark_consumer.normalize.latest import last_per_key
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.delta_table import (
    FIRST_LOAD,
    FIRST_LOAD_EARLY,
    FIRST_LOAD_START,
    QUERY,
    TOPIC,
    DeltaTable,
    quote,
)
from tailrace.spark_consumer.sink.initial_load import InitialLoad, append_or_merge
from tailrace.spark_consumer.source.json_decoder import Images

if TYPE_CHECKING:
    from pyspark.sql import Column, SparkSession

_SOURCE: Final = "tailrace_batch"
_APP_ID: Final = "spark.databricks.delta.write.txnAppId"
_VERSION: Final = "spark.databricks.delta.write.txnVersion"

log = structlog.get_logger(__name__)


class DeltaSink:
    """Writes ``<path>/<database>/<table>``."""

    name = "delta"
    images = Images.UPSERT
    guarantee = "exactly once: each batch changes a table once, whatever fails"

    def __init__(self, path: str, properties: Mapping[str, str]) -> None:
        self._path = path.rstrip("/")
        self._table_properties = dict(properties)
        self._tables: dict[str, DeltaTable] = {}
        self._evolved: dict[str, TableSchema] = {}
        self._empty: set[str] = set()
        """Topics whose tables this query has made and not written to."""
        self._context: SinkContext | None = None

    def prepare(self, spark: SparkSession, context: SinkContext) -> None:
        """Keep the query's identity."""
        if "DeltaSparkSessionExtension" not in (spark.conf.get("spark.sql.extensions", "") or ""):
            raise SinkError(
                "this Spark session has no Delta Lake",
                hint="start it with the settings that docs/consumer.md lists for the delta sink",
            )
        self._context = context

    def make_ready(self, spark: SparkSession, schema: TableSchema) -> None:
        """Make or widen the table to hold what the schema says."""
        table = self._tables.get(schema.topic)
        if table is None:
            table = DeltaTable(spark, f"{self._path}/{schema.database}/{schema.table}")
            if not table.exists:
                self._create(spark, table, schema)
                self._empty.add(schema.topic)
            self._tables[schema.topic] = table
        seen = table.properties.get(TOPIC)
        if seen != schema.topic:
            raise SinkError(
                f"the Delta table at {table.path} belongs to another topic",
                hint="give each topic.prefix its own sink.path",
                table_topic=seen,
                batch_topic=schema.topic,
            )
        if self._evolved.get(schema.topic) != schema:
            table.evolve(schema)
            self._evolved[schema.topic] = schema

    def apply(self, batch: TableBatch, batch_id: int) -> None:
        """Append and merge one table's records."""
        table, empty = self._tables[batch.schema.topic], batch.schema.topic in self._empty
        self._empty.discard(batch.schema.topic)
        load = self._open_load(table, batch)
        if load is not None:
            self._load(table, batch, batch_id, load, empty=empty)
            return
        last = last_per_key(batch.records, incremental=any(fact.incremental for fact in batch.facts))
        if empty:
            self._append(table, batch.schema, None, last, batch_id)
        else:
            self._merge(table, batch.schema, last, batch_id)

    def close(self) -> None:
        """Nothing is held."""

    def _open_load(self, table: DeltaTable, batch: TableBatch) -> InitialLoad | None:
        """Return what the first load still allows for this batch, None where it is closed; its properties are kept."""
        load = InitialLoad.from_properties(table.properties, self._known().query_id)
        if load is None:
            return None
        seen = [fact.split for fact in batch.facts if fact.split is not None]
        runs = self._known().runs
        runs.learn(batch.records.sparkSession, seen)
        splits = runs.splits_of(load.run, seen)
        still = None if load.meets_other_run(batch.facts, splits) else load.with_early(batch.records, batch.facts)
        if still is None:
            log.info("first load closed", table=table.path, run=load.run)
            table.unset(FIRST_LOAD, FIRST_LOAD_START, FIRST_LOAD_EARLY)
            return None
        if still != load:
            table.set(still.early_property)
        return still

    def _load(self, table: DeltaTable, batch: TableBatch, batch_id: int, load: InitialLoad, *, empty: bool) -> None:
        changes = sum(fact.changes for fact in batch.facts)
        loads, others = append_or_merge(batch.records, load.early, changes=changes)
        more = bool(changes) or (bool(load.early) and not others.isEmpty())
        if empty:
            self._append(table, batch.schema, loads, last_per_key(others) if more else None, batch_id)
            return
        if any(fact.split is not None for fact in batch.facts):
            self._append(table, batch.schema, loads, None, batch_id)
        if more:
            self._merge(table, batch.schema, last_per_key(others), batch_id)

    def _create(self, spark: SparkSession, table: DeltaTable, schema: TableSchema) -> None:
        context = self._known()
        context.runs.refresh(spark)
        run = context.runs.first(schema.topic)
        marks = {TOPIC: schema.topic, QUERY: context.query_id}
        table.create(schema, {**self._table_properties, **marks, **InitialLoad.properties(run)})
        log.info("table created", table=table.path, first_load=run.id if run else None)

    def _append(
        self, table: DeltaTable, schema: TableSchema, loads: DataFrame | None, last: DataFrame | None, batch_id: int
    ) -> None:
        """Append ``loads``, of which each is a key's only record, and what the keys of ``last`` end as."""
        parts = [] if loads is None else [loads]
        if last is not None:
            parts.append(last.where(fn.col("op") != Op.DELETE.value))
        stored = [*_stored(table, schema), fn.col("seq").alias(SEQUENCE_COLUMN)]
        rows = reduce(DataFrame.unionByName, [records.select(*stored) for records in parts])
        writer = rows.write.format("delta").mode("append")
        writer = writer.option("txnAppId", self._app_id(schema, "append")).option("txnVersion", str(batch_id))
        writer.save(table.path)

    def _merge(self, table: DeltaTable, schema: TableSchema, last: DataFrame, batch_id: int) -> None:
        deleted = (fn.col("op") == Op.DELETE.value).alias(DELETED_COLUMN)
        source = last.select(*_stored(table, schema), fn.col("seq").alias(SEQUENCE_COLUMN), deleted)
        spark = last.sparkSession
        source.createOrReplaceTempView(_SOURCE)
        spark.conf.set(_APP_ID, self._app_id(schema, "merge"))
        spark.conf.set(_VERSION, str(batch_id))
        try:
            spark.sql(merge_statement(table.sql_name, schema))
        finally:
            # Left set, they would make Delta skip the next table's commits.
            spark.conf.unset(_APP_ID)
            spark.conf.unset(_VERSION)
            spark.catalog.dropTempView(_SOURCE)

    def _app_id(self, schema: TableSchema, kind: str) -> str:
        return f"tailrace/{self._known().query_id}/{schema.topic}/{kind}"

    def _known(self) -> SinkContext:
        assert self._context is not None, "prepare comes first"
        return self._context


def _stored(table: DeltaTable, schema: TableSchema) -> list[Column]:
    """Return the batch's columns in the types that the table stores; a number that does not fit fails the batch."""
    types = {field.name.lower(): field.dataType for field in table.columns}
    return [
        column.cast(types[field.name.lower()]).alias(field.name)
        for column, field in zip(upsert_columns(schema), schema.columns, strict=True)
    ]


def merge_statement(target: str, schema: TableSchema) -> str:
    """Return the MERGE of the batch view into a table."""
    names = [quote(column.name) for column in schema.columns] + [quote(SEQUENCE_COLUMN)]
    optional = {column.name for column in schema.columns if column.schema.optional}
    on = " AND ".join(f"t.{quote(k)} {'<=>' if k in optional else '='} s.{quote(k)}" for k in schema.key)
    later = f"s.{SEQUENCE_COLUMN} > t.{SEQUENCE_COLUMN}"
    return (
        f"MERGE INTO {target} AS t USING {_SOURCE} AS s ON {on}\n"
        f"WHEN MATCHED AND {later} AND s.{DELETED_COLUMN} THEN DELETE\n"
        f"WHEN MATCHED AND {later} THEN UPDATE SET {', '.join(f't.{n} = s.{n}' for n in names)}\n"
        f"WHEN NOT MATCHED AND NOT s.{DELETED_COLUMN} THEN INSERT ({', '.join(names)})"
        f" VALUES ({', '.join(f's.{n}' for n in names)})"
    )
