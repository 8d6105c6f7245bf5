"""Sink ``iceberg``: one Iceberg table per captured table (table_sink.py), in any catalog that Spark has."""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import BOOLEAN, integer
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.base import SinkContext
from tailrace.spark_consumer.sink.iceberg_table import IcebergTable
from tailrace.spark_consumer.sink.iceberg_upkeep import IcebergUpkeep, is_conflict
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import PROPERTIES, TableOptions, check_fields, shape_images
from tailrace.spark_consumer.sink.table_names import TABLE_NAME, location
from tailrace.spark_consumer.sink.table_sink import TableSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.runtime.config.draft import Draft
    from tailrace.schemas.table import TableSchema


class IcebergOptions(TableOptions):
    """Settings of the Iceberg sink."""

    table: str = supported(
        "sink.table",
        TABLE_NAME,
        required=True,
        doc="Name of the tables, as catalog.schema.{table} or catalog.{database}.{table}; other characters than "
        "letters, digits and _ in a name are written as _xXX. A missing schema is created.",
    )
    rewrite_percent: int = supported(
        "sink.purge.percent",
        integer(0),
        default="20",
        doc="Deleted rows of a file, as a percentage of its rows, from which a compaction rewrites it. 0: never.",
    )
    expire_snapshots: bool = supported(
        "sink.expire.snapshots",
        BOOLEAN,
        default="true",
        doc="Whether a compaction also removes snapshots that are older than the table property "
        "history.expire.max-snapshot-age-ms (5 days).",
    )


def check_table(draft: Draft) -> None:
    """Report a name of the tables without a catalog."""
    if draft.is_set("sink.table") and draft.settings["sink.table"].value.count(".") < 2:
        draft.problems.append("sink.table: a name such as catalog.schema.{table} is needed, with the catalog of Spark")


_EXTENSION: Final = "org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions"


class IcebergSink(TableSink[IcebergTable]):
    """Writes the tables with the names of ``sink.table``."""

    def __init__(self, spark: SparkSession, options: IcebergOptions, context: SinkContext) -> None:
        _prepare_session(spark, options.table.partition(".")[0])
        upkeep = IcebergUpkeep(options.optimize_batches, options.rewrite_percent, expire=options.expire_snapshots)
        super().__init__(spark, options, context, upkeep, is_conflict)
        self._location = partial(location, path=None, template=options.table)

    def _table(self, schema: TableSchema) -> IcebergTable:
        return IcebergTable(self._spark, self._location(schema.database, schema.table))


def _prepare_session(spark: SparkSession, catalog: str) -> None:
    if _EXTENSION not in (spark.conf.get("spark.sql.extensions", "") or ""):
        raise SinkError(
            "the Spark session has no Iceberg extension",
            hint="start the session with the settings that docs/sinks/iceberg.md lists",
        )
    name = f"spark.sql.catalog.{catalog}"
    if spark.conf.get(name, None) is None:
        raise SinkError(
            f"the Spark session has no catalog {catalog}, which sink.table names",
            hint=f"set {name}=org.apache.iceberg.spark.SparkCatalog, its type and its address in the configuration",
        )
    # Each session has a cache of its own, which does not see what another session of this query has committed.
    spark.conf.set(f"{name}.cache-enabled", "false")
    # Compactions read and write their groups of files through it.
    spark.conf.set("spark.sql.catalog.default_rewrite_catalog", "org.apache.iceberg.spark.SparkRewriteTableCatalog")


SINK = SinkPlugin(
    name="iceberg",
    doc="Keeps one Iceberg table per captured table, equal to the source table.",
    options=IcebergOptions,
    images=Images.UPSERT,
    guarantee="exactly once: each batch changes a table once, whatever fails",
    open=IcebergSink,
    merges_tables=True,
    checks=(check_table, check_fields),
    rejected_elsewhere=PROPERTIES,
    fields=attrgetter("fields"),
    table_images=shape_images,
    jars={"4.1": ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",)},
    # Each batch is a snapshot with a metadata file.
    processing_time="10 seconds",
    spark_settings={"spark.sql.extensions": _EXTENSION},
)
