"""What schemas tell of a column: its type at the source, or the rule that changes it; keys tell neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tailrace.producer.config import ConverterConfig, ConvertersConfig
from tailrace.producer.model.source_type import SourceType, known_length, source_parameters, source_type
from tailrace.producer.model.table import Column, ColumnCatalog, Table, TableId
from tailrace.producer.mysql.catalog import CatalogTable
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.table_schemas import TableSchemaBuilder
from tailrace.schemas.connect import ConnectField
from tests.support.values import value_options
from tests.unit.test_column_transforms import configured

PLAIN = ColumnCatalog("", None, None, default_is_expression=False, generated=False, auto_increment=False, comment="")
NAME = "__debezium.source.column."


def known(column: Column, text: str, comment: str = "") -> Column:
    """Return a column as the catalog has it."""
    return replace(column, catalog=replace(PLAIN, column_type=text, comment=comment))


@pytest.mark.parametrize(
    ("text", "name", "length", "scale"),
    [
        ("int(11)", "INT", 11, None),
        ("int", "INT", None, None),
        ("bigint(20) unsigned zerofill", "BIGINT UNSIGNED ZEROFILL", 20, None),
        ("bigint unsigned", "BIGINT UNSIGNED", None, None),
        ("decimal(10,3) unsigned", "DECIMAL UNSIGNED", 10, 3),
        ("float(7,3)", "FLOAT", 7, 3),
        ("double", "DOUBLE", None, None),
        ("timestamp(6)", "TIMESTAMP", 6, None),
        ("varchar(60)", "VARCHAR", 60, None),
        ("mediumtext", "MEDIUMTEXT", None, None),
        ("geomcollection", "GEOMCOLLECTION", None, None),
    ],
)
def test_types_in_the_words_of_the_server(text: str, name: str, length: int | None, scale: int | None) -> None:
    """Whatever the column is held to be, the catalog's text decides."""
    assert source_type(known(Column("c", "int"), text)) == SourceType(name, length, scale)


def test_enums_and_sets_have_lengths_of_their_own() -> None:
    """However their labels look, parentheses and quotes included."""
    enum = Column("e", "enum", charset="utf8mb4", enum_values=("a(1)", "b,c"))

    assert source_type(known(enum, "enum('a(1)','b,c')")) == SourceType("ENUM", 1, None)
    assert source_type(replace(enum, data_type="set")) == SourceType("SET", 3, None)


@pytest.mark.parametrize(
    ("column", "expected"),
    [
        (Column("c", "varchar", length=240, charset="utf8mb4"), SourceType("VARCHAR", 60, None)),
        (Column("c", "char", length=20, charset="gbk"), SourceType("CHAR", 10, None)),
        (Column("c", "char", length=20, charset="latin1"), SourceType("CHAR", 20, None)),
        (Column("c", "text", length=2**24 - 1, charset="latin1"), SourceType("MEDIUMTEXT", None, None)),
        (Column("c", "blob", length=65535, charset="binary"), SourceType("BLOB", None, None)),
        (Column("c", "varbinary", length=9, charset="binary"), SourceType("VARBINARY", 9, None)),
        (Column("c", "decimal", unsigned=True, precision=9, scale=0), SourceType("DECIMAL UNSIGNED", 9, 0)),
        (Column("c", "datetime", fsp=3), SourceType("DATETIME", 3, None)),
        (Column("c", "datetime"), SourceType("DATETIME", None, None)),
    ],
)
def test_the_log_alone_tells_nearly_as_much(column: Column, expected: SourceType) -> None:
    """So that a hash is cut alike from both sides."""
    assert source_type(column) == expected
    assert known_length(column) == expected.length


def test_comments_are_told_where_they_are_wanted() -> None:
    """As include.schema.comments asks."""
    column = known(Column("c", "int"), "int", comment="how many")

    assert source_parameters(column, comments=False) == ((NAME + "type", "INT"), (NAME + "name", "c"))
    assert (NAME + "comment", "how many") in source_parameters(column, comments=True)


TABLE = Table(
    TableId("shop", "people"),
    (
        known(Column("id", "int", nullable=False), "int(11)"),
        known(Column("m-ail", "varchar", nullable=False, length=80, charset="utf8mb4"), "varchar(20)"),
        known(Column("e", "enum", charset="utf8mb4", enum_values=("a", "b")), "enum('a','b')"),
        known(Column("n", "decimal", precision=5, scale=2), "decimal(5,2)"),
    ),
    ("id", "m-ail"),
)


def told(properties: Mapping[str, str]) -> tuple[Mapping[str, ConnectField], Mapping[str, ConnectField], object]:
    """Return the fields of rows and of keys under rules, and the Avro schema of values."""
    rules = configured(properties)
    config = ConvertersConfig(
        value=ConverterConfig(converter="json", schemas=True), field_names="avro", schema_names="avro"
    )

    def never(_: TableId) -> CatalogTable:
        raise AssertionError

    publication = TableSchemaBuilder(config, value_options(), never, rules=rules)
    shape = rules.project(TABLE.id, TABLE.columns, TABLE.key)
    kept = TABLE.columns if shape is None else shape.visible(TABLE.columns)
    wire = publication.wire(TABLE.id, "p.shop.people", kept, TABLE.key, shape)
    keys = {field.name: field for field in wire.key_schema.fields}
    return {field.name: field for field in wire.columns}, keys, avro_schema(wire.value_schema)


def test_source_types_stand_behind_a_types_own_parameters() -> None:
    """In rows only, under the column's own name; Avro has them too."""
    rows, keys, avro = told({"column.propagate.source.type": "shop.people.*"})

    assert rows["n"].schema.parameters == (
        ("scale", "2"),
        ("connect.decimal.precision", "5"),
        (NAME + "type", "DECIMAL"),
        (NAME + "length", "5"),
        (NAME + "scale", "2"),
        (NAME + "name", "n"),
    )
    assert (NAME + "name", "m-ail") in rows["m_ail"].schema.parameters
    assert keys["m_ail"].schema.parameters == keys["id"].schema.parameters == ()
    assert f"'{NAME}length': '20'" in str(avro)


def test_source_types_by_type() -> None:
    """The name of the type is part of the expression, in any case."""
    rows, _, _ = told({"datatype.propagate.source.type": "shop\\..*\\.decimal, shop.people.varchar"})

    assert [bool(rows[name].schema.parameters) for name in ("id", "m_ail")] == [False, True]
    assert (NAME + "type", "DECIMAL") in rows["n"].schema.parameters


def test_rules_that_change_values_say_so_instead() -> None:
    """A mask or hash is ``masked``, a cut its length where the column can be longer; a column left out is nowhere."""
    rows, keys, _ = told(
        {
            "column.mask.with.3.chars": "shop.people.e",
            "column.truncate.to.4.chars": "shop.people.(id|m-ail)",
            "column.propagate.source.type": "shop.people.*",
            "column.exclude.list": "shop.people.n",
        }
    )

    assert rows["e"].schema.parameters == (("allowed", "a,b"), ("masked", "true"))
    assert rows["m_ail"].schema.parameters == rows["id"].schema.parameters == (("truncateLength", "4"),)
    assert keys["m_ail"].schema.parameters == ()
    assert list(rows) == ["id", "m_ail", "e"]
    assert told({"column.truncate.to.20.chars": "shop.people.m-ail"})[0]["m_ail"].schema.parameters == ()
