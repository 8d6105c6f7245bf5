"""Topic names as in Debezium, and tables that would share a topic."""

from __future__ import annotations

import pytest

from tailrace.producer.config import TopicsConfig, load
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import CatalogTable, Column, TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.topic_names import TopicNames, sanitized
from tailrace.runtime.errors import SchemaError
from tests.unit.test_config_load import BASE


@pytest.mark.parametrize(
    ("name", "topic"),
    [
        ("shop.db.orders_2-x", "shop.db.orders_2-x"),
        ("shop.db.größe", "shop.db.gr__e"),
        ("shop.db.a b", "shop.db.a_b"),
        ("shop.db.😀", "shop.db.__"),
        ("x" * 300, "x" * 249),
        (".", "_"),
        ("..", "__"),
        ("...", "..."),
    ],
)
def test_names_are_sanitized_by_utf16_unit(name: str, topic: str) -> None:
    """One '_' for each illegal UTF-16 unit; at most 249 characters."""
    assert sanitized(name) == topic


def test_topic_names_have_prefix_database_and_table() -> None:
    """Joined with the delimiter, which all topics of the prefix use."""
    names = TopicNames(TopicsConfig(prefix="p", delimiter="-"))

    assert names.table(TableId("db", "t")) == "p-db-t"
    assert (
        names.schema_changes,
        names.transactions,
        names.heartbeats,
    ) == ("p", "p-transaction", "__debezium-heartbeat-p")
    assert TopicNames(TopicsConfig(prefix="p", heartbeat_name="beat")).heartbeats == "beat"


def test_collisions_name_both_tables() -> None:
    """Caused by sanitizing, by a dot in a name, or by another topic of the producer."""
    names = TopicNames(TopicsConfig(prefix="p"))
    tables = [TableId("d", "ä"), TableId("d", "ö"), TableId("d.x", "y"), TableId("d", "x.y"), TableId("d", "plain")]

    faults = names.collisions([*tables, TableId("tailrace", "state")], reserved=["p.tailrace.state"])

    assert [fault.split(":")[0] for fault in faults] == [
        "the topic p.d._ would serve both d.ä and d.ö",
        "the topic p.d.x.y would serve both d.x.y and d.x.y",
        "the topic p.tailrace.state would serve both the topic of that name itself and tailrace.state",
    ]
    assert names.collisions([TableId("d", "a"), TableId("d", "b")]) == []


def test_two_tables_never_share_a_topic() -> None:
    """The second table, created while streaming, differs only in characters that topic names cannot contain."""

    def nothing(_: TableId) -> CatalogTable:
        raise AssertionError

    tables = CapturedTables(load(None, {}, BASE), nothing)
    columns = (Column("id", "int", nullable=False),)
    tables.version_of(TableVersion(TableId("shop", "a$b"), columns, ("id",), b""))
    tables.version_of(TableVersion(TableId("shop", "a$b"), columns, ("id",), b""))

    with pytest.raises(SchemaError, match=r"a_b would serve both .*\.a\$b and .*\.a€b"):
        tables.version_of(TableVersion(TableId("shop", "a€b"), columns, ("id",), b""))
