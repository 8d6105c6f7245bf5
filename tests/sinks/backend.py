"""What the conformance suite needs to know of a sink: its settings, and how to read its target."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from tailrace.schemas.rowkind import RowKind
from tailrace.schemas.table import TableSchema
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Row

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

Changelog = dict[int, list[tuple[str, Row]]]
"""Changelog rows by the key ``id``: row kind and row, in order."""


class SinkBackend:
    """One sink with its own target; created for each test."""

    sink: ClassVar[str]
    """Value of the property ``sink``."""
    cuts: ClassVar[tuple[tuple[str, str], ...]] = (("before", "write_batch"), ("after", "write_batch"))
    """Moments at which a batch is cut off: ``before`` or ``after``, and a method of the sink."""
    kills: ClassVar[tuple[str, ...]] = ("before-write_batch:1", "after-write_batch:1", "after-write_batch:2")
    """Moments at which the process is killed, one after the other (tests/spark/crash_consumer.py)."""

    def __init__(self, spark: SparkSession, broker: KafkaBroker, work: Path) -> None:
        self.spark, self.broker, self.work = spark, broker, work

    def settings(self) -> dict[str, str]:
        """Return the settings of the sink."""
        return {}

    def capture(self) -> AbstractContextManager[object]:
        """Return a context in which batches run; a sink without a target can collect its output here."""
        return nullcontext()

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Return the rows of the target by the key ``id``."""
        raise NotImplementedError

    def execute(self, statement: str) -> None:
        """Run a statement in the target."""
        self.spark.sql(statement)

    def rows_of_process(self, schema: TableSchema) -> dict[int, Row]:
        """Return the rows of a target that a consumer in a process of its own has written."""
        return self.rows(schema)


class WithSettings(SinkBackend):
    """A sink with further settings; before the class of a format among the bases."""

    added: Mapping[str, str] = {}

    def settings(self) -> dict[str, str]:
        """Return those of the format, and the further ones."""
        return {**super().settings(), **self.added}


class ChangelogBackend(SinkBackend):
    """A sink whose target is a changelog; its rows are those of a reader that applies the changelog."""

    def changelog(self, schema: TableSchema) -> Changelog:
        """Return the changelog, as a reader sees it that follows the guarantee of the sink."""
        raise NotImplementedError

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Apply the changelog."""
        last = {key: entries[-1] for key, entries in self.changelog(schema).items()}
        return {key: row for key, (kind, row) in last.items() if kind != RowKind.DELETE}
