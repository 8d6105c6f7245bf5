"""The offsets that a query is behind, from Spark's progress report."""

from __future__ import annotations

from tailrace.spark_consumer.monitor.progress import offsets_behind


def test_offsets_behind_by_topic() -> None:
    """Partitions that the batch had not read yet count from their start."""
    source = {"endOffset": {"a": {"0": 5, "1": 2}}, "latestOffset": {"a": {"0": 7, "1": 2, "2": 4}, "b": {"0": 3}}}

    assert offsets_behind({"sources": [source]}) == {"a": 6, "b": 3}


def test_end_that_is_not_reported() -> None:
    """A query that has not planned a batch reports no offsets."""
    assert offsets_behind({"sources": [{"endOffset": None, "latestOffset": None}]}) == {}
