"""What a target that several tables share stores for each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

import pytest
from pyspark.sql import types as tp

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.evolution.attempt import captured_name
from tailrace.spark_consumer.evolution.policy import Behavior, EvolutionPolicy
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.state import ALONE, OF_A_SHARD, PROPERTIES, SEVERAL, Shard, require_owner
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

TOPIC, KEY, NAMES, TRUNCATED = (PROPERTIES[name] for name in ("topic", "key", "names", "truncated"))
ONE, OTHER = Shard("p.s_1.t", (("shard", "1"),)), Shard("p.s_2.t", (("sh`ard", "it's"), ("b", "2")))

ANOTHER_TABLE = "rows of another table .*hint: give each table a value of its own, such as __schema_name__ AS shard, or"
ANOTHER_TOPIC = r"belongs to another topic.*p\.s_2\.t.*hint: .*: another sink-table in the route, or \{database\} and"


def test_each_property_of_a_topic_is_kept_for_each_shard() -> None:
    of_all = {PROPERTIES[name] for name in ("key", "query", "shape", "added_columns")}

    assert set(PROPERTIES.values()) - of_all == OF_A_SHARD


def test_a_shard_sees_its_own_properties() -> None:
    one = {TOPIC: ONE.topic, KEY: "k", NAMES: "a"}
    other = {TOPIC: OTHER.topic, KEY: "k", NAMES: "b", TRUNCATED: "9"}
    stored = {**ONE.stored(one), "own": "x"}

    assert {name: ONE.seen(stored).get(name) for name in (*other, "own")} == {**one, TRUNCATED: None, "own": "x"}
    assert OTHER.seen(stored)[TOPIC] == SEVERAL, "it has not written to the table yet"
    assert NAMES not in OTHER.seen(stored)

    stored |= OTHER.stored(other)
    assert {name: ONE.seen(stored).get(name) for name in other} == {**one, TRUNCATED: None}
    assert {name: OTHER.seen(stored).get(name) for name in other} == other
    assert OTHER.names([TRUNCATED, KEY]) == [f"{TRUNCATED}.{OTHER.topic}", KEY]


def test_a_table_of_one_topic_belongs_to_it() -> None:
    assert ONE.seen({TOPIC: ONE.topic.upper()})[TOPIC] == ONE.topic.upper()
    assert TOPIC not in ONE.seen({})


def test_rows_of_a_shard_have_its_values_in_the_types_of_the_table() -> None:
    table = tp.StructType().add("Shard", tp.DecimalType(9, 2)).add("sh`ard", tp.StringType()).add("b", tp.LongType())

    assert ONE.condition(table) == "`shard` = CAST('1' AS decimal(9,2))"
    assert OTHER.condition(table) == "`sh``ard` = CAST('it\\'s' AS string) AND `b` = CAST('2' AS bigint)"
    assert OTHER.condition(tp.StructType().add("b", tp.LongType())) == ""


@pytest.mark.parametrize(
    ("owners", "problem"),
    [
        ({}, ""),
        ({ONE.topic: '{"shard": "1"}', "p.s_2.t": '{"shard": "2"}'}, ""),
        ({"p.s_2.t": ""}, ""),
        ({ONE.topic: ALONE}, ""),
        ({"p.s_2.t": '{"shard": "1"}'}, ANOTHER_TABLE),
        ({"p.s_2.t": '{"shard": "1", "b": "2"}'}, ANOTHER_TABLE),
        ({"p.s_2.t": '{"b": "2"}'}, ANOTHER_TABLE),
        (
            {ONE.topic: '{"shard": "9"}'},
            r"t has the rows of p\.s_1\.t under other values .*hint: set the former values in the transform, or anoth",
        ),
        ({"p.s_2.t": ALONE}, ANOTHER_TOPIC),
    ],
)
def test_a_shard_is_that_of_one_topic(owners: dict[str, str], problem: str) -> None:
    if not problem:
        require_owner(ONE.topic, ONE, owners, "t")
        return
    with pytest.raises(SinkError, match=f"(?s){problem}"):
        require_owner(ONE.topic, ONE, owners, "t")


@pytest.mark.parametrize("text", ["", ALONE, '{"shard": "2"}'])
def test_a_topic_without_a_shard_has_a_target_for_itself(text: str) -> None:
    require_owner(ONE.topic, None, {ONE.topic: text}, "t")
    with pytest.raises(SinkError, match=f"(?s){ANOTHER_TOPIC}"):
        require_owner(ONE.topic, None, {"p.s_2.t": text}, "t")


def test_a_commit_has_the_ledgers_of_all_shards() -> None:
    def written(topic: str, end: int, before: Ledger) -> Ledger:
        found = TopicRange(topic, {0: OffsetRange(0, end)})
        return before.appended(found).merged(found)

    first = written("one", 5, Ledger("one", id="x", others={}))
    second = Ledger.newest("two", [first.metadata])
    assert second is not None
    assert second.applied == {}, "nothing is applied of a topic that the newest commit does not name"
    third = written("two", 7, second)

    for topic, end in (("one", 5), ("two", 7)):
        found = Ledger.newest(topic, [None, third.metadata, first.metadata])
        assert found is not None
        assert found.applied == {0: end}
    reread = Ledger.newest("one", [third.metadata])
    assert reread is not None
    assert reread.id == "x"
    assert Ledger.newest("two", [written("one", 9, reread).metadata]) == Ledger(
        "two", {0: 7}, {0: 7}, others={"one": {"topic": "one", "append": {"0": 9}, "merge": {"0": 9}, "id": "x"}}
    )


def test_a_routed_table_has_the_name_of_its_source_in_signals() -> None:
    table = TableSchema("p.shop.we_ird", "shop", "we ird", (), ())

    assert captured_name(table, ()) == "shop.we ird"
    assert captured_name(replace(table, database="all", table="shop"), ()) == "shop.we_ird"
    change = Alteration(table.topic, "shop", "we ird", "", (), Sequence(1, 1, 1, 0, 0))
    assert captured_name(replace(table, database="all", table="shop"), [change]) == "shop.we ird"


def test_a_commit_of_another_topic_says_nothing_of_a_table_with_one_topic() -> None:
    assert Ledger.newest("two", [Ledger("one").metadata]) is None


def test_a_shard_removes_no_column_that_others_have() -> None:
    policies = {name: ONE.policy(EvolutionPolicy(name)) for name in get_args(Behavior)}

    assert all(each.keeps_columns for each in policies.values())
    assert {name: each.behavior for name, each in policies.items()} == {
        "exception": "exception",
        "evolve": "lenient",
        "try_evolve": "lenient",
        "lenient": "lenient",
        "ignore": "ignore",
    }
