"""A few rows of the driver as a DataFrame, without Python workers on the executors (``createDataFrame`` needs some)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql import functions as fn

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def literal_rows(spark: SparkSession, rows: Sequence[Mapping[str, Any]], fields: str) -> DataFrame:
    """Return rows with the columns ``fields``; the values are those of JSON."""
    text = fn.lit(json.dumps(rows))
    parsed = fn.from_json(text, f"array<struct<{fields}>>")
    return spark.range(1).select(fn.explode(parsed).alias("row")).select("row.*")
