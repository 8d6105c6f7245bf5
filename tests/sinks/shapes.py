"""The conformance suite for tables of one shape."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Final

import pytest

from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tests.sinks.backend import WithSettings
from tests.sinks.conformance import SinkConformance, row
from tests.sinks.conformance_schema import OTHER_MODES, SCHEMA
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import serve
from tests.spark.records import Row

_OF_THE_SINK: Final = "the suite of the sink has it"
SOFT_DELETES: Final = {"sink.shape": "soft-delete", "add.fields": "op,source.pos:position"}


def present(found: dict[int, Row]) -> dict[int, Row]:
    """Return the rows that are not deleted, without the columns that the source does not have."""
    return {
        key: {name: value for name, value in each.items() if not name.startswith("__")}
        for key, each in found.items()
        if not each["__deleted"]
    }


class SoftDeletes(WithSettings):
    """Tables with soft deletes and metadata columns; before the class of a format among the bases."""

    added: Mapping[str, str] = SOFT_DELETES

    def all_rows(self, schema: TableSchema) -> dict[int, Row]:
        """Return all rows."""
        return super().rows(schema)

    def rows(self, schema: TableSchema) -> dict[int, Row]:
        """Return the rows that are not deleted."""
        return present(self.all_rows(schema))


class ShapeConformance(SinkConformance):
    """The rows that are valid now are those of the source."""

    not_claimed: ClassVar[Mapping[str, str]] = {
        "test_type_change": "a column keeps its type; some numbers become wider"
    }
    not_applicable: ClassVar[Mapping[str, str]] = {
        "test_killed": _OF_THE_SINK,
        "test_million_rows": _OF_THE_SINK,
        **dict.fromkeys((SCHEMA, *OTHER_MODES), _OF_THE_SINK),
    }

    def test_type_change(self, run: BatchRunner) -> None:
        """The change stops the query; rows that were written stay."""
        with pytest.raises(SinkError, match=r"type of column n .* has changed"):
            self.change_type(run)

        assert run.backend.rows(run.table.schema) == {1: row(1)}


class JdbcShapeConformance(ShapeConformance):
    """Tables of a database, whose columns can become text."""

    not_claimed: ClassVar[Mapping[str, str]] = {
        "test_type_change": "numbers that are stored become text with their column"
    }

    @pytest.fixture(scope="class", autouse=True)
    @classmethod
    def _server(cls, request: pytest.FixtureRequest) -> None:
        serve(cls.backend_type, request)

    def test_type_change(self, run: BatchRunner) -> None:
        """The column becomes text, and the number in it too."""
        self.change_type(run)

        self.expect(run, row(1, "0"), row(2, "text"))
