"""What differs between the Spark lines that the consumer runs on. No other module looks at the version of Spark.

Spark 4.1 is the line of all sinks but ``hudi``. On Spark 3.5 the same code runs with that sink; there the type VARIANT
and the streams of the library (``join``, ``materialize``) are missing.
"""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any, Final

from pyspark import SparkContext
from pyspark.sql import Column
from pyspark.sql import functions as fn
from pyspark.sql import types as tp

if TYPE_CHECKING:
    from pyspark.errors import AnalysisException
    from pyspark.sql.streaming.query import StreamingQuery

_IS_4: Final = hasattr(Column, "try_cast")

VARIANT_TYPES: Final[tuple[type[tp.DataType], ...]] = (tp.VariantType,) if _IS_4 else ()
"""The type VARIANT, if Spark has it."""


def try_cast(value: Column, target: tp.DataType | str) -> Column:
    """Return a value in another type, NULL where that is not possible; ``target`` can be the name of a type."""
    return value.try_cast(target) if _IS_4 else _try_cast(value, target)


def lpad(text: Column, length: Column, fill: Column) -> Column:
    """Return a text with ``fill`` before it, in a length that is a column."""
    return fn.call_function("lpad", text, length, fill)


def range_of(error: AnalysisException) -> tuple[int, int | None]:
    """Return where the first and the last character of a fault are in an expression; (0, None) if it is not known."""
    context = next(iter(error.getQueryContext()), None) if _IS_4 else None
    return (0, None) if context is None else (context.startIndex(), context.stopIndex())


def last_progress(query: StreamingQuery) -> str | None:
    """Return the last report of a query as JSON; None if there is none."""
    found: Any = query.lastProgress
    if found is None:
        return None
    return str(found.json) if _IS_4 else json.dumps(found)


def silence_contexts() -> None:
    """Let PySpark not print a page to stderr for each error with a context in an expression."""
    if _IS_4:
        from pyspark.logger import PySparkLogger  # noqa: PLC0415 - 3.5 has no such module and prints nothing

        for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger"):
            PySparkLogger.getLogger(name).setLevel(logging.CRITICAL)


def _try_cast(value: Any, target: tp.DataType | str) -> Column:
    """Return the expression of ``try_cast`` in SQL, which 3.5 does not offer for a column."""
    context: Any = SparkContext._active_spark_context  # noqa: SLF001 - as PySpark's own functions
    jvm = context._jvm  # noqa: SLF001
    types, catalyst = jvm.org.apache.spark.sql.types.DataType, jvm.org.apache.spark.sql.catalyst.expressions
    kind = types.fromDDL(target) if isinstance(target, str) else types.fromJson(target.json())
    expression = catalyst.Cast(value._jc.expr(), kind, jvm.scala.Option.empty(), catalyst.EvalMode.TRY())  # noqa: SLF001
    return Column(jvm.org.apache.spark.sql.Column(expression))
