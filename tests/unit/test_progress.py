"""The offsets that a query is behind, from Spark's progress report."""

from __future__ import annotations

from tailrace.spark_consumer.monitor.status import offsets_between, reported_offsets


def test_offsets_between_the_end_of_a_batch_and_of_the_topic() -> None:
    """Partitions that the batch had not read yet count from their start, also if that is the earliest offset (-2)."""
    assert offsets_between({"0": 5, "1": 2}, {"0": 7, "1": 2, "2": 4}) == 6
    assert offsets_between({}, {"0": 3}) == 3
    assert offsets_between({"0": -2}, {"0": 3}) == 3


def test_end_that_is_not_reported() -> None:
    """A query that has not planned a batch reports no offsets."""
    assert reported_offsets({"sources": [{"endOffset": None, "latestOffset": None}]}) == ({}, {})
