"""Sink ``hudi``: one Hudi table per captured table (table_sink.py)."""

from __future__ import annotations

from operator import attrgetter
from typing import TYPE_CHECKING, Final

from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.base import SinkContext
from tailrace.spark_consumer.sink.hudi_options import HudiOptions
from tailrace.spark_consumer.sink.hudi_table import HudiTable
from tailrace.spark_consumer.sink.hudi_upkeep import HudiUpkeep
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import PROPERTIES, check_fields, shape_images
from tailrace.spark_consumer.sink.table_names import path_segment, plain_name
from tailrace.spark_consumer.sink.table_sink import TableSink

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

_EXTENSION: Final = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
_SERIALIZER: Final = "org.apache.spark.serializer.KryoSerializer"


class HudiSink(TableSink[HudiTable]):
    """Writes the tables at ``sink.path``."""

    def __init__(self, spark: SparkSession, options: HudiOptions, context: SinkContext) -> None:
        if spark.conf.get("spark.serializer", "") != _SERIALIZER:
            raise SinkError(
                "the Spark session has not the serializer that Hudi needs",
                hint="start the session with the settings that docs/sinks/hudi.md lists",
            )
        # There is one writer: nobody else changes the files.
        super().__init__(spark, options, context, HudiUpkeep(options.optimize_batches), lambda _: False)
        self._root = options.path.rstrip("/")

    def _target(self, schema: TableSchema) -> HudiTable:
        path = f"{self._root}/{path_segment(schema.database)}/{path_segment(schema.table)}"
        name = plain_name(f"{schema.database}_{schema.table}")
        return HudiTable(self._spark, path, name, self._table_properties)


SINK = SinkPlugin(
    name="hudi",
    doc="Keeps one Hudi table per captured table, equal to the source table.",
    options=HudiOptions,
    images=Images.UPSERT,
    guarantee="exactly once: each batch changes a table once, whatever fails",
    open=HudiSink,
    checks=(check_fields,),
    rejected_elsewhere=PROPERTIES,
    fields=attrgetter("fields"),
    table_images=shape_images,
    jars={"3.5": ("org.apache.hudi:hudi-spark3.5-bundle_2.12:1.2.0",)},
    # Each batch is a commit.
    processing_time="30 seconds",
    spark_settings={
        "spark.sql.extensions": _EXTENSION,
        "spark.serializer": _SERIALIZER,
        "spark.kryo.registrator": "org.apache.spark.HoodieSparkKryoRegistrar",
        # Dates before 1582-10-15 as they are: the default of Spark 4. Spark 3.5 takes them for a fault.
        "spark.sql.avro.datetimeRebaseModeInWrite": "CORRECTED",
        "spark.sql.parquet.datetimeRebaseModeInRead": "CORRECTED",
    },
)
