"""The changelog on the terminal: the first rows of each batch, to look at."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tailrace.spark_consumer.changelog.rowkind import ORDER
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.source.json_decoder import Images

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema


class ConsoleSink:
    """Prints at most ``rows`` changelog rows per table and batch."""

    name = "console"
    images = Images.CHANGELOG
    guarantee = "none: it only shows"

    def __init__(self, rows: int = 20) -> None:
        self._rows = rows

    def prepare(self, spark: SparkSession, context: SinkContext) -> None:
        """Nothing to prepare."""

    def make_ready(self, spark: SparkSession, schema: TableSchema) -> None:
        """Nothing to make ready."""

    def apply(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - the protocol's form
        """Print one table's rows in the order of the topic."""
        shown = batch.records.orderBy(*ORDER).limit(self._rows)
        lines = shown.select("kind", fn.to_json("row", {"ignoreNullFields": "false"}).alias("row")).collect()
        for line in lines:
            sys.stdout.write(f"{batch.schema.topic} {line['kind']} {line['row']}\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Nothing is held."""
