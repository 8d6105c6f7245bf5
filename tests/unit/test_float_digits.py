"""FLOAT(M,D) is a double with the same 32 bits, as in Debezium; the catalog tells it from FLOAT."""

from __future__ import annotations

import struct
from dataclasses import replace

import pytest

from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.codec import EventEnvelope
from tailrace.producer.model.table import CatalogTable, Column, Table, TableId
from tailrace.producer.mysql.types.base import CatalogRow
from tailrace.producer.mysql.types.floating import FloatType
from tailrace.producer.mysql.types.registry import connect_field
from tailrace.producer.serialization.captured_tables import float_keys, known_definition, with_float_digits
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.runtime.errors import SchemaError
from tests.support.values import DEFAULT_CODEC, value_options

ID, FLOAT = Column("id", "int", nullable=False), Column("f", "float")
SCALED = replace(FLOAT, precision=7, scale=3)
TABLE = TableId("shop", "t")
LOGGED = TableVersion(TABLE, (ID, FLOAT), ("id",), b"")


def _catalog(*columns: Column) -> CatalogTable:
    return CatalogTable(Table(TABLE, columns, ("id",)), ("id",), (), frozenset(), {})


@pytest.mark.parametrize(
    ("column_type", "digits"),
    [("float", (0, 0)), ("float(7,3)", (7, 3)), ("float(9,0) unsigned zerofill", (9, 0)), ("double(7,3)", (0, 0))],
)
def test_the_catalog_has_the_digits(column_type: str, digits: tuple[int, int]) -> None:
    """Only FLOAT(M,D) is another type."""
    name = column_type.partition("(")[0]
    row = CatalogRow("f", True, name, name, column_type, 0, 12, 0, 0, None)  # type: ignore[arg-type]

    column = FloatType.from_catalog(row)

    assert (column.precision, column.scale) == digits
    expected = "float" if name == "float" and not digits[0] else "double"
    assert connect_field(column, value_options()).schema.type == expected


def test_a_version_of_the_binlog_gets_the_digits() -> None:
    """The same columns as in the catalog; a float that is another column by now stays a float."""
    assert known_definition(LOGGED, lambda _: _catalog(ID, SCALED)) == LOGGED._replace(columns=(ID, SCALED))
    assert known_definition(LOGGED, lambda _: _catalog(ID, replace(SCALED, nullable=False))) == LOGGED
    assert with_float_digits((ID, FLOAT), (ID,)) == (ID, FLOAT)


def test_the_catalog_is_read_for_floats_only() -> None:
    """A table that is gone keeps its floats."""

    def gone(table: TableId) -> CatalogTable:
        raise SchemaError(f"{table} is gone")

    assert known_definition(LOGGED, gone) == LOGGED
    without = LOGGED._replace(columns=(ID,))
    assert known_definition(without, lambda _: pytest.fail("the catalog was read")) == without


def test_values_have_the_digits_of_a_double_and_keys_those_of_a_float() -> None:
    """In a key the type does not depend on the catalog."""
    event = b"\x00" + struct.pack("<if", 1, 5.61)
    envelope = EventEnvelope(b"", b"", b"")
    for key, expected in ((("id",), b"5.610000133514404"), (("id", "f"), b"5.61")):
        table = float_keys(Table(TABLE, (ID, SCALED), key))
        ((_, value),) = TableCodec(table, "t", DEFAULT_CODEC).inserts(event, 0, len(event), envelope).records  # type: ignore[misc]
        assert value is not None
        assert b'"f":%b}' % expected in value
