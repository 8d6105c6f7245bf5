"""The reason of a parked table names the cause and the remedy, also where Spark's error does so in many lines."""

from __future__ import annotations

from typing import TYPE_CHECKING, cast

import pytest

from tailrace.runtime.errors import KafkaRequestError, TailraceError
from tailrace.spark_consumer.errors import BadRecord, BadRecordError, IncompleteTopicError, SinkError
from tailrace.spark_consumer.source.ranges import EARLIEST, OffsetRange, TopicRange
from tailrace.spark_consumer.tables import reasons
from tailrace.spark_consumer.tables.bad_record import bad_record
from tailrace.spark_consumer.tables.reasons import known_reason, may_be_missing, reason_in, unknown_reason

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TOPIC = "p.d.t"
STAGE = "Job aborted due to stage failure: Task 0 in stage 3.0 failed 1 times (TID 7) (host executor driver): "
DENIED = f"{STAGE}org.apache.kafka.common.errors.TopicAuthorizationException: Not authorized to access topics:"
RAISED = f"{STAGE}org.apache.spark.SparkRuntimeException: [USER_RAISED_EXCEPTION]"
END = "SQLSTATE: P0001\n\tat org.apache.spark.X"


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        (
            f"{RAISED} a value of d.t, column n, does not fit the files: 3000000000 {END}",
            SinkError,
            "a value of d.t, column n, does not fit the files: 3000000000",
        ),
        (
            f"{STAGE}org.apache.kafka.common.errors.TopicAuthorizationException: no text",
            KafkaRequestError,
            "Kafka denies reading topic p.d.t",
        ),
        (
            f"{DENIED} [p.d.t]",
            KafkaRequestError,
            "Kafka denies reading topic p.d.t",
        ),
        (
            f"{DENIED} [latest.p.d.t]",
            KafkaRequestError,
            "the records of topic p.d.t cannot be applied: Kafka denies access to latest.p.d.t",
        ),
    ],
)
def test_known_errors(text: str, kind: type[TailraceError], expected: str) -> None:
    found = reason_in(TOPIC, text)

    assert type(found) is kind
    assert found.message == expected
    assert found.hint


class _Java:
    """An exception of Java, as py4j shows it."""

    def __init__(self, message: str, cause: _Java | None = None) -> None:
        self.getMessage, self.getCause = (lambda: message), (lambda: cause)


class _FromJava(Exception):  # noqa: N818 - as those of Spark
    def __init__(self, *messages: str) -> None:
        super().__init__(" ".join(messages))
        self.java_exception: _Java | None = None
        for message in reversed(messages):
            self.java_exception = _Java(message, self.java_exception)


_RECORD = (
    "[USER_RAISED_EXCEPTION] a record cannot be decoded: topic p.d.t, partition 1, offset 7: n differs SQLSTATE: P1"
)
_RANGE = TopicRange(TOPIC, {1: OffsetRange(5, 8)})


def test_an_error_names_the_record_that_the_decoder_raised() -> None:
    error = _FromJava(f"{STAGE}a job failed", _RECORD)
    found = known_reason(cast("SparkSession", None), {}, TOPIC, _RANGE, error, same=True)

    assert isinstance(found, BadRecordError)
    assert found.message == "a record cannot be decoded: topic p.d.t, partition 1, offset 7: n differs"
    assert found.record == BadRecord(TOPIC, 1, 7, "n differs")
    assert bad_record(found, TOPIC) == bad_record(error, TOPIC) == found.record


@pytest.mark.parametrize(
    ("error", "read"),
    [
        (_FromJava(f"{STAGE}{_RECORD}"), _RANGE),
        (_FromJava("a job failed", f"[USER_RAISED_EXCEPTION] a value does not fit the files: {_RECORD}"), _RANGE),
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


def test_an_unknown_error_names_the_topic_and_the_beginning_of_the_error() -> None:
    text = f"{STAGE}java.lang.IllegalStateException: the disk is gone\n\tat a.b.C\nCaused by: x"
    condition = (
        "[DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Files were added\nby a concurrent update. SQLSTATE: 2D521\n\tat a"
    )

    assert reason_in(TOPIC, text) is None
    assert unknown_reason(TOPIC, RuntimeError(text)).message.startswith(
        "the records of topic p.d.t cannot be applied: Job aborted due to stage failure: Task 0 in stage 3.0"
    )
    assert unknown_reason(TOPIC, RuntimeError(condition)).message == (
        "the records of topic p.d.t cannot be applied: [DELTA_CONCURRENT_APPEND.WITHOUT_HINT] Files were added by a "
        "concurrent update."
    )
    assert unknown_reason(TOPIC, RuntimeError()).message == "the records of topic p.d.t cannot be applied: RuntimeError"


@pytest.mark.parametrize(("start", "is_lost"), [(3, True), (5, False), (EARLIEST, False)])
def test_records_are_lost_that_the_range_begins_with(
    start: int, is_lost: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reasons, "beginning_offsets", lambda *_: {0: 5})
    monkeypatch.setattr(reasons, "end_offsets", lambda *_: {0: 9})
    found = TopicRange(TOPIC, {0: OffsetRange(start, 9)})

    reason = known_reason(cast("SparkSession", None), {}, TOPIC, found, RuntimeError("KAFKA_DATA_LOSS"), same=True)

    assert isinstance(reason, IncompleteTopicError) == is_lost


def test_only_an_error_of_kafka_can_come_from_a_missing_topic() -> None:
    assert may_be_missing(RuntimeError("org.apache.kafka.common.errors.UnknownTopicOrPartitionException"))
    assert not may_be_missing(RuntimeError("[DIVIDE_BY_ZERO]"))
    assert not may_be_missing(SinkError("kafka"))
    assert not may_be_missing(KeyboardInterrupt("kafka"))
