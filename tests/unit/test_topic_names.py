"""Topic names as in Debezium, and tables that would share a topic."""

from __future__ import annotations

import pytest

from tailrace.producer.config import TopicsConfig, load
from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import CatalogTable, Column, TableId
from tailrace.producer.serialization.captured_tables import CapturedTables
from tailrace.producer.serialization.envelope.topic_names import TopicNames, TopicOwners, sanitized
from tailrace.runtime.errors import ConfigError, SchemaError
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


@pytest.mark.parametrize(
    ("database", "table", "topic"),
    [
        ("my_db", "x_y", "my_u005fdb.x_u005fy"),
        ("db", "注文", "db._u6ce8_u6587"),
        ("db", "größe", "db.gr_u00f6_u00dfe"),
        ("db", "a b", "db.a_u0020b"),
        ("db", "😀", "db._ud83d_ude00"),
        ("db", "ā", "db._u101"),
        ("db", "a\tb", "db.a_u009b"),
        ("db", "x.y-z", "db.x.y-z"),
        ("db", "z" * 300, "db." + "z" * (249 - len("p.db."))),
    ],
)
def test_unicode_strategy_names_topics_as_debezium(database: str, table: str, topic: str) -> None:
    """What DefaultUnicodeTopicNamingStrategy of Debezium 3.6.1 returns; only topics of tables are encoded."""
    names = TopicNames(TopicsConfig(prefix="p", naming="unicode", transaction="tr_x"))

    assert names.table(TableId(database, table)) == f"p.{topic}"
    assert names.transactions == "p.tr_x"


@pytest.mark.parametrize(
    ("given", "naming"),
    [
        ("io.debezium.schema.DefaultTopicNamingStrategy", "default"),
        ("io.debezium.schema.DefaultUnicodeTopicNamingStrategy", "unicode"),
    ],
)
def test_strategies_of_debezium(given: str, naming: str) -> None:
    assert load(None, {}, {**BASE, "topic.naming.strategy": given}).topics.naming == naming


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"topic.naming.strategy": "io.debezium.schema.SchemaTopicNamingStrategy"}, "lack the database"),
        ({"topic.naming.strategy": "io.debezium.schema.DefaultRegexTopicNamingStrategy"}, "topic.naming.strategy"),
        ({"topic.naming.strategy": "unicode", "topic.prefix": "a_b"}, "choose a prefix without _"),
    ],
)
def test_strategies_that_are_refused(changes: dict[str, str], problem: str) -> None:
    """The consumer finds the topics by prefix and database."""
    with pytest.raises(ConfigError, match=problem):
        load(None, {}, {**BASE, **changes})


def test_topics_have_one_owner() -> None:
    """Two tables share one because of sanitizing, of a dot in a name, or with another topic of the producer."""
    channels = {
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": "p.d.told",
        "signal.enabled.channels": "kafka",
        "signal.kafka.topic": "p.d.asked",
    }
    owners = TopicOwners(load(None, {}, {**BASE, "topic.prefix": "p", "topic.heartbeat.name": "p.d.beat", **channels}))
    own = ("beat", "told", "asked")
    tables = [TableId("d", "ä"), TableId("d", "ö"), TableId("d.x", "y"), TableId("d", "x.y"), TableId("d", "plain")]

    faults = owners.own_all([*tables, TableId("tailrace", "state"), *(TableId("d", name) for name in own)])

    assert [fault.split(":")[0] for fault in faults.values()] == [
        "the topic p.d._ would serve both d.ä and d.ö",
        "the topic p.d.x.y would serve both d.x.y and d.x.y",
        "the topic p.tailrace.state would serve both the topic of that name itself and tailrace.state",
        "the topic p.d.beat would serve both heartbeats and d.beat",
        "the topic p.d.told would serve both notifications and d.told",
        "the topic p.d.asked would serve both signals and d.asked",
    ]
    assert all(
        ": exclude one of them by table.exclude.list, capture it under another" in each for each in faults.values()
    )
    assert owners.own(TableId("d", "ä")) == ""
    owners.release(TableId("d", "ö"))
    assert owners.own(TableId("d", "ö"))
    owners.release(TableId("d", "ä"))
    assert owners.own(TableId("d", "ö")) == ""
    assert owners.own(TableId("d", "ä"))


def test_two_tables_never_share_a_topic() -> None:
    """The second table, created while streaming, differs only in characters that topic names cannot contain."""

    def nothing(_: TableId) -> CatalogTable:
        raise AssertionError

    tables = CapturedTables(load(None, {}, BASE), nothing)
    columns = (Column("id", "int", nullable=False),)
    tables.version_of(TableVersion(TableId("shop", "a$b"), columns, ("id",), b""))
    tables.version_of(TableVersion(TableId("shop", "a$b"), columns, ("id",), b""))

    other = TableVersion(TableId("shop", "a€b"), columns, ("id",), b"")
    with pytest.raises(SchemaError, match=r"a_b would serve both .*\.a\$b and .*\.a€b") as refused:
        tables.version_of(other)
    strategy = "topic.naming.strategy=io.debezium.schema.DefaultUnicodeTopicNamingStrategy"
    assert f"set {strategy} under a new topic.prefix" in refused.value.hint
    named = CapturedTables(load(None, {}, {**BASE, **dict([strategy.split("=")])}), nothing)
    named.version_of(TableVersion(TableId("shop", "a$b"), columns, ("id",), b""))
    named.version_of(other)
