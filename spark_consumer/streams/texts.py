"""Rows, keys and orders as Python workers get them: texts that they compare and never decode, and lists of numbers."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import ConfigError, SchemaError
from tailrace.schemas.rowkind import RowKind
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, SparkSession

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
