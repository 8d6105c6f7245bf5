"""The Iceberg sink passes the conformance suite."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.spark.records import Row

QUICK = {"test_batch_cut_off", "test_delete", "test_truncate", "test_wider_number"}
"""Cases whose paths are not those of the Delta sink: each kind of commit, and a change of a type."""


class IcebergBackend(SinkBackend):
    """Tables of a schema in a catalog of files; the schema does not exist at first."""

    sink = "iceberg"
    cuts = (("after", "prepare_table"), ("after", "_append"), ("after", "_merge"))
    kills = ("after-append:1", "before-merge:2", "after-merge:1", "after-write_batch:2")
    catalog = "iceberg"

    @property
    def schema_name(self) -> str:
        """The schema of the tables, one per test."""
        return f"{self.catalog}.s_{abs(hash(str(self.work)))}"

    def settings(self) -> dict[str, str]:
        """Return the name of the tables."""
        return {"sink.table": f"{self.schema_name}.{{database}}_{{table}}"}

    def name(self, table: str = "t") -> str:
        """Return the name of the target of a captured table in SQL."""
        return f"{self.schema_name}.`shop_{table}`"

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Read the table of a captured table with a plain name."""
        return self.read(self.name(schema.table))

    def rows_of_process(self, schema: TableSchema) -> dict[int, Row]:
        """Read the files: the catalog of the other process is in a folder of its own."""
        path = self.work / "iceberg" / self.schema_name.partition(".")[2] / f"shop_{schema.table}"
        rows = self.spark.read.format("iceberg").load(str(path)).drop("_seq").collect()
        assert len({each["id"] for each in rows}) == len(rows), "duplicate key in the table"
        return {each["id"]: each.asDict() for each in rows}

    def read(self, name: str) -> dict[int, Row]:
        """Read a table; a duplicate key is an error."""
        rows = self.spark.read.table(name).drop("_seq").collect()
        found = {each["id"]: each.asDict() for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found


class TestIcebergSink(SinkConformance):
    """Conformance of the Iceberg sink."""

    backend_type = IcebergBackend
    not_claimed: ClassVar = {"test_type_change": "a column keeps its type; some numbers become wider"}
    long = SinkConformance.cases() - QUICK

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query with both types and the statement; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed, and Iceberg cannot") as caught:
            self.change_type(run)

        assert (caught.value.context["stored"], caught.value.context["now"]) == ("int", "string")
        assert "ALTER COLUMN `n` TYPE string" in str(caught.value.context["statement"])
        assert run.backend.rows(run.table.schema) == {1: row(1)}
