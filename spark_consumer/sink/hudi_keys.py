"""Which captured tables Hudi can hold: names of columns, and keys that Hudi's record keys tell apart.

Hudi identifies a row by the text of its key: the value, or ``name:value`` of each column of the key, joined by commas.
Empty and missing values have words of their own there.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import reduce
from operator import or_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as fn
from pyspark.sql import types as tp

from tailrace.runtime.errors import SchemaError
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.java_errors import java_errors
from tailrace.spark_consumer.normalize.rowkind import RENAME_COLUMN
from tailrace.spark_consumer.sink.table_names import quote

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_RESERVED: Final = "_hoodie_"
_KEYS: Final = (
    tp.ByteType,
    tp.ShortType,
    tp.IntegerType,
    tp.LongType,
    tp.DecimalType,
    tp.StringType,
    tp.BooleanType,
    tp.DateType,
)
"""Types whose values have one text each."""
_WORDS: Final = ("", "__null__", "__empty__")
"""Texts that Hudi refuses, or takes for NULL or for the empty text."""
_FAULT: Final = "a key that Hudi does not tell from others"
"""What the failure of a row begins with; the next line has the key, for the log."""


def check_names(schema: TableSchema) -> None:
    """Raise SchemaError for a column with a name that Hudi cannot hold."""
    for column in schema.columns:
        if not _NAME.fullmatch(column.name) or column.name.lower().startswith(_RESERVED):
            raise SchemaError(
                f"column {column.name!r} of {schema.database}.{schema.table} has a name that Hudi cannot hold",
                hint=f"{RENAME_COLUMN}; Hudi's names have letters of ASCII, digits and _, and no _hoodie_ at the start",
            )


def check_key(schema: TableSchema, types: Mapping[str, tp.DataType]) -> None:
    """Raise SinkError for a key whose values Hudi does not tell apart."""
    optional = {column.name for column in schema.columns if column.schema.optional}
    for name in schema.key:
        if name in optional or not isinstance(types[name], _KEYS):
            reason = "can be NULL" if name in optional else f"is {types[name].simpleString()}"
            raise SinkError(
                f"the key column {name} of {schema.database}.{schema.table} {reason}, and Hudi identifies rows by the "
                "text of the key",
                hint="set other key columns with message.key.columns in the producer, or use another sink",
            )


def checked_key(rows: DataFrame, key: Sequence[str]) -> Column:
    """Return the first column of the key, or a failure for a key that Hudi does not tell from others."""
    kinds = {field.name: field.dataType for field in rows.schema}
    texts = [fn.col(quote(name)) for name in key if isinstance(kinds[name], tp.StringType)]
    first = fn.col(quote(key[0]))
    if not texts:
        return first
    conditions = [text.isin(*_WORDS) for text in texts]
    if len(key) > 1:
        conditions += [text.contains(f",{name}:") for text in texts for name in key]
    shown = fn.to_json(fn.struct(*(fn.col(quote(name)) for name in key)))
    failure = fn.raise_error(fn.concat(fn.lit(f"{_FAULT}\n"), shown)).cast(kinds[key[0]])
    return fn.when(reduce(or_, conditions), failure).otherwise(first)


def has_fault(error: BaseException) -> bool:
    """Return whether a row failed for its key."""
    return any(each.raised.startswith(_FAULT) for each in java_errors(error))
