"""Histories in each table format: the rows of the changelog, each of them once."""

from __future__ import annotations

from collections import defaultdict
from typing import TYPE_CHECKING, ClassVar

import pytest

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.sinks.backend import Changelog, ChangelogBackend
from tests.sinks.conformance import CASE, SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CASES = frozenset(name for name in vars(SinkConformance) if name.startswith(CASE))
CUTS = (("before", "write_batch"), ("after", "prepare_table"), ("after", "_write_changelog"))
SHAPE = {"sink.shape": "history"}


def changelog_of(rows: DataFrame) -> Changelog:
    """Return the rows of a history by key, ordered as its readers order them."""
    found: Changelog = defaultdict(list)
    for each in rows.orderBy("_seq", "__partition", "__offset", "__part").collect():
        values = {name: value for name, value in each.asDict().items() if not name.startswith("_")}
        found[values["id"]].append((each["__kind"], values))
    return found


class DeltaHistory(DeltaBackend, ChangelogBackend):
    """Delta tables at a path."""

    cuts = CUTS

    def settings(self) -> dict[str, str]:
        """Return the directory and the shape."""
        return {**super().settings(), **SHAPE}

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the table."""
        path = self.work / "tables" / schema.database / schema.table
        return changelog_of(self.spark.read.format("delta").load(str(path))) if path.exists() else {}

    rows = ChangelogBackend.rows


class IcebergHistory(IcebergBackend, ChangelogBackend):
    """Iceberg tables."""

    cuts = CUTS

    def settings(self) -> dict[str, str]:
        """Return the name of the tables and the shape."""
        return {**super().settings(), **SHAPE}

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the table."""
        name = self.name(schema.table)
        return changelog_of(self.spark.read.table(name)) if self.spark.catalog.tableExists(name) else {}

    rows = ChangelogBackend.rows


class HistoryConformance(SinkConformance):
    """The conformance suite, with the row kinds of each key."""

    not_claimed: ClassVar = {"test_type_change": "a column keeps its type; some numbers become wider"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed"):
            self.change_type(run)

        assert run.backend.rows(run.table.schema) == {1: row(1)}


class TestDeltaHistory(HistoryConformance):
    """Delta."""

    backend_type = DeltaHistory
    not_claimed: ClassVar = {}
    long = CASES - {"test_batch_cut_off", "test_truncate"}


class TestIcebergHistory(HistoryConformance):
    """Iceberg."""

    backend_type = IcebergHistory
    not_claimed: ClassVar = {}
    long = CASES - {"test_truncate"}
