"""Name adjustment for Avro: the names that real Debezium produced, and what is rejected."""

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
    ("name", "mode", "adjusted"),
    [
        ("a.we_ird_n_me-1", "none", "a.we_ird_n_me-1"),
        ("a.we_ird_n_me-1", "avro", "a.we_ird_n_me_1"),
        ("a.b_c-1", "avro_unicode", "a.b_u005fc_u002d1"),
        ("1a.b", "avro", "_a.b"),
        ("a.😀", "avro", "a.__"),
        ("a.😀", "avro_unicode", "a._ud83d_ude00"),
    ],
)
def test_schema_name(name: str, mode: NameAdjustment, adjusted: str) -> None:
    """Dots are kept; a character above U+FFFF counts as two."""
    assert schema_name(name, mode) == adjusted


@pytest.mark.parametrize(
    ("name", "mode", "adjusted"),
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
def test_field_name(name: str, mode: NameAdjustment, adjusted: str) -> None:
    """A leading digit gets an underscore before it."""
    assert field_name(name, mode) == adjusted


def test_equal_field_names_are_rejected() -> None:
    """Otherwise one column would overwrite the other."""
    with pytest.raises(SchemaError, match=r"(?s)a-b and a b have .*hint: set field.name.adjustment.mode to avro_un"):
        field_names(["id", "a-b", "a b"], "avro")
    assert field_names(["id", "a-b", "a b"], "avro_unicode") == ("id", "a_u002db", "a_u0020b")


def test_avro_rejects_unadjusted_names() -> None:
    """The hint names the property to set."""
    column = ConnectField("i d", ConnectSchema("int32"))

    with pytest.raises(SchemaError) as caught:
        avro_schema(ConnectSchema("struct", name="a.Key", fields=(column,)))
    assert caught.value.hint == "set field.name.adjustment.mode to avro or avro_unicode"
    with pytest.raises(SchemaError) as caught:
        avro_schema(ConnectSchema("struct", name="a-b.Key"))
    assert caught.value.hint == "set schema.name.adjustment.mode to avro or avro_unicode"
