"""The stream's Kafka transaction: when it opens and commits, and what is stored with it."""

from __future__ import annotations

from typing import Any

import orjson
import pytest
from structlog.testing import capture_logs

from tailrace.producer.errors import BatchRefusedError, RecordRefusedError, RecordTooLargeError
from tailrace.producer.kafka.delivery import RefusedSizes
from tailrace.producer.kafka.state_store import OFFSET_KEY, StoredOffset
from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.binlog_events import PositionAdvanced, QueryEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.split import Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.ops.status import Status
from tailrace.producer.streaming import stream_transaction as module
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import CommitSettings, StreamTransaction
from tests.support.stream import FILE, SERVER, START, FakeProducer, stream_transaction

TABLE = TableId("db", "t")


class Heartbeat:
    """A heartbeat that is due when a test says so."""

    due = False

    def next_record(self) -> tuple[str, bytes, bytes]:
        self.due = False
        return "beats", b"k", b"v"


class Clock:
    """The time, moved by a test."""

    def __init__(self) -> None:
        self.now = 100.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    monkeypatch.setattr(module, "time", clock)
    return clock


def stored_offset() -> StoredOffset:
    return StoredOffset(START)


def transaction(producer: FakeProducer, heartbeat: Heartbeat | None = None) -> StreamTransaction:
    return stream_transaction(producer, stored=stored_offset(), heartbeat=heartbeat, max_records=3)  # type: ignore[arg-type]


def offsets(producer: FakeProducer) -> list[dict[str, Any]]:
    """Return the stored offset of each committed transaction; it is the last record."""
    found = []
    for records in producer.committed:
        topic, key, value = records[-1]
        assert (topic, key) == ("p.tailrace.state", OFFSET_KEY)
        assert value is not None
        found.append(orjson.loads(value))
    return found


def test_a_record_opens_the_transaction_and_is_committed_with_the_offset(clock: Clock) -> None:
    producer = FakeProducer()
    stream = transaction(producer)
    stream.offset.begin(TransactionBegin(f"{SERVER}:5", FILE, 100, 180, 7, 0, 1, 1))
    stream.offset.done(QueryEvent(f"{SERVER}:5", "d", "", FILE, 150, 180, 7, 1, 1, True, number=2))
    assert stream.records == 0

    stream.send("t", b"k", b"v")
    assert stream.records == 1
    stream.commit()

    assert stream.records == 0
    assert producer.committed[0][0] == ("t", b"k", b"v")
    [offset] = offsets(producer)
    [mark] = offset["transactions"]
    assert (offset["position"]["pos"], mark["gtid"], mark["number"]) == (100, f"{SERVER}:5", 2)


def test_commit_without_anything_new_does_nothing(clock: Clock) -> None:
    producer = FakeProducer()
    stream = transaction(producer)

    stream.commit()

    assert producer.committed == []


def test_records_are_committed_after_the_interval_or_when_there_are_enough(clock: Clock) -> None:
    producer = FakeProducer()
    stream = transaction(producer)
    stream.send("t", b"1", b"v")
    clock.now += 0.9
    stream.commit_if_due()
    assert producer.committed == []

    clock.now += 0.1
    stream.commit_if_due()
    assert len(producer.committed) == 1

    stream.send_all("t", [(b"1", b"v"), (b"2", b"v"), (b"3", b"v")], None)
    assert stream.full
    stream.commit_if_due()
    assert len(producer.committed) == 2
    assert not stream.full


def test_records_are_committed_when_the_log_is_caught_up(clock: Clock) -> None:
    producer = FakeProducer()
    stream = transaction(producer)
    assert stream.seconds_until_commit() == 1.0
    stream.send("t", b"1", b"v")
    assert stream.seconds_until_commit() == 0.0

    stream.commit_if_due(caught_up=True)

    assert len(producer.committed) == 1
    stream.commit_if_due(caught_up=True)
    assert len(producer.committed) == 1


def test_a_source_transaction_is_not_cut_where_the_log_pauses(clock: Clock) -> None:
    producer = FakeProducer()
    stream = transaction(producer)
    stream.offset.begin(TransactionBegin(f"{SERVER}:5", FILE, 100, 180, 7, 0, 1, 1))
    stream.send("t", b"1", b"v")
    clock.now += 0.25
    assert stream.seconds_until_commit() == pytest.approx(0.75)
    stream.commit_if_due(caught_up=True)
    assert producer.committed == []

    clock.now += 0.75
    stream.commit_if_due()
    assert len(producer.committed) == 1


def test_the_stream_reads_for_as_long_as_a_commit_takes(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    producer = FakeProducer()
    stream = transaction(producer)
    commit = producer.commit

    def slow_commit() -> None:
        clock.now += 0.25
        commit()

    monkeypatch.setattr(producer, "commit", slow_commit)
    stream.send("t", b"1", b"v")
    stream.commit_if_due(caught_up=True)
    stream.send("t", b"2", b"v")
    clock.now += 0.125
    assert stream.seconds_until_commit() == pytest.approx(0.125)
    stream.commit_if_due(caught_up=True)
    assert len(producer.committed) == 1

    clock.now += 0.125
    stream.commit_if_due(caught_up=True)
    assert len(producer.committed) == 2


def test_an_offset_without_records_is_stored_less_often(clock: Clock) -> None:
    producer = FakeProducer()
    stream = transaction(producer)
    stream.offset.advance(PositionAdvanced(FILE, 500, 0))
    stream.commit_if_due()
    assert producer.committed == []

    clock.now += 1.0
    stream.commit_if_due()
    stream.commit_if_due()

    assert [offset["position"]["pos"] for offset in offsets(producer)] == [500]


def test_a_due_heartbeat_is_committed_without_records(clock: Clock) -> None:
    producer, heartbeat = FakeProducer(), Heartbeat()
    stream = transaction(producer, heartbeat)
    heartbeat.due = True

    stream.commit_if_due()
    stream.commit_if_due()

    assert [records[0] for records in producer.committed] == [("beats", b"k", b"v")]


def test_backfill_counts_are_stored_when_they_change(clock: Clock) -> None:
    """The offset's record does not grow with splits: each count has its own, written when it changed."""
    producer, registry = FakeProducer(), SplitRegistry()
    table = registry.track(TABLE, TableMode.WAITING)
    registry.start_planning(TABLE)
    registry.set_range(TABLE, None)
    splits = [Split(TABLE, "s", n, Range((n,), (n + 1,)), (n,), (n + 1,)) for n in range(2)]
    for split in splits:
        registry.open(split)
        registry.commit(split, START, START._replace(pos=1000))
    stream = stream_transaction(producer, registry)

    registry.count_backfill(table.opened[splits[1].id])
    registry.count_backfill(table.opened[splits[1].id])
    stream.offset.commit(TransactionCommit(f"{SERVER}:1", FILE, 900, 0))
    stream.commit()
    stream.offset.commit(TransactionCommit(f"{SERVER}:2", FILE, 950, 0))
    stream.commit()

    states = [[(key, value) for _, key, value in records[:-1]] for records in producer.committed]
    assert states == [[(b"backfill/db.t:s:1", b'{"count":2}')], []]
    assert "backfill" not in offsets(producer)[0]


class Client(FakeProducer):
    """Refuses large records at once, and one record with the answer to an earlier one."""

    def send(self, topic: str, key: bytes | None, value: bytes | None, *_: Headers | None, partition: int = -1) -> None:
        if value == b"late":
            raise RecordRefusedError("a record is larger than its topic accepts", topic="p.db.t")
        if len(value or b"") > 100:
            raise RecordTooLargeError("a record is larger than the Kafka client may send", size="101 bytes")
        super().send(topic, key, value, partition=partition)


def test_a_record_that_only_tells_of_something_is_left_out_if_it_is_too_large() -> None:
    """For the client, or as the broker has said in a session before; what it answers to another record is raised."""
    producer = Client()
    settings = CommitSettings("p", 1.0, 1000, {"p": 50})
    offset = StreamOffset(StoredOffset(START))
    transaction = StreamTransaction(producer, offset, SplitRegistry(), settings=settings, status=Status())  # type: ignore[arg-type]

    with capture_logs() as logs:
        for size in (1, 49, 101):
            transaction.tell("p", b"k", b"v" * size, statement="ALTER")
            transaction.tell("other", b"k", b"v" * size)

    assert [(topic, len(value or b"")) for topic, _, value in producer.open] == [("p", 1), ("other", 1), ("other", 49)]
    assert [(entry["topic"], entry["size"], entry.get("statement")) for entry in logs] == [
        ("p", "50 bytes", "ALTER"),
        ("p", "102 bytes", "ALTER"),
        ("other", "101 bytes", None),
    ]
    with pytest.raises(RecordRefusedError):
        transaction.tell("other", b"k", b"late")
    with pytest.raises(RecordTooLargeError, match="its topic accepts"):
        transaction.send("p", b"k", b"v" * 50)


@pytest.mark.parametrize(("topic", "learned"), [("p", True), ("p.tailrace.state", True), ("p.db.t", False)])
def test_a_session_knows_what_was_refused_before(topic: str, learned: bool) -> None:
    """Once for each size, so that what cannot be left out stops the producer. The table of a row is in error."""
    sizes = RefusedSizes()
    error = RecordRefusedError("a record is larger than its topic accepts", topic=topic)
    for size, smaller in ((70, True), (70, False), (80, False), (60, True)):
        error.size = size
        assert sizes.learn(error, {"p", "p.tailrace.state"}) == (learned and smaller)
    assert sizes.records == ({topic: 60} if learned else {})
    assert sizes.batch_bytes is None


def test_a_refused_batch_makes_batches_smaller_and_blames_no_record() -> None:
    sizes = RefusedSizes()
    error = BatchRefusedError("a batch of records is larger than its topic accepts", topic="p")
    for error.batch_bytes, smaller in ((1000, 250), (250, 62), (1, 1)):
        assert sizes.learn(error, {"p"})
        assert sizes.batch_bytes == smaller
    assert not sizes.records
