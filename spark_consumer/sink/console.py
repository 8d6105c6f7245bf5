"""Sink ``console``: prints the first changelog rows of each batch, for a first look."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING

from pyspark.sql import functions as fn

from tailrace.runtime.config.section import Section, supported
from tailrace.runtime.config.value_types import integer
from tailrace.spark_consumer.images import Images
from tailrace.spark_consumer.normalize.rowkind import JSON_OPTIONS, ORDER
from tailrace.spark_consumer.sink.base import SinkContext, TableBatch
from tailrace.spark_consumer.sink.plugin import SinkPlugin

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema


class ConsoleOptions(Section):
    """Settings of the console sink."""

    rows: int = supported("sink.numRows", integer(1), default="20", doc="Rows that are printed per table and batch.")


class ConsoleSink:
    """Prints changelog rows to standard output."""

    def __init__(self, rows: int) -> None:
        self._rows = rows

    def applied(self, schema: TableSchema) -> Mapping[int, int] | None:  # noqa: ARG002 - part of the protocol
        """Return nothing: the target does not know it."""
        return None

    def prepare_table(self, schema: TableSchema) -> None:
        """Do nothing: there is no table."""

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:  # noqa: ARG002 - part of the protocol
        """Print the rows of one table in the order of the topic."""
        if batch.truncated is not None:
            sys.stdout.write(f"{batch.schema.topic} truncate {batch.truncated.text}\n")
        shown = batch.records.orderBy(*ORDER).limit(self._rows)
        lines = shown.select("kind", fn.to_json("row", JSON_OPTIONS).alias("row")).collect()
        for line in lines:
            sys.stdout.write(f"{batch.schema.topic} {line['kind']} {line['row']}\n")
        sys.stdout.flush()

    def close(self) -> None:
        """Do nothing: no resources are held."""


def _open(spark: SparkSession, options: ConsoleOptions, context: SinkContext) -> ConsoleSink:  # noqa: ARG001
    return ConsoleSink(options.rows)


SINK = SinkPlugin(
    name="console",
    doc="Prints changelog rows.",
    options=ConsoleOptions,
    images=Images.CHANGELOG,
    guarantee="none: the output is for people",
    open=_open,
    merges_tables=True,
)
