"""What a target that several tables share stores for each of them."""

from __future__ import annotations

from dataclasses import replace
from typing import get_args

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.table import TableSchema
from tailrace.spark_consumer.evolution.outcome import captured_name
from tailrace.spark_consumer.evolution.policy import Behavior, EvolutionPolicy
from tailrace.spark_consumer.sink.initial_load import PROPERTIES
from tailrace.spark_consumer.sink.ledger import Ledger
from tailrace.spark_consumer.sink.shared_target import OF_A_SHARD, SEVERAL, Shard
from tailrace.spark_consumer.sink.table_properties import KEY, LAST_ALTERATION, NAMES, TOPIC, TRUNCATED
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

ONE, OTHER = Shard("p.s_1.t", (("shard", "1"),)), Shard("p.s_2.t", (("sh`ard", "it's"), ("b", "2")))


def test_each_property_of_a_topic_is_kept_for_each_shard() -> None:
    assert {TOPIC, TRUNCATED, NAMES, LAST_ALTERATION, *PROPERTIES} == OF_A_SHARD


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


def test_rows_of_a_shard_have_its_values() -> None:
    assert ONE.condition == "CAST(`shard` AS STRING) = '1'"
    assert OTHER.condition == "CAST(`sh``ard` AS STRING) = 'it\\'s' AND CAST(`b` AS STRING) = '2'"


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
    policies = [EvolutionPolicy(name) for name in get_args(Behavior)]

    assert {each.behavior: ONE.policy(each).behavior for each in policies} == {
        "exception": "exception",
        "evolve": "lenient",
        "try_evolve": "lenient",
        "lenient": "lenient",
        "ignore": "ignore",
    }
