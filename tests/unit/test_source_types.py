"""Source types and column transforms in schemas of rows; schemas of keys have neither."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tailrace.producer.config import ConverterConfig, ConvertersConfig
from tailrace.producer.model.table import Column, ColumnCatalog, SourceType, Table, TableId, source_parameters
from tailrace.producer.mysql.types.registry import known_length, source_type
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.column_transforms import ColumnTransforms
from tailrace.producer.serialization.table_schemas import table_schemas
from tailrace.schemas.connect import ConnectField
from tests.unit.test_column_transforms import config

PLAIN = ColumnCatalog("", None, None, default_is_expression=False, generated=False, auto_increment=False, comment="")
NAME = "__debezium.source.column."


def known(column: Column, text: str, comment: str = "") -> Column:
    """Return a column from the catalog."""
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
def test_source_type_from_the_catalog(text: str, name: str, length: int | None, scale: int | None) -> None:
    """The column_type of the catalog decides."""
    assert source_type(known(Column("c", "int"), text)) == SourceType(name, length, scale)


def test_length_of_enum_and_set() -> None:
    """Independent of parentheses and quotes in their values."""
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
def test_source_type_from_the_binlog(column: Column, expected: SourceType) -> None:
    """The length is the same as from the catalog, so a hash is truncated equally."""
    assert source_type(column) == expected
    assert known_length(column) == expected.length


def test_comment_is_optional() -> None:
    """include.schema.comments."""
    column = known(Column("c", "int"), "int", comment="how many")

    assert source_parameters(column, source_type(column), comments=False) == (
        (NAME + "type", "INT"),
        (NAME + "name", "c"),
    )
    assert (NAME + "comment", "how many") in source_parameters(column, source_type(column), comments=True)


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


def schemas_of(properties: Mapping[str, str]) -> tuple[Mapping[str, ConnectField], Mapping[str, ConnectField], object]:
    """Return the fields of rows, those of keys, and the Avro schema of values."""
    converters = ConvertersConfig(
        value=ConverterConfig(converter="json", schemas=True), field_names="avro", schema_names="avro"
    )
    settings = config(properties).model_copy(update={"converters": converters})
    projection = ColumnTransforms(settings.filters).project(TABLE.id, TABLE.columns, TABLE.key)
    published = TABLE.columns if projection is None else projection.visible(TABLE.columns)
    schemas = table_schemas(
        TABLE,
        "p.shop.people",
        published,
        projection,
        settings,
        key=TABLE.key_columns,
        transforms=ColumnTransforms(settings.filters),
    )
    keys = {field.name: field for field in schemas.key.fields}
    return {field.name: field for field in schemas.columns}, keys, avro_schema(schemas.value)


def test_source_type_follows_other_parameters() -> None:
    """In rows only, with the original column name; Avro schemas have them too."""
    rows, keys, avro = schemas_of({"column.propagate.source.type": "shop.people.*"})

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


def test_source_type_by_data_type() -> None:
    """The expression contains the name of the type, in any case."""
    rows, _, _ = schemas_of({"datatype.propagate.source.type": "shop\\..*\\.decimal, shop.people.varchar"})

    assert [bool(rows[name].schema.parameters) for name in ("id", "m_ail")] == [False, True]
    assert (NAME + "type", "DECIMAL") in rows["n"].schema.parameters


def test_transforms_replace_the_source_type() -> None:
    """``masked`` for a mask or hash, ``truncateLength`` if the column can be longer; no field for a dropped column."""
    rows, keys, _ = schemas_of(
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
    assert schemas_of({"column.truncate.to.20.chars": "shop.people.m-ail"})[0]["m_ail"].schema.parameters == ()
