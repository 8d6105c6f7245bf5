"""Sink ``hudi``: one Hudi table per captured table (table_sink.py)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import attrgetter
from random import randrange
from typing import TYPE_CHECKING, Final, Literal, get_args

import structlog

from tailrace.runtime.config.section import prefixed, supported
from tailrace.runtime.config.value_types import ANY_TEXT, DIRECTORY, integer, one_of
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.sink.base import SinkContext
from tailrace.spark_consumer.sink.hudi_table import HudiTable
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import (
    OVERRIDES_DOC,
    PROPERTIES,
    Shape,
    TableOptions,
    check_fields,
    overrides,
    shape_images,
)
from tailrace.spark_consumer.sink.table_names import literal, path_segment, plain_name
from tailrace.spark_consumer.sink.table_sink import TableSink
from tailrace.spark_consumer.sink.table_upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema

log = structlog.get_logger(__name__)


class HudiUpkeep(Upkeep[HudiTable]):
    """Runs the procedure of Hudi that clusters a table; Hudi itself removes old files and joins small ones.

    Clustering joins the files that are small after all and sorts the rows by key, so that files have narrow ranges of
    keys. Its commit has no ledger; the ledgers of the commits before it count. Hudi does not number its commits: each
    start of the query begins to count at a random number.
    """

    def __init__(self, batches: int) -> None:
        super().__init__(batches)
        self._first = randrange(1 << 16)  # so that short runs are due as often in the mean
        self._written: Counter[str] = Counter()

    def after_batch(self, table: HudiTable) -> None:
        """Count a batch that changed a table."""
        self._written[table.name] += 1
        super().after_batch(table)

    def _commits(self, table: HudiTable) -> int:
        return self._first + self._written[table.name]

    def _tend(self, spark: SparkSession, table: HudiTable) -> None:
        order = literal(",".join(table.key))
        # Without them the procedure has Hudi's defaults: a metadata table, and the timeline server. It splits their
        # text at commas and equals signs.
        given = {name: value for name, value in table.options.items() if value and not {",", "="} & set(value)}
        options = literal(",".join(f"{name}={value}" for name, value in given.items()))
        spark.sql(
            f"CALL run_clustering(path => {literal(table.name)}, order => {order}, options => {options})"
        ).collect()
        log.info("table clustered", table=table.name)


HudiShape = Literal["scd1", "soft-delete"]
"""Shapes with one row per key: Hudi identifies a row by its key."""


class HudiOptions(TableOptions):
    """Settings of the Hudi sink."""

    shape: Shape = supported(
        "sink.shape",
        one_of(HudiShape),
        default="scd1",
        doc="[Shape](shapes.md) of the tables: scd1 or soft-delete.",
    )
    shape_overrides: tuple[tuple[str, Shape], ...] = supported(
        "sink.shape.overrides", overrides(get_args(HudiShape)), default="", doc=OVERRIDES_DOC
    )
    path: str = supported(
        "sink.path",
        DIRECTORY,
        required=True,
        doc="Directory of the tables, which are at <path>/<database>/<table>.",
    )
    table_properties: Mapping[str, str] = prefixed(
        "sink.properties.*",
        ANY_TEXT,
        doc="Options of Hudi for all writes, such as hoodie.metadata.enable or hoodie.parquet.max.file.size.",
    )
    optimize_batches: int = supported(
        "sink.optimize.batches",
        integer(0),
        default="100",
        doc="Batches with changes of a table after which its small files are joined and sorted (clustering), counted "
        "from a random number at a start; 0: never.",
    )


_EXTENSION: Final = "org.apache.spark.sql.hudi.HoodieSparkSessionExtension"
_SERIALIZER: Final = "org.apache.spark.serializer.KryoSerializer"


class HudiSink(TableSink[HudiTable]):
    """Writes the tables at ``sink.path``."""

    def __init__(self, spark: SparkSession, options: HudiOptions, context: SinkContext) -> None:
        if spark.conf.get("spark.serializer", "") != _SERIALIZER:
            raise SinkError(
                "the Spark session has not the serializer that Hudi needs",
                hint=f"start the session with spark.serializer={_SERIALIZER} and the others of docs/sinks/hudi.md",
            )
        # There is one writer: nobody else changes the files.
        super().__init__(spark, options, context, HudiUpkeep(options.optimize_batches), lambda _: False)
        self._root = options.path.rstrip("/")

    def _table(self, schema: TableSchema) -> HudiTable:
        path = f"{self._root}/{path_segment(schema.database)}/{path_segment(schema.table)}"
        name = plain_name(f"{schema.database}_{schema.table}")
        return HudiTable(self._spark, path, name, self._options.table_properties)


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
