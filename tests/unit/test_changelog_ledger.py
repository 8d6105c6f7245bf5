"""The ledger of a table that takes a changelog: whether rows of a write can be in the table."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import pytest

from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.sink.base import Write
from tailrace.spark_consumer.sink.ledger import Ledger, TargetBehindError
from tailrace.spark_consumer.source.ranges import EARLIEST

QUERY = "query-1"


def write(step: int, begin: int, end: int, *, settled: bool = True, releases: bool = False) -> Write:
    """Return a write of the records of one partition."""
    return Write(step, {0: begin}, {0: end}, settled, whole_from={}, releases=releases)


def ledger_after(*writes: Write, query: str = QUERY) -> Ledger:
    """Return the ledger of a table after some writes, read from its last commit."""
    ledger = Ledger("topic", id="a")
    for each in writes:
        ledger = ledger.written(query, each)
    found = Ledger.newest("topic", [None, ledger.metadata])
    assert found == ledger
    return found


def test_a_query_that_goes_on_repeats_nothing() -> None:
    ledger = ledger_after(write(0, 0, 10), write(1, 10, 20))

    assert not Ledger("topic").is_repeat(QUERY, write(0, 0, 10))
    assert not ledger.is_repeat(QUERY, write(2, 20, 30))
    # A step that changes only the ends is not stored: the next one has its number.
    assert not ledger.is_repeat(QUERY, write(1, 20, 30))


@pytest.mark.parametrize(
    ("query", "following"),
    [
        (QUERY, write(1, 10, 20)),  # the attempt failed after its commit
        (QUERY, write(1, 20, 20, releases=True)),  # the same, for a step that only releases rows
        (QUERY, write(0, 0, 30)),  # an older checkpoint
        (QUERY, write(2, 15, 30)),  # an older checkpoint, in smaller batches
        ("query-2", write(2, 20, 30)),  # another query, wherever it begins
        ("query-2", write(0, 0, 5)),
    ],
)
def test_repeats_are_found(query: str, following: Write) -> None:
    assert ledger_after(write(0, 0, 10), write(1, 10, 20)).is_repeat(query, following)


def test_a_new_partition_is_no_repeat() -> None:
    ledger = ledger_after(write(0, 0, 10))
    begins: Mapping[int, int] = {0: 10}

    assert not ledger.is_repeat(QUERY, Write(1, begins, {0: 10, 1: 5}, settled=True))
    after = ledger.written(QUERY, Write(1, begins, {0: 10, 1: 5}, settled=True))
    assert after.is_repeat(QUERY, Write(2, begins, {0: 20, 1: 8}, settled=True))


def test_rows_that_are_held_when_records_are_read_once_more_count_as_repeats() -> None:
    """They are written behind the offsets of the ledger; the table may have them."""
    before = ledger_after(write(0, 0, 10), write(1, 10, 20))
    held = before.written(QUERY, write(1, 10, 20, settled=False))

    assert held.is_repeat(QUERY, write(2, 20, 30))
    assert not held.written(QUERY, write(2, 20, 30)).is_repeat(QUERY, write(3, 30, 40))
    assert not before.written(QUERY, write(2, 20, 30, settled=False)).is_repeat(QUERY, write(3, 30, 40))


def test_a_write_follows_what_was_read() -> None:
    """A target that lacks something goes back to where no record was held."""
    held = ledger_after(write(0, 0, 10), write(1, 10, 20, settled=False), write(2, 20, 30, settled=False))

    held.require_reached(QUERY, write(3, 30, 40))
    with pytest.raises(TargetBehindError) as caught:
        held.require_reached(QUERY, write(3, 31, 40))
    assert caught.value.starts == {"0": 10}
    held.written(QUERY, write(3, 30, 40)).require_reached(QUERY, write(4, 40, 50))
    with pytest.raises(TargetBehindError) as caught:
        Ledger("topic").require_reached(QUERY, write(0, 5, 40))
    assert caught.value.starts == {"0": EARLIEST}
    # A query that does not begin at the beginning.
    begun = Ledger("topic").written(QUERY, Write(0, {0: 5}, {0: 8}, settled=False))
    with pytest.raises(TargetBehindError) as caught:
        begun.require_reached(QUERY, Write(1, {0: 9, 1: 3}, {0: 10, 1: 4}, settled=True))
    assert caught.value.starts == {"0": 5}


def test_a_part_that_is_read_once_more_says_nothing_of_the_records_behind_it() -> None:
    """They were held when the copy of the target was made; a copy of it goes back to them."""
    held = ledger_after(write(0, 0, 10), write(1, 10, 20, settled=False))
    part = held.written(QUERY, write(7, 10, 14))

    with pytest.raises(TargetBehindError) as caught:
        part.require_reached(QUERY, write(9, 30, 40))
    assert caught.value.starts == {"0": 14}
    assert part.written(QUERY, write(8, 14, 20)).merge == {0: 20}


def test_a_write_follows_the_step_before_it() -> None:
    """A step without records has the offsets of the one before."""
    copy = ledger_after(write(0, 0, 10, settled=False), write(1, 10, 20, settled=False))
    last = replace(write(4, 20, 30), follows=2)

    with pytest.raises(TargetBehindError) as caught:
        copy.require_reached(QUERY, last)
    assert (caught.value.starts, caught.value.step) == ({"0": EARLIEST}, 1)
    copy.written(QUERY, write(2, 20, 20)).require_reached(QUERY, last)
    # Steps of another query are other ones, and what it held is not written.
    with pytest.raises(TargetBehindError) as caught:
        copy.require_reached("other", last)
    assert (caught.value.starts, caught.value.step) == ({"0": EARLIEST}, None)
    copy.written(QUERY, write(2, 20, 20)).require_reached("other", last)


def test_the_ledger_knows_the_last_truncation() -> None:
    """The state of a query that goes back gets it: the event is in another partition."""
    truncation = Sequence(1, 7, 200, 0, 0)
    copy = ledger_after(replace(write(0, 0, 10), truncated=truncation), write(1, 10, 20))

    with pytest.raises(TargetBehindError) as caught:
        copy.require_reached(QUERY, write(7, 40, 50))
    assert caught.value.truncated == copy.truncated == truncation


def test_the_ledger_does_not_go_back() -> None:
    after = ledger_after(write(0, 0, 10), write(7, 10, 20), write(3, 5, 15))

    assert (after.append, after.merge) == ({0: 20}, {0: 20})
    assert after.changelog is not None
    assert after.changelog.step == 7
    assert after.id == "a"
