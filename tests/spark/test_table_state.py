"""The state of a table between two batches: which of the stored states a batch goes on from."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.normalize.split_progress import SplitCounts, SplitProgress
from tailrace.spark_consumer.normalize.stored_records import HeldFolder, MovedKeys
from tailrace.spark_consumer.normalize.table_state import TableState, TableStates
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "p.d.t"


def offsets(start: int, end: int) -> TopicRange:
    """Return a range of one partition."""
    return TopicRange(TOPIC, {0: OffsetRange(start, end)})


def state(batch: int, end: int, rows: int) -> TableState:
    """Return a state that counts the records up to an offset."""
    return TableState(step=batch, batch=batch, ends={0: end}, progress=SplitProgress({"s": SplitCounts(rows)}))


def test_state_survives_a_restart(spark: SparkSession, tmp_path: Path) -> None:
    saved = TableState(
        step=3,
        batch=3,
        ends={0: 5, 1: 7},
        progress=SplitProgress({"s:1": SplitCounts(3, 1, 17)}),
        completed={"s:0": Sequence(1, 7, 10, 0, 0)},
        held={HeldFolder("s:1", "2-a"): ("s:1", "t:0")},
        released=(HeldFolder("s:0", "1-b"),),
        truncated=Sequence(1, 7, 4, 0, 0),
        topic_id="id",
        begins={0: 2},
    )
    TableStates(str(tmp_path)).save(spark, TOPIC, saved, TableState())

    before, after = TableStates(str(tmp_path)).load(spark, TOPIC, 4, TopicRange(TOPIC, {0: OffsetRange(5, 9)}))

    assert (before, after) == (saved, None)
    # Its records are read a second time: nothing is counted, and the table begins where it did.
    repeated, _ = TableStates(str(tmp_path)).load(spark, TOPIC, 5, TopicRange(TOPIC, {0: OffsetRange(3, 9)}))
    assert repeated == TableState(step=3, unverified=True, topic_id="id", begins={0: 2})


def test_state_knows_the_topic_that_was_read(spark: SparkSession, tmp_path: Path) -> None:
    """Also a query that has not read it in this run. What is known of partitions belongs to that topic."""
    saved = TableState(step=3, batch=3, topic_id="id", moved_keys=MovedKeys(4))
    TableStates(str(tmp_path)).save(spark, TOPIC, saved, TableState())

    states = TableStates(str(tmp_path))
    assert (states.topic_id(spark, TOPIC), states.topic_id(spark, "p.d.other")) == ("id", "")
    assert [saved.moved_keys_in(name).partitions for name in ("id", "", "another")] == [4, 4, 0]


def test_state_that_goes_back_knows_the_truncation_of_the_target(spark: SparkSession, tmp_path: Path) -> None:
    """The target is older than both stored states. Later truncations are read again."""
    states = TableStates(str(tmp_path))
    before, last = (
        TableState(step=step, ends={0: 9}, truncated=Sequence(1, 7, 100 * step, 0, 0), topic_id="id") for step in (4, 6)
    )
    states.save(spark, TOPIC, before, TableState())
    states.save(spark, TOPIC, last, before)

    states.go_back(spark, TOPIC, 2, Sequence(1, 7, 200, 0, 0))

    found, _ = TableStates(str(tmp_path)).load(spark, TOPIC, 5, TopicRange(TOPIC, {0: OffsetRange(3, 9)}))
    assert found == replace(last.uncounted(), step=7, truncated=Sequence(1, 7, 200, 0, 0))


def test_where_a_table_begins_is_not_known_from_a_state_of_an_earlier_release() -> None:
    """It stored nothing, also for a table that began at the latest offsets."""
    body = TableState(step=3, begins={}).to_json()
    earlier = {name: value for name, value in body.items() if name != "written"}

    assert TableState.from_json(3, body).begins == {}
    assert TableState.from_json(3, earlier).begins is None
    assert TableState.from_json(3, {**earlier, "begins": {"0": 7}}).begins == {0: 7}


def test_repeated_batch_finds_its_state(spark: SparkSession, tmp_path: Path) -> None:
    states = TableStates(str(tmp_path))
    first, second = state(0, 10, 1), state(1, 20, 2)
    states.save(spark, TOPIC, first, TableState())
    states.save(spark, TOPIC, second, first)

    assert TableStates(str(tmp_path)).load(spark, TOPIC, 1, offsets(10, 20)) == (first, second)
    assert states.load(spark, TOPIC, 2, offsets(20, 30)) == (second, None)
    # Nothing was stored for some batches in which nothing changed.
    assert states.load(spark, TOPIC, 9, offsets(90, 95)) == (second, None)


def test_table_that_goes_on_later_does_not_use_the_state_of_the_batch_that_failed(
    spark: SparkSession, tmp_path: Path
) -> None:
    states = TableStates(str(tmp_path))
    first, failed = state(0, 10, 1), state(1, 20, 2)
    states.save(spark, TOPIC, first, TableState())
    states.save(spark, TOPIC, failed, first)

    assert states.load(spark, TOPIC, 5, offsets(10, 50)) == (first, None)
    states.save(spark, TOPIC, state(5, 50, 7), first)
    assert sorted(file.name for file in (tmp_path / "tables" / TOPIC).glob("*.json")) == ["0.json", "5.json"]
