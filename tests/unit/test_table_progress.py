"""The progress of a table in a query: which steps are legal, and what a position bounds."""

from __future__ import annotations

import re
import time
from itertools import product
from pathlib import Path

import pytest

from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange
from tailrace.spark_consumer.tables.parking import ParkedTables
from tailrace.spark_consumer.tables.progress import (
    TRANSITIONS,
    IllegalTransitionError,
    TablePosition,
    TableProgress,
    TrackedTable,
)

TOPIC = "p.d.t"
ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(("before", "after"), list(product(TableProgress, TableProgress)))
def test_only_the_transitions_of_the_table_are_legal(before: TableProgress, after: TableProgress) -> None:
    """Every other step raises and names the topic and both."""
    table = TrackedTable(TOPIC, before)
    if after in TRANSITIONS[before]:
        table.move_to(after)
        assert table.progress is after
        return
    with pytest.raises(IllegalTransitionError, match=rf"p\.d\.t: {before} cannot be followed by {after}"):
        table.move_to(after)
    assert table.progress is before


def test_all_is_reachable_from_what_a_query_begins_with() -> None:
    """A topic without a stored position, and a position that is not read yet."""
    reached = {TableProgress.FOLLOWING, TableProgress.UNREADABLE}
    while (grown := reached.union(*(TRANSITIONS[each] for each in reached))) != reached:
        reached = grown

    assert reached == set(TableProgress)


@pytest.mark.parametrize(
    ("position", "expected"),
    [
        (None, TableProgress.FOLLOWING),
        (TablePosition(TOPIC, {"0": 5}), TableProgress.BEHIND),
        (TablePosition(TOPIC, {"0": 5}, until={"0": 9}), TableProgress.BEHIND),
        (TablePosition(TOPIC, {"0": 5}, "reason"), TableProgress.PARKED),
        (TablePosition(TOPIC, {"0": 5}, "reason", cut_off=True), TableProgress.LOST_END),
    ],
)
def test_the_position_says_how_a_table_goes_on_after_a_batch(
    position: TablePosition | None, expected: TableProgress
) -> None:
    table = TrackedTable(TOPIC, TableProgress.IN_BATCH, position)
    table.settle()
    assert table.progress is expected


def test_unreadable_position_is_never_read_from() -> None:
    """It has no offsets: its table would begin at the beginning, and another position would replace the file."""
    tables = ParkedTables("c", 100, retry_s=0)
    tables._tables[TOPIC] = TrackedTable(TOPIC, TableProgress.UNREADABLE, TablePosition(TOPIC, {}, "reason"))
    tables.retry()

    assert tables.resuming == [TOPIC]
    assert tables.behind({TOPIC: {"0": 9}}, {}) == []


def test_a_topic_that_is_not_in_the_query_has_nothing_to_read() -> None:
    """It may have been created again, with fewer records than were read of the former one."""
    tables = ParkedTables("c", 100, retry_s=0)
    tables._tables[TOPIC] = TrackedTable(TOPIC, TableProgress.BEHIND, TablePosition(TOPIC, {"0": 100}))

    assert tables.behind({"p.d.other": {"0": 9}}, {TOPIC: {0: 3}}) == []
    assert [chunk.topic for chunk in tables.behind({TOPIC: {"0": 3}}, {TOPIC: {0: 3}})] == [TOPIC]


def test_position_bounds_what_is_read() -> None:
    position = TablePosition("p.d.t", {"0": 5, "1": 7})

    found = position.range_to({"0": 9, "1": 7, "2": 3})

    assert found.partitions == {0: OffsetRange(5, 9), 2: OffsetRange(EARLIEST, 3)}
    assert found.first(4).partitions == {0: OffsetRange(5, 8), 2: OffsetRange(EARLIEST, 2)}
    assert position.is_at({"0": 5, "1": 7, "2": 0})
    assert not position.is_at({"0": 5, "1": 6})
    assert not position.is_at({"0": 5, "1": 7, "2": 1})
    assert position.is_beyond({"0": 9, "1": 6})
    assert position.is_beyond({"0": 9})  # a partition is gone
    assert not position.is_beyond({"0": 5, "1": 8, "2": 1})
    assert not position.is_beyond({})  # not known


def test_position_at_the_beginning_of_a_topic_without_records_is_reached() -> None:
    position = TablePosition("p.d.t", {"0": 5, "1": 7}, topic_id="former").at_beginning_of("new", {"0", "1"})

    assert (position.starts, position.topic_id) == ({"0": EARLIEST, "1": EARLIEST}, "new")
    assert position.is_at({"0": 0, "1": 0})
    assert position.is_at({})
    assert not position.is_at({"0": 0, "1": 1})
    assert position.range_to({"0": 0, "1": 1}).partitions == {1: OffsetRange(EARLIEST, 1)}


def test_parked_table_is_retried_after_a_time() -> None:
    stopped = TablePosition("p.d.t", {"0": 5}, "reason", parked_at=time.time() - 60)
    later, never = ParkedTables("c", 100, retry_s=3600), ParkedTables("c", 100, retry_s=0)
    due = ParkedTables("c", 100, retry_s=30)
    for tables in (later, never, due):
        tables._tables["p.d.t"] = TrackedTable("p.d.t", TableProgress.PARKED, stopped)

    assert (later.resuming, never.resuming, due.resuming) == ([], [], ["p.d.t"])
    assert later.behind({"p.d.t": {"0": 9}}, {}) == []
    [chunk] = due.behind({"p.d.t": {"0": 9}}, {})
    assert chunk.partitions == {0: OffsetRange(5, 9)}
    assert due.behind({"p.d.t": {"0": 9}}, {}) == []  # the chunk is not done


def test_parked_table_is_retried_on_request() -> None:
    stopped = TablePosition("p.d.t", {"0": 5}, "reason", parked_at=time.time())
    tables = ParkedTables("c", 100, retry_s=0)
    tables._tables["p.d.t"] = TrackedTable("p.d.t", TableProgress.PARKED, stopped)

    tables.retry()
    [chunk] = tables.behind({"p.d.t": {"0": 9}}, {})
    assert chunk.partitions == {0: OffsetRange(5, 9)}
    tables.release(TableProgress.RESUMING)
    assert tables.behind({"p.d.t": {"0": 9}}, {}) == []  # once for each request


def test_the_drawing_has_the_transitions() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    drawn = re.findall(r"^ +([A-Z_]+) --> ([A-Z_]+)", page, re.MULTILINE)

    assert sorted(drawn) == sorted((before.name, after.name) for before in TRANSITIONS for after in TRANSITIONS[before])
