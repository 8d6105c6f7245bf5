"""The reason of a parked table names the cause and the remedy, also where Spark's error does so in many lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tailrace.spark_consumer.errors import BadRecord, BadRecordError, IncompleteTopicError, SinkError
from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange, TopicRange
from tailrace.spark_consumer.tables import reasons
from tailrace.spark_consumer.tables.reasons import bad_record, known_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "p.d.t"
STAGE = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times (TID 7) (host executor driver): "


class _Java:
    """An exception of ``raise_error``, as py4j shows it."""

    def __init__(self, message: str, cause: _Java | None = None) -> None:
        self.getMessage, self.getCause = (lambda: message), (lambda: cause)
        self.getCondition = lambda: "USER_RAISED_EXCEPTION"
        self.getMessageParameters = lambda: {"errorMessage": message}
        self.getSqlState = lambda: "P0001"
        self.getClass = lambda: None


class _FromJava(Exception):  # noqa: N818 - as those of Spark
    def __init__(self, *messages: str) -> None:
        super().__init__(" ".join(messages))
        self.java_exception: _Java | None = None
        for message in reversed(messages):
            self.java_exception = _Java(message, self.java_exception)


_RECORD = "a record cannot be decoded: topic p.d.t, partition 1, offset 7: n differs"
_RANGE = TopicRange(TOPIC, {1: OffsetRange(5, 8)})


def test_an_error_names_the_record_that_the_decoder_raised() -> None:
    error = _FromJava(f"{STAGE}a job failed", _RECORD)
    found = known_reason(cast("SparkSession", None), {}, TOPIC, _RANGE, error, same=True)

    assert isinstance(found, BadRecordError)
    assert found.message == "a record cannot be decoded: topic p.d.t, partition 1, offset 7: n differs"
    assert found.hint.endswith("set errors.tolerance=all and errors.deadletterqueue.topic.name")
    assert found.record == BadRecord(TOPIC, 1, 7, "n differs")
    assert bad_record(found, TOPIC) == bad_record(error, TOPIC) == found.record


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (_FromJava(f"{STAGE}{_RECORD}"), _RANGE),
        (_FromJava("a job failed", f"a value does not fit the files\n{_RECORD}"), _RANGE),
        (_FromJava("a job failed", _RECORD), TopicRange(TOPIC, {1: OffsetRange(5, 7)})),
        (_FromJava("a job failed", _RECORD), TopicRange(TOPIC, {0: OffsetRange(5, 8)})),
        (_FromJava("a job failed", _RECORD), TopicRange("p.d.other", {1: OffsetRange(5, 8)})),
        (SinkError(_RECORD), _RANGE),
        (RuntimeError(_RECORD), _RANGE),
    ],
    ids=["quoted", "value", "other offset", "other partition", "other topic", "of a sink", "text"],
)
def test_a_text_that_quotes_a_record_names_none(error: Exception, read: TopicRange) -> None:
    """It is neither skipped nor copied."""
    assert bad_record(error, read.topic, read) is None


@pytest.mark.parametrize(("start", "is_lost"), [(3, True), (5, False), (EARLIEST, False)])
def test_records_are_lost_that_the_range_begins_with(
    start: int, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "beginning_offsets", lambda *_: {0: 5})
    monkeypatch.setattr(reasons, "end_offsets", lambda *_: {0: 9})
    found = TopicRange(TOPIC, {0: OffsetRange(start, 9)})

    reason = known_reason(cast("SparkSession", None), {}, TOPIC, found, RuntimeError("KAFKA_DATA_LOSS"), same=True)

    assert isinstance(reason, IncompleteTopicError) == is_lost
