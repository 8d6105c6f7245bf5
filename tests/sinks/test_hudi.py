"""The Hudi sink passes the conformance suite on the Spark line that has its jars: ./run test --profile hudi."""

from __future__ import annotations

from typing import ClassVar

import pytest

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.sinks.backend import SinkBackend
from tests.sinks.conformance import SinkConformance, row
from tests.sinks.harness import BatchRunner
from tests.spark.records import Row


class HudiBackend(SinkBackend):
    """Tables in a temporary directory."""

    sink = "hudi"
    cuts = (("after", "prepare_table"), ("after", "_append"), ("after", "_merge"))
    kills = ("after-append:1", "before-merge:2", "after-merge:1", "after-write_batch:2")

    def settings(self) -> dict[str, str]:
        """Return the directory of the tables."""
        return {"sink.path": str(self.work / "tables")}

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Read the table as a reader of Hudi does; a duplicate key is an error."""
        frame = self.spark.read.format("hudi").load(str(self.work / "tables" / schema.database / schema.table))
        assert not frame.where("_hoodie_is_deleted").collect()
        rows = frame.drop("_seq", *(name for name in frame.columns if name.startswith("_hoodie_"))).collect()
        found = {each["id"]: each.asDict() for each in rows}
        assert len(found) == len(rows), "duplicate key in the table"
        return found


class TestHudiSink(SinkConformance):
    """Conformance of the Hudi sink."""

    backend_type = HudiBackend
    spark_line = "3.5"
    not_claimed: ClassVar = {"test_type_change": "a Hudi column keeps its type; some numbers become wider"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query with both types; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed, and Hudi cannot") as caught:
            self.change_type(run)

        assert (caught.value.context["stored"], caught.value.context["now"]) == ("int", "string")
        assert run.backend.rows(run.table.schema) == {1: row(1)}
