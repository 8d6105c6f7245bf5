"""Why a table cannot go on: errors of Spark and Kafka as reasons that name the cause and the remedy."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING, Final

from py4j.protocol import Py4JError  # type: ignore[import-untyped]

from tailrace.runtime.errors import KafkaRequestError, TailraceError
from tailrace.spark_consumer.errors import (
    BadRecord,
    BadRecordError,
    IncompleteTopicError,
    NewTopicError,
    SinkError,
    TransformError,
)
from tailrace.spark_consumer.java_errors import JavaError, ends_executors, java_errors, summary
from tailrace.spark_consumer.sink.ledger import TargetBehindError
from tailrace.spark_consumer.source.kafka import NEW_TOPIC_REMEDY
from tailrace.spark_consumer.source.kafka_admin import beginning_offsets, end_offsets
from tailrace.spark_consumer.source.ranges import EARLIEST

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.source.ranges import TopicRange

_DENIED: Final = tuple(f"org.apache.kafka.common.errors.{name}AuthorizationException" for name in ("Topic", "Group"))
_OWN: Final = re.compile(r"(?:a value|a key|the value that ALTER TABLE gave) [^\n]*?(?=: |\n|$)")
"""What the consumer raises for a value; the value itself may follow, for the log."""
_RAISED: Final = re.compile(r"a record cannot be decoded: topic (\S+), partition (\d+), offset (\d+): ([^\n]*)")
"""The message that the decoder raises (json_decoder.failure_prefix)."""


class LostEndError(IncompleteTopicError):
    """Kafka has lost the last records of a topic that is still the same one."""


def ends_too_early(topic: str, ends: Mapping[int, int], read: Mapping[int, int], *, same: bool) -> TailraceError:
    """Return the error for partitions that end before offsets that were read, or that the target has applied.

    ``same``: the topic has the id of that which was read. Otherwise it is another one of that name.
    """
    offsets = {"ends": _listed(ends), "read_to": _listed({number: read[number] for number in ends})}
    if same:
        return LostEndError(
            f"topic {topic} has lost its last records: it ends before offsets that were read, and is the same one",
            hint="stop the producer, delete the topic, move the target table away, and start the producer with "
            "tailrace.missing.topic.handling.mode=snapshot; set unclean.leader.election.enable=false",
            **offsets,
        )
    return NewTopicError(
        f"topic {topic} was deleted and created again: it ends before the offsets that were read",
        hint=NEW_TOPIC_REMEDY,
        **offsets,
    )


def known_reason(
    spark: SparkSession,
    source: Mapping[str, str],
    topic: str,
    found: TopicRange | None,
    error: BaseException,
    *,
    same: bool,
) -> TailraceError | None:
    """Return why a table cannot process a range; None if an error of Spark or Kafka is not known.

    ``source`` are the options of the Kafka source. ``same``: the topic has the id of that which was read.
    """
    record = bad_record(error, topic, found)
    known = _reason(topic, error) if record is None else _bad(record)
    if known is None and found is not None:  # facts decide: an error can say it in many ways
        known = _lost(spark, source, found, same=same)
    if known is not None:
        known.__cause__ = error
    return known


def _reason(topic: str, error: BaseException) -> TailraceError | None:
    """Return what the exceptions of an error say about a table; None if it is not known."""
    for each in java_errors(error):
        raised = _OWN.match(each.raised)
        if raised is not None:
            return SinkError(
                " ".join(raised[0].split()),
                hint="change the value at the source, or the column of the target so that it takes the value",
            )
        if each.is_any(*_DENIED):
            return _denied(topic, each)
    return None


def _denied(topic: str, error: JavaError) -> KafkaRequestError:
    cause = error.classes[0].rpartition(".")[2]
    others: list[str] = []
    if error.is_any(_DENIED[0]):
        others = sorted(map(str, error.exception.unauthorizedTopics()))
    if others and topic not in others:
        return KafkaRequestError(
            f"the records of topic {topic} cannot be applied: Kafka denies access to {', '.join(others)}",
            hint="grant READ, WRITE and DESCRIBE on that topic to the user of this client",
            cause=cause,
        )
    return KafkaRequestError(
        f"Kafka denies reading topic {topic}",
        hint="grant READ and DESCRIBE on the topic, and READ on the consumer group, to the user of this client",
        cause=cause,
    )


def _bad(record: BadRecord) -> BadRecordError:
    found = BadRecordError(
        f"a record cannot be decoded: topic {record.topic}, partition {record.partition}, offset {record.offset}: "
        f"{record.reason}",
        hint="let only the producer write to the topic; to go on without such records, set errors.tolerance=all "
        "and errors.deadletterqueue.topic.name",
    )
    found.record = record
    return found


def unknown_reason(topic: str, error: BaseException) -> SinkError:
    """Return the error for one that is not known: it says what the error is, and the log has its text."""
    if ends_executors(error):
        return SinkError(
            f"the records of topic {topic} cannot be applied: {summary(error)}: tasks ran out of memory, or lost their "
            "executors",
            hint="give executors more memory (spark.executor.memory), or leave out the column that needs it with a "
            "transform; the log above has the complete error",
        )
    return SinkError(
        f"the records of topic {topic} cannot be applied: {summary(error)}",
        hint="read the log above for the complete error, and remove its cause",
    )


def _lost(spark: SparkSession, source: Mapping[str, str], found: TopicRange, *, same: bool) -> TailraceError | None:
    """Return the error for records of a range that Kafka does not have (any more); None if it has all of them."""
    ends = _offsets(end_offsets, spark, source, found)
    begins = _offsets(beginning_offsets, spark, source, found)
    if not (ends.keys() == begins.keys() == found.partitions.keys()):
        return None
    beyond = {number: ends[number] for number, each in found.partitions.items() if each.end > ends[number]}
    removed = {number: begins[number] for number, each in found.partitions.items() if 0 <= each.start < begins[number]}
    if beyond:
        return ends_too_early(found.topic, beyond, found.ends, same=same)
    if not removed:
        return None
    return IncompleteTopicError(
        f"topic {found.topic} has lost records that were not read: Kafka has removed them",
        hint="set failOnDataLoss=false to go on without them, and send a signal for an incremental snapshot of the "
        "table; keep the topic for longer (retention.ms)",
        first_offsets=_listed(removed),
        not_read_from=_listed({number: found.partitions[number].start for number in removed}),
    )


def begin_with_what_is_left(
    spark: SparkSession, source: Mapping[str, str], topic: str, error: TargetBehindError
) -> None:
    """Let a table that may lack rows go back to the first record that Kafka has, if it begins before that."""
    begins = error.from_beginning
    try:
        first = beginning_offsets(spark, source, topic, begins) if begins else {}
    except Py4JError:
        return  # the reading of this table tells what is wrong with its topic
    error.starts |= {str(number): EARLIEST for number, offset in begins.items() if first.get(number, 0) > offset}


def _listed(offsets: Mapping[int, int]) -> str:
    return ", ".join(f"partition {number}: {offset}" for number, offset in sorted(offsets.items()))


def _offsets(
    read: Callable[..., dict[int, int]], spark: SparkSession, source: Mapping[str, str], found: TopicRange
) -> dict[int, int]:
    try:
        return read(spark, source, found.topic, found.partitions)
    except Py4JError:
        return {}


def bad_record(error: BaseException, topic: str, within: TopicRange | None = None) -> BadRecord | None:
    """Return the record of a topic, and of the range that was read, that an error is about; None if it is about none.

    A text that quotes a value can say anything. So only an exception of the decoder itself counts, whose message begins
    as the decoder begins it, and an error that has the record. A transform can fail for a row that was held since an
    earlier range.
    """
    own = next(filter(None, _records(error)), None)
    found = own or next(filter(None, (_read(each.raised) for each in java_errors(error))), None)
    if found is None or found.topic != topic:
        return None
    if own is None and within is not None:
        read = within.partitions.get(found.partition)
        if within.topic != topic or read is None or not read.start <= found.offset < read.end:
            return None
    return found


def _records(error: BaseException | None) -> Iterator[BadRecord | None]:
    while error is not None:
        if isinstance(error, BadRecordError | TransformError):
            yield error.record
        error = error.__cause__


def _read(message: str) -> BadRecord | None:
    found = _RAISED.match(message)
    return None if found is None else BadRecord(found[1], int(found[2]), int(found[3]), found[4])


def position(error: TailraceError) -> dict[str, object]:
    """Return the position of the record that an error is about. Its value stays in the topic: others read this."""
    named = error.record if isinstance(error, BadRecordError | TransformError) else None
    return {} if named is None else {"partition": named.partition, "offset": named.offset}
