"""Sink ``iceberg``: one Iceberg table per captured table (table_sink.py), in any catalog that Spark has."""

from __future__ import annotations

import json
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Any, Final

import structlog
from pyspark.sql import types as tp

from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import BOOLEAN, integer
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.java_errors import JavaError, java_errors
from tailrace.spark_consumer.sink.base import SinkContext
from tailrace.spark_consumer.sink.iceberg_table import LEDGER, IcebergTable
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.sink.shape import PROPERTIES, TableOptions, check_fields, shape_images
from tailrace.spark_consumer.sink.table_names import TABLE_NAME, location
from tailrace.spark_consumer.sink.table_sink import TableSink
from tailrace.spark_consumer.sink.table_upkeep import Upkeep

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.runtime.config.draft import Draft
    from tailrace.schemas.table import TableSchema

_TARGET_SIZE: Final = 128 << 20
"""Files of moderate size have narrow ranges of keys."""
_WITH_POSITION_DELETES: Final = 2
"""The format version whose deleted positions are files of their own; later ones join them when they write."""
_WITHOUT_ORDER: Final = (tp.StructType, tp.ArrayType, tp.MapType)
_CONFLICTS: Final = tuple(f"org.apache.iceberg.exceptions.{name}Exception" for name in ("CommitFailed", "Validation"))
"""The errors of a commit that lost against another one."""
_BEHIND: Final = "Cannot fast-forward"
"""What the error begins with, of a class of Java, if a branch is no longer a successor of the main one."""

log = structlog.get_logger(__name__)


class IcebergUpkeep(Upkeep[IcebergTable]):
    """Rewrites data files and files of deleted positions, and removes snapshots.

    A compaction joins small files into files that are sorted by key, and rewrites the files of which many rows are
    deleted. Files of the target size with few deleted rows stay as they are. Then small files of deleted positions are
    joined, and old snapshots are removed. The commit of a compaction carries the ledger on, so that it is there when
    all snapshots before it have been removed.
    """

    def __init__(self, batches: int, rewrite_percent: int, *, expire: bool) -> None:
        super().__init__(batches)
        self._rewrite_percent = rewrite_percent
        self._expire = expire

    def _commits(self, table: IcebergTable) -> int:
        return table.commits

    def _tend(self, spark: SparkSession, table: IcebergTable) -> None:
        jvm: Any = spark._jvm  # noqa: SLF001 - only the Java library can give the commit a ledger
        library = jvm.org.apache.iceberg
        session: Any = spark._jsparkSession  # noqa: SLF001
        # The actions look up their tables in the active session of the thread, which can be another one.
        jvm.org.apache.spark.sql.classic.SparkSession.setActiveSession(session)
        actions = library.spark.actions.SparkActions.get(session)
        ledger, loaded = table.ledger_text(), table.load()
        rewrite = _with_order(library, actions.rewriteDataFiles(loaded), loaded, table)
        for name, value in self._options().items():
            rewrite = rewrite.option(name, value)
        rewritten = _with_ledger(rewrite, ledger).execute().rewrittenDataFilesCount()
        loaded.refresh()
        if library.TableUtil.formatVersion(loaded) == _WITH_POSITION_DELETES:
            # All of them: those of the last batch before the compaction belong to files that are gone.
            positions = actions.rewritePositionDeletes(loaded).option("rewrite-all", "true")
            _with_ledger(positions, ledger).execute()
            loaded.refresh()
        # The last snapshot with a ledger is not removed, also if somebody else has committed meanwhile.
        carried = not ledger or table.newest_is(ledger)
        if self._expire and carried and table.properties.get("gc.enabled", "true").lower() == "true":
            loaded.expireSnapshots().commit()
        log.info("table compacted", table=table.name, files=rewritten)

    def _options(self) -> dict[str, str]:
        options = {"target-file-size-bytes": str(_TARGET_SIZE)}
        if self._rewrite_percent:
            options["delete-ratio-threshold"] = str(min(1.0, self._rewrite_percent / 100))
        return options


def is_conflict(error: BaseException) -> bool:
    """Return whether a command of somebody else changed the same files."""
    return any(each.is_any(*_CONFLICTS) or _is_behind(each) for each in java_errors(error))


def _is_behind(error: JavaError) -> bool:
    return error.is_any("java.lang.IllegalArgumentException") and error.message.startswith(_BEHIND)


def _with_order(library: Any, rewrite: Any, loaded: Any, table: IcebergTable) -> Any:
    """Let the new files be sorted: as the table wants it, or by key."""
    if not loaded.sortOrder().isUnsorted():
        return rewrite.sort()
    key = json.loads(table.state.key or "[]")
    types = {field.name.lower(): field.dataType for field in table.columns}
    if not key or any(isinstance(types[name.lower()], _WITHOUT_ORDER) for name in key):
        return rewrite.binPack()
    order = library.SortOrder.builderFor(loaded.schema()).caseSensitive(False)
    for name in key:
        order = order.asc(name)
    return rewrite.sort(order.build())


def _with_ledger(action: Any, ledger: str) -> Any:
    return action.snapshotProperty(LEDGER, ledger) if ledger else action


class IcebergOptions(TableOptions):
    """Settings of the Iceberg sink."""

    table: str = supported(
        "sink.table",
        TABLE_NAME,
        required=True,
        doc="Names of the tables, as catalog.schema.{table} or catalog.{database}.{table}.",
    )
    rewrite_percent: int = supported(
        "sink.purge.percent",
        integer(0),
        default="20",
        doc="Percentage of deleted rows of a file from which a compaction rewrites it; 0: never.",
    )
    expire_snapshots: bool = supported(
        "sink.expire.snapshots",
        BOOLEAN,
        default="true",
        doc="Whether a compaction also removes snapshots older than the table property "
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
            hint=f"start the session with spark.sql.extensions={_EXTENSION}",
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
