"""A topic that has lost its beginning before the consumer read it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tailrace.spark_consumer.errors import IncompleteTopicError
from tailrace.spark_consumer.normalize.table_state import TableState
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.formats.record_format import record_format
from tailrace.spark_consumer.source.ranges import OffsetRange, TopicRange
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.source.watermarks import SnapshotRuns, SplitEnds
from tailrace.spark_consumer.tables.reading import Reading
from tailrace.spark_consumer.tables.snapshot import Snapshots

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

TOPIC = "p.d.t"


def check(starts: Mapping[int, int], *, batch: int = -1, accept: bool = False, applied: Collection[int] = ()) -> None:
    """Check the first range of a topic."""
    reading = Reading({}, SchemaTracker(ControlTopic("p.tailrace.schemas", {})), record_format(None))
    watermarks = ControlTopic("p.tailrace.watermarks", {})
    snapshots = Snapshots(reading, SplitEnds(watermarks), SnapshotRuns(watermarks), accept_incomplete=accept)
    found = TopicRange(TOPIC, {partition: OffsetRange(start, 100) for partition, start in starts.items()})
    snapshots.check_start(TOPIC, TableState(step=batch), found, applied)


def test_topic_that_has_its_beginning_is_read() -> None:
    check({0: 0, 1: 0})
    check({0: 50}, batch=7)  # not the first batch
    check({0: 50}, applied=[0])


def test_topic_that_has_lost_its_beginning_is_an_error_unless_it_is_accepted() -> None:
    with pytest.raises(IncompleteTopicError, match="has lost its beginning") as caught:
        check({0: 0, 1: 17, 2: 5}, applied=[2])

    assert caught.value.context["first_offsets"] == "partition 1: 17"
    assert "tailrace.incomplete.topic.handling.mode=warn" in caught.value.hint
    check({0: 0, 1: 17}, accept=True)
