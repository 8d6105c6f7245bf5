"""The ledger of a table that takes a changelog: whether rows of a write can be in the table."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from tailrace.spark_consumer.sink.base import Write
from tailrace.spark_consumer.sink.ledger import Ledger

QUERY = "query-1"


def write(step: int, begin: int, end: int, *, settled: bool = True) -> Write:
    """Return a write of the records of one partition."""
    return Write(step, {0: begin}, {0: end}, settled)


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
    # Steps without rows write nothing.
    assert not ledger.is_repeat(QUERY, write(5, 25, 30))


@pytest.mark.parametrize(
    ("query", "following"),
    [
        (QUERY, write(1, 10, 20)),  # the attempt failed after its commit
        (QUERY, write(1, 20, 20)),  # the same, for a step that only releases rows
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


def test_the_ledger_does_not_go_back() -> None:
    after = ledger_after(write(0, 0, 10), write(7, 10, 20), write(3, 5, 15))

    assert (after.append, after.merge) == ({0: 20}, {0: 20})
    assert after.changelog is not None
    assert after.changelog.step == 7
    assert after.id == "a"
