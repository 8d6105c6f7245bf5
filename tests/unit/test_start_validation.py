"""Which faults of tables refuse a start, and which are those of one table; no servers."""

from __future__ import annotations

import pytest

from tailrace.producer.app.validation import faults_of_new_tables, validate_tables
from tailrace.producer.config import load
from tailrace.producer.errors import PrerequisiteError
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tests.unit.test_config_load import BASE

T = TableId("shop", "t")
FOUND = CatalogTable(
    Table(T, (Column("id", "int", nullable=False), Column("secret", "int")), ("id",)), ("id",), (), frozenset(), {}
)


@pytest.mark.parametrize("known", [True, False])
@pytest.mark.parametrize("mode", ["table", "fail"])
def test_start_with_a_column_that_its_mask_cannot_be_applied_to(known: bool, mode: str) -> None:
    """It was added while the stream read, or while it was stopped; the stream goes on in either case."""
    changes = {"column.mask.with.3.chars": r"shop\.t\.secret", "event.processing.failure.handling.mode": mode}
    config = load(None, {}, {**BASE, **changes})
    tables = CapturedTables(config, lambda _table: FOUND)
    validation = validate_tables(config, tables, [T], lambda _tables: iter([(T, FOUND)]))
    assert "only text can be masked" in validation.problems[0]
    if known and mode == "fail":
        with pytest.raises(PrerequisiteError):
            faults_of_new_tables(config, validation, [T], {str(T)})
    else:
        found = faults_of_new_tables(config, validation, [T], {str(T)} if known else set())
        assert found.keys() == (set() if known else {T})
