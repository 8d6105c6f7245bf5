"""The upsert materializer: a changelog as the changes of a table whose key is not the key of the stream.

Spark has no built-in operator for a list of rows per key, so the operator is a ``transformWithState``. Python gets
keys, numbers and texts. The engine makes them and reads them back, so no value is decoded in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.rowkind import RowKind
from tailrace.spark_consumer.changes import change_type
from tailrace.spark_consumer.streams import texts
from tailrace.spark_consumer.streams.processors import UpsertMaterializer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

BUCKETS: Final = 1024
"""Groups of target keys: a call of Python costs about as much as the work for a key. Stored state has this number."""


def materialize(
    changelog: DataFrame,
    key: Sequence[str],
    upsert_key: Sequence[str] = (),
    *,
    order: Sequence[str] = ("sequence",),
    ignore_late: bool = False,
) -> DataFrame:
    """Return the changes of a table with the key ``key``, at most one per key and micro-batch.

    ``changelog`` has ``kind`` and ``row``, as ``to_changelog`` returns them. ``key`` and ``upsert_key`` name columns of
    the row. Per ``key`` the operator keeps the rows that were added and not retracted: one per ``upsert_key``, or every
    row where there is none. The table has the row that was added last. ``order`` names the columns that order the
    entries of a micro-batch. With ``ignore_late``, which needs an upsert key, the order is also the version of a row:
    an entry about an older version than the one that is kept is ignored. docs/streams.md describes the result.
    """
    if ignore_late and not upsert_key:
        raise ConfigError(["ignore_late needs an upsert_key: without it no row has versions"])
    texts.require_state_store(changelog.sparkSession)
    texts.require_columns(changelog, [*key, *upsert_key] if key else key)
    schema = texts.row_type(changelog)
    target_key = texts.key_text(key)
    entries = changelog.select(
        fn.pmod(fn.xxhash64(target_key), fn.lit(BUCKETS)).alias("bucket"),
        target_key.alias("target_key"),
        texts.order_numbers(changelog, order).alias("order"),
        texts.is_add().alias("is_add"),
        (texts.key_text(upsert_key) if upsert_key else fn.lit("")).alias("upsert_key"),
        texts.row_text().alias("row"),
    )
    processor = UpsertMaterializer(keyed=bool(upsert_key), ignore_late=ignore_late)
    changed = entries.groupBy("bucket").transformWithState(processor, processor.SCHEMA, "Append", "None")
    rows = changed.select(
        texts.row_of("before", schema).alias("before"), texts.row_of("after", schema).alias("after"), "version"
    )
    kind = (
        fn.when(fn.col("before").isNull(), RowKind.INSERT.value)
        .when(fn.col("after").isNull(), RowKind.DELETE.value)
        .otherwise(RowKind.UPDATE_AFTER.value)
    )
    columns = (fn.coalesce(fn.col("after")[name], fn.col("before")[name]).alias(name) for name in key)
    return rows.select(
        kind.alias("kind"),
        change_type(kind).alias("_change_type"),
        fn.struct(*columns).alias("key"),
        "before",
        "after",
        fn.struct("version").alias("sequence"),
    )
