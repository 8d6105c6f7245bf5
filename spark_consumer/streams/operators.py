"""The operators on changelogs: the inner join of two, and the upsert materializer.

``join``: Spark's own join of two streams does not know that a row can be withdrawn: it would join every version of a
row. ``materialize``: a changelog as the changes of a table whose key is not the key of the stream. Spark has no
operator for a list of rows per key, so both are a ``transformWithState``. The engine makes what Python gets, and reads
it back: rows and keys are texts that Python compares and never decodes, orders are lists of numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.rowkind import RowKind
from tailrace.spark_consumer.changes import change_type
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS
from tailrace.spark_consumer.streams.processors import InnerJoin, UpsertMaterializer

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession


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
    require_state_store(left.changelog.sparkSession)
    schemas = []
    for side in (left, right):
        require_columns(side.changelog, side.key)
        require_columns(side.changelog, side.on)
        schemas.append(row_type(side.changelog))
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
        row_of("left", schemas[0]).alias("left"),
        row_of("right", schemas[1]).alias("right"),
        fn.col("order").alias("sequence"),
    )


def _entries(side: JoinSide, order: Sequence[str], *, is_left: bool) -> DataFrame:
    values = fn.struct(*(fn.col("row")[name].alias(f"on{number}") for number, name in enumerate(side.on)))
    entries = side.changelog
    for name in side.on:
        entries = entries.where(fn.col("row")[name].isNotNull())  # SQL's equality: NULL joins nothing
    return entries.select(
        text(values).alias("join_key"),
        order_numbers(side.changelog, order).alias("order"),
        is_add().alias("is_add"),
        fn.lit(is_left).alias("is_left"),
        key_text(side.key).alias("key"),
        fn.lit(side.ignore_late).alias("ignore_late"),
        "kind",
        row_text().alias("row"),
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
    require_state_store(changelog.sparkSession)
    require_columns(changelog, [*key, *upsert_key] if key else key)
    schema = row_type(changelog)
    target_key = key_text(key)
    entries = changelog.select(
        fn.pmod(fn.xxhash64(target_key), fn.lit(BUCKETS)).alias("bucket"),
        target_key.alias("target_key"),
        order_numbers(changelog, order).alias("order"),
        is_add().alias("is_add"),
        (key_text(upsert_key) if upsert_key else fn.lit("")).alias("upsert_key"),
        row_text().alias("row"),
    )
    processor = UpsertMaterializer(keyed=bool(upsert_key), ignore_late=ignore_late)
    changed = entries.groupBy("bucket").transformWithState(processor, processor.SCHEMA, "Append", "None")
    rows = changed.select(row_of("before", schema).alias("before"), row_of("after", schema).alias("after"), "version")
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


_PROVIDER: Final = "spark.sql.streaming.stateStore.providerClass"
_ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
_WRITE: Final[Mapping[str, str]] = {
    **JSON_OPTIONS,
    # A row that was stored before a column was added is equal to the row that has NULL there.
    "ignoreNullFields": "true",
}
_READ: Final[Mapping[str, str]] = {
    **{name: value for name, value in JSON_OPTIONS.items() if name != "ignoreNullFields"},
    # A stored row that the types of today cannot hold is an error, never NULLs.
    "mode": "FAILFAST",
}
_ADDS: Final = (RowKind.INSERT.value, RowKind.UPDATE_AFTER.value)
_RETRACTS: Final = (RowKind.UPDATE_BEFORE.value, RowKind.DELETE.value)


def require_state_store(spark: SparkSession) -> None:
    """Raise ConfigError unless queries of the session keep their state in RocksDB."""
    found = spark.conf.get(_PROVIDER, "")
    if found != _ROCKS_DB:
        raise ConfigError([f"{_PROVIDER} is {found!r}; the state needs {_ROCKS_DB}"])


def require_columns(changelog: DataFrame, names: Sequence[str]) -> None:
    """Raise SchemaError unless a changelog has the row kinds, and rows with these columns."""
    missing = [name for name in ("kind", "row") if name not in changelog.columns]
    if missing:
        raise SchemaError(
            f"the changelog has no column {missing[0]!r}",
            hint="use the result of to_changelog",
            columns=changelog.columns,
        )
    fields = row_type(changelog).names
    if not names:
        raise SchemaError("no key column is given", hint="name at least one column", columns=fields)
    for name in names:
        if name not in fields:
            raise SchemaError(
                f"the rows of the changelog have no column {name!r}", hint="check the name", columns=fields
            )


def row_type(changelog: DataFrame) -> tp.StructType:
    """Return the type of the rows of a changelog."""
    found: Any = changelog.schema["row"].dataType
    if not isinstance(found, tp.StructType):
        raise SchemaError("the column 'row' is not a struct", hint="use the result of to_changelog", type=str(found))
    return found


def key_text(names: Sequence[str]) -> Column:
    """Return columns of the row as one text."""
    return text(fn.struct(*(fn.col("row")[name].alias(name) for name in names)))


def row_text() -> Column:
    """Return the row as a text."""
    return fn.coalesce(
        text(fn.col("row")), fn.raise_error(fn.concat(fn.col("kind"), fn.lit(" without a row"))).cast("string")
    )


def text(struct: Column) -> Column:
    """Return a struct as a text; equal structs have equal texts."""
    return fn.to_json(struct, dict(_WRITE))


def row_of(column: str, schema: tp.StructType) -> Column:
    """Return the row of a column that has a text."""
    return fn.from_json(column, schema, dict(_READ))


def is_add() -> Column:
    """Return whether an entry is an add."""
    kind = fn.col("kind")
    return (
        fn.when(kind.isin(*_ADDS), fn.lit(True))
        .when(kind.isin(*_RETRACTS), fn.lit(False))
        .otherwise(fn.raise_error(fn.concat(fn.lit("unknown row kind "), kind.cast("string"))).cast("boolean"))
    )


def order_numbers(changelog: DataFrame, names: Sequence[str]) -> Column:
    """Return the columns that order the entries as one array of numbers, which compares as they do."""
    numbers = []
    for name in names:
        if name not in changelog.columns:
            raise SchemaError(
                f"the changelog has no column {name!r} for the order", hint="check the name", columns=changelog.columns
            )
        for leaf in _leaves(fn.col(f"`{name}`"), changelog.schema[name].dataType, name):
            empty = fn.raise_error(fn.lit(f"the order column {name!r} has a NULL")).cast("array<bigint>")
            numbers.append(fn.coalesce(leaf, empty))
    if not numbers:
        raise SchemaError("no order column is given", hint="name the column that orders the changes of a key")
    return fn.concat(*numbers)


def _leaves(column: Column, kind: tp.DataType, name: str) -> Iterator[Column]:
    """Yield arrays of numbers, NULL where a value is NULL."""
    if isinstance(kind, tp.StructType):
        for field in kind.fields:
            yield from _leaves(column[field.name], field.dataType, name)
    elif isinstance(kind, tp.ArrayType) and isinstance(kind.elementType, tp.LongType):
        yield column
    elif isinstance(kind, tp.IntegralType):
        yield _single(column.cast("bigint"))
    elif isinstance(kind, tp.TimestampType):
        yield _single(fn.unix_micros(column))
    else:
        raise SchemaError(
            f"the order column {name!r} has the type {kind.simpleString()}",
            hint="use numbers, timestamps or structs of them",
        )


def _single(number: Column) -> Column:
    return fn.when(number.isNotNull(), fn.array(number))
