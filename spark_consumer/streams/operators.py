"""The operators on changelogs: the inner join of two, and the upsert materializer.

``join``: Spark's own join of two streams does not know that a row can be withdrawn: it would join every version of a
row. ``materialize``: a changelog as the changes of a table whose key is not the key of the stream. Spark has no
operator for a list of rows per key, so both are a ``transformWithState``. Python gets keys, numbers and texts. The
engine makes them and reads them back, so no value is decoded in Python.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.rowkind import RowKind
from tailrace.spark_consumer.changes import change_type
from tailrace.spark_consumer.streams import texts
from tailrace.spark_consumer.streams.processors import InnerJoin, UpsertMaterializer

if TYPE_CHECKING:
    from pyspark.sql import DataFrame


@dataclass(frozen=True)
class JoinSide:
    """One side of a join.

    ``key`` names the key of the rows of the changelog, ``on`` the columns that are compared with the other side. With
    ``ignore_late``, an entry is ignored if the row already has a later version by the order (as in ``materialize``).
    """

    changelog: DataFrame
    key: Sequence[str]
    on: Sequence[str]
    ignore_late: bool = False


def join(left: JoinSide, right: JoinSide, *, order: Sequence[str] = ("sequence",)) -> DataFrame:
    """Return the changelog of the inner join: ``kind``, ``_change_type``, ``left``, ``right`` and ``sequence``.

    ``left`` and ``right`` of the result are the rows. ``sequence`` is the order of the entry that made the change, as
    an array of numbers. Every version of a joined row is retracted before the next one is added. docs/streams.md has an
    example.
    """
    texts.require_state_store(left.changelog.sparkSession)
    schemas = []
    for side in (left, right):
        texts.require_columns(side.changelog, side.key)
        texts.require_columns(side.changelog, side.on)
        schemas.append(texts.row_type(side.changelog))
    compared = [
        [schema[name].dataType for name in side.on] for side, schema in zip((left, right), schemas, strict=True)
    ]
    if compared[0] != compared[1]:
        raise SchemaError(
            "the columns of the join have different types on the two sides",
            hint="cast the columns of one side",
            left=[kind.simpleString() for kind in compared[0]],
            right=[kind.simpleString() for kind in compared[1]],
        )
    entries = _entries(left, order, is_left=True).unionByName(_entries(right, order, is_left=False))
    processor = InnerJoin()
    joined = entries.groupBy("join_key").transformWithState(processor, processor.SCHEMA, "Append", "None")
    return joined.select(
        "kind",
        change_type(fn.col("kind")).alias("_change_type"),
        texts.row_of("left", schemas[0]).alias("left"),
        texts.row_of("right", schemas[1]).alias("right"),
        fn.col("order").alias("sequence"),
    )


def _entries(side: JoinSide, order: Sequence[str], *, is_left: bool) -> DataFrame:
    values = fn.struct(*(fn.col("row")[name].alias(f"on{number}") for number, name in enumerate(side.on)))
    entries = side.changelog
    for name in side.on:
        entries = entries.where(fn.col("row")[name].isNotNull())  # SQL's equality: NULL joins nothing
    return entries.select(
        texts.text(values).alias("join_key"),
        texts.order_numbers(side.changelog, order).alias("order"),
        texts.is_add().alias("is_add"),
        fn.lit(is_left).alias("is_left"),
        texts.key_text(side.key).alias("key"),
        fn.lit(side.ignore_late).alias("ignore_late"),
        "kind",
        texts.row_text().alias("row"),
    )


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
