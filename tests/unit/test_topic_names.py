"""Topic names as Debezium makes them, and names that fall together."""

from __future__ import annotations

import pytest

from tailrace.producer.config import TopicsConfig, load
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.mysql.catalog import CatalogTable
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
def test_names_are_made_legal_as_java_counts(name: str, topic: str) -> None:
    """One '_' for each UTF-16 unit, 249 at most."""
    assert sanitized(name) == topic


def test_topics_have_prefix_database_and_table() -> None:
    """With the delimiter, for every topic of the prefix."""
    names = TopicNames(TopicsConfig(prefix="p", delimiter="-"))

    assert names.table(TableId("db", "t")) == "p-db-t"
    assert (
        names.schema_changes,
        names.transactions,
        names.heartbeats,
    ) == ("p", "p-transaction", "__debezium-heartbeat-p")
    assert TopicNames(TopicsConfig(prefix="p", heartbeat_name="beat")).heartbeats == "beat"


def test_tables_whose_topics_fall_together_are_both_named() -> None:
    """By sanitising, by a dot that is a delimiter too, and with topics of our own."""
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
    """Names that differ only in what a topic's name cannot have, the second made while the log is followed."""

    def nothing(_: TableId) -> CatalogTable:
        raise AssertionError

    tables = CapturedTables(load(None, {}, BASE), nothing)
    columns = (Column("id", "int", nullable=False),)
    tables.capture(TableId("shop", "a$b"), columns, ["id"])
    tables.capture(TableId("shop", "a$b"), columns, ["id"])

    with pytest.raises(SchemaError, match=r"a_b would serve both .*\.a\$b and .*\.a€b"):
        tables.capture(TableId("shop", "a€b"), columns, ["id"])
