"""The tables of a database by shape: their columns and keys, and how rows of a staging table change them."""

from __future__ import annotations

import pytest

from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.spark_consumer.images import MetadataField
from tailrace.spark_consumer.sink.jdbc_columns import TargetForm
from tailrace.spark_consumer.sink.jdbc_dialect import Merge, Role, Rule, StoredColumn, StoredTable, load_dialect
from tailrace.spark_consumer.sink.jdbc_mysql import MySqlDialect
from tailrace.spark_consumer.sink.jdbc_postgresql import PostgresDialect
from tailrace.spark_consumer.sink.jdbc_table import JdbcTable
from tailrace.spark_consumer.sink.shape import Layout, Shape
from tailrace.spark_consumer.sink.state import Shard, TargetState
from tests.spark.records import table_schema

JSON = ConnectField("doc", ConnectSchema("string", optional=True, name="io.debezium.data.Json"))


def form(shape: Shape, *fields: MetadataField) -> TargetForm:
    """Return the columns of a table id, name, doc."""
    return TargetForm(table_schema("p", "t", JSON), Layout(shape, fields))


@pytest.mark.parametrize(
    ("shape", "key"),
    [
        ("scd1", ("id",)),
        ("soft-delete", ("id",)),
        ("history", ("__partition", "__offset", "__part")),
        ("scd2", ("id", "_seq")),
    ],
)
def test_each_shape_has_a_key_that_makes_a_repeated_write_harmless(shape: Shape, key: tuple[str, ...]) -> None:
    assert form(shape).key == key


def test_structs_are_columns_of_a_database() -> None:
    found = {column.name: column.role for column in form("scd2", MetadataField("__op", "", "op")).added}

    assert found == {
        "__valid_from": Role.VALUE,
        "__valid_to": Role.VALUE,
        "__current": Role.VALUE,
        "_until": Role.SEQUENCE,
        "_seen": Role.SEQUENCE,
        "_seen_at": Role.VALUE,
        "__op": Role.VALUE,
    }


def test_json_of_versions_is_text_that_no_database_changes() -> None:
    assert {shape: form(shape).source[2].role for shape in ("scd1", "history", "scd2")} == {
        "scd1": Role.JSON,
        "history": Role.JSON,
        "scd2": Role.VALUE,
    }


def test_ledger_names_the_shape_and_the_columns() -> None:
    state = TargetState("p.shop.t")

    assert state.with_layout("scd1", form("scd1").added_names) == state
    assert state.with_layout("soft-delete", form("soft-delete").added_names) == TargetState(
        "p.shop.t", shape="soft-delete", added_columns='["__deleted"]'
    )


def merged(url: str, rule: Rule) -> list[str]:
    """Return the statements of a merge of one column."""
    merge = Merge("t", "s1", {"id": "c0", "n": "c1"}, ("id",), "_seq", "deleted", ("old",), rule)
    return list(load_dialect(url).merge(merge))


def test_rows_of_a_history_are_added_only() -> None:
    [postgres], [mysql] = (merged(f"jdbc:{name}://db/x", Rule.NEW) for name in ("postgresql", "mysql"))

    assert postgres.endswith("ON CONFLICT (id) DO NOTHING")
    assert mysql.endswith(
        "ON DUPLICATE KEY UPDATE t.old = IF(FALSE, NULL, t.old), t._seq = IF(t.id = VALUES(t.id), "
        "IF(FALSE, VALUES(t._seq), t._seq), NULL)"
    )


def test_versions_are_replaced_whatever_their_sequence_is() -> None:
    for name in ("postgresql", "mysql"):
        later, always = ("\n".join(merged(f"jdbc:{name}://db/x", rule)) for rule in (Rule.LATER, Rule.ALWAYS))

        assert "_seq < s._seq" in later
        assert "_seq < " not in always
        assert "VALUES(t._seq) > t._seq" not in always


def test_rows_of_a_shard_are_found_by_typed_values() -> None:
    columns = (
        StoredColumn("shard", "int", form("scd1").source[0].kind),
        StoredColumn("Region", "text", form("scd1").source[1].kind),
    )
    stored = StoredTable("t", True, columns, ())
    shard = Shard("p.shop_1.t", (("shard", "1"), ("region", "it's")))

    postgres = JdbcTable(PostgresDialect(), "s", "t", form("scd1"), shard, stored)
    assert postgres.rows_of_shard() == ('"shard" = CAST(? AS BIGINT) AND "Region" = CAST(? AS TEXT)', ("1", "it's"))
    mysql = JdbcTable(MySqlDialect(), "s", "t", form("scd1"), shard, stored)
    assert mysql.rows_of_shard()[0] == "`shard` = ? AND `Region` = ?"
    assert JdbcTable(PostgresDialect(), "s", "t", form("scd1"), None, stored).rows_of_shard() == ("", ())
    assert postgres.row_name == "t <- p.shop_1.t"
