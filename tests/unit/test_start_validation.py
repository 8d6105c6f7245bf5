"""Which faults of tables refuse a start, and which are those of one table; no servers."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from tailrace.producer.app.validation import check_source, faults_of_new_tables, validate_tables
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


class Catalog:
    """The source and its session; it counts how often its position is asked for."""

    def __init__(self, found: CatalogTable) -> None:
        self.found = found
        self.positions = 0

    def check(self, _tables: object) -> list[str]:
        """Note nothing."""
        return []

    def describe_all(self, tables: list[TableId]) -> Iterator[tuple[TableId, CatalogTable]]:
        """Return the same definition for all."""
        return ((table, self.found) for table in tables)

    def current_offset(self) -> str:
        """Return which position it is."""
        self.positions += 1
        return f"position {self.positions}"


@pytest.mark.parametrize("primary", [True, False])
def test_the_position_of_the_source_is_read_only_for_keys_that_the_binlog_lacks(primary: bool) -> None:
    """It may take a wait for transactions of the source, at every start."""
    catalog: Any = Catalog(FOUND if primary else replace(FOUND, primary_key=(), unique_key=("id",)))
    config = load(None, {}, BASE)
    tables = CapturedTables(config, lambda _table: catalog.found)

    assert check_source(config, catalog, catalog, tables, [T]).problems == []

    assert catalog.positions == (0 if primary else 1)
    assert tables.keys.knows_unique_key(T) is not primary
