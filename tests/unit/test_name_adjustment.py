"""Names made fit for Avro: what real Debezium made of the same names, and what must be refused."""

from __future__ import annotations

import pytest

from tailrace.producer.model.value_options import NameAdjustment
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.envelope.name_adjustment import (
    field_name,
    field_names,
    schema_name,
)
from tailrace.runtime.errors import SchemaError
from tailrace.schemas.connect import ConnectField, ConnectSchema


@pytest.mark.parametrize(
    ("name", "mode", "fit"),
    [
        ("a.we_ird_n_me-1", "none", "a.we_ird_n_me-1"),
        ("a.we_ird_n_me-1", "avro", "a.we_ird_n_me_1"),
        ("a.b_c-1", "avro_unicode", "a.b_u005fc_u002d1"),
        ("1a.b", "avro", "_a.b"),
        ("a.😀", "avro", "a.__"),
        ("a.😀", "avro_unicode", "a._ud83d_ude00"),
    ],
)
def test_names_of_schemas(name: str, mode: NameAdjustment, fit: str) -> None:
    """Dots stay; a character beyond U+FFFF counts as two."""
    assert schema_name(name, mode) == fit


@pytest.mark.parametrize(
    ("name", "mode", "fit"),
    [
        ("i d", "none", "i d"),
        ("i d", "avro", "i_d"),
        ("c-d", "avro", "c_d"),
        ("1x", "avro", "_1x"),
        ("é", "avro", "_"),
        ('sel"ect', "avro", "sel_ect"),
        ("é", "avro_unicode", "_u00e9"),
        ("a_b", "avro_unicode", "a_u005fb"),
    ],
)
def test_names_of_columns(name: str, mode: NameAdjustment, fit: str) -> None:
    """A digit in front gets an underscore before it."""
    assert field_name(name, mode) == fit


def test_two_columns_of_one_name_are_refused() -> None:
    """No value may land in another column."""
    with pytest.raises(SchemaError, match="a-b and a b have the same name"):
        field_names(["id", "a-b", "a b"], "avro")
    assert field_names(["id", "a-b", "a b"], "avro_unicode") == ("id", "a_u002db", "a_u0020b")


def test_avro_refuses_what_was_not_adjusted() -> None:
    """With the property that mends it."""
    column = ConnectField("i d", ConnectSchema("int32"))

    with pytest.raises(SchemaError) as caught:
        avro_schema(ConnectSchema("struct", name="a.Key", fields=(column,)))
    assert "field.name.adjustment.mode" in caught.value.hint
    with pytest.raises(SchemaError) as caught:
        avro_schema(ConnectSchema("struct", name="a-b.Key"))
    assert "schema.name.adjustment.mode" in caught.value.hint
