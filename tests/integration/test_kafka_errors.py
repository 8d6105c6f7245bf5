"""Errors of a real broker: each is reported with its own reason, and only those that a restart resolves are retried."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tailrace.producer.app.capture import run
from tailrace.producer.errors import (
    BatchRefusedError,
    ProducerFencedError,
    RecordRefusedError,
    RecordTooLargeError,
    SplitTooSlowError,
    TransactionTimeoutError,
)
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.snapshot import reader
from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.runtime.errors import KafkaUnavailableError, Retryable
from tests.embedded.kafka import KafkaBroker
from tests.support.capture import (
    CaptureProcess,
    CaptureThread,
    configured,
    eventually,
    properties,
    verified_rows,
)
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database


STOPS = {"event.processing.failure.handling.mode": "fail"}
_LARGE = 200_000
"""Rows of a source transaction that takes seconds to write."""


@pytest.fixture(scope="module")
def broker() -> Iterator[KafkaBroker]:
    """A broker that soon ends a transaction that exceeds its timeout, and allows less time than readers ask for."""
    own = {"transaction.abort.timed.out.transaction.cleanup.interval.ms": 200, "transaction.max.timeout.ms": 100_000}
    with KafkaBroker(settings=own) as broker:
        broker.create_topic("rows")
        broker.create_topic("narrow", settings={"max.message.bytes": "20000"})
        broker.create_topic("punctual", settings={"message.timestamp.before.max.ms": "1"})
        yield broker


def _settings(broker: KafkaBroker, timeout_ms: int = 60_000, **overrides: str) -> KafkaSettings:
    options = {name.replace("_", "."): value for name, value in overrides.items()}
    return KafkaSettings(broker.bootstrap, options, transaction_timeout_ms=timeout_ms)


@contextmanager
def _producer(settings: KafkaSettings, name: str) -> Iterator[TransactionalProducer]:
    with closing(TransactionalProducer(settings, name)) as producer:
        producer.init_transactions()
        producer.begin()
        yield producer


def _send_until_error(producer: TransactionalProducer) -> None:
    """Send until the client has noticed what the broker says."""
    until = time.monotonic() + 60
    while time.monotonic() < until:
        producer.send_all("rows", [(b"k", b"v")], None)
        time.sleep(0.02)
    raise AssertionError("no error")


NEXT_CALL = pytest.mark.parametrize(
    "next_call", [TransactionalProducer.commit, _send_until_error], ids=["commit", "records"]
)
"""What the producer does next: both must report the same reason."""


@NEXT_CALL
def test_record_that_its_topic_refuses(broker: KafkaBroker, next_call: Callable[[TransactionalProducer], None]) -> None:
    """The broker's reason is not hidden by the client's erroneous state; a restart does not help."""
    with _producer(_settings(broker, batch_size="50000"), "too-large") as producer:
        producer.send("narrow", b'{"id":7}', os.urandom(50_000))
        with pytest.raises(RecordRefusedError) as caught:
            next_call(producer)

    assert not isinstance(caught.value, Retryable)
    assert caught.value.context == {"topic": "narrow", "key": '{"id":7}', "size": "50008 bytes"}
    assert (caught.value.size, caught.value.key) == (50_008, b'{"id":7}')
    assert caught.value.hint.startswith("raise max.message.bytes of the topic above the size; for a row, excluding the")


@NEXT_CALL
def test_batch_that_its_topic_refuses(broker: KafkaBroker, next_call: Callable[[TransactionalProducer], None]) -> None:
    """Each of its records is small enough: none of them is blamed, and a smaller batch is taken."""
    records = [(b"%d" % number, os.urandom(5_000)) for number in range(30)]
    with _producer(_settings(broker), "batches") as producer:
        producer.send_all("narrow", records)
        with pytest.raises(BatchRefusedError) as caught:
            next_call(producer)
    assert isinstance(caught.value, Retryable)
    assert caught.value.batch_bytes == 1_000_000
    assert caught.value.context == {"topic": "narrow", "batch_bytes": 1_000_000}
    with _producer(replace(_settings(broker), batch_bytes=15_000), "batches") as producer:
        producer.send_all("narrow", records)
        producer.commit()
    assert [(record.key, record.value) for record in read_topic(broker.bootstrap, "narrow")][-30:] == records


def test_record_that_the_client_refuses(broker: KafkaBroker) -> None:
    """Topic, key, size and the property to raise."""
    with _producer(_settings(broker), "too-large") as producer, pytest.raises(RecordTooLargeError) as caught:
        producer.send_all("rows", [(b"\xff\x00", bytes(2_000_000))], None)

    assert caught.value.context == {"topic": "rows", "key": "0xff00", "size": "2000002 bytes"}
    assert caught.value.hint.startswith("raise producer.override.max.request.size")


def test_record_that_never_fits_the_queue(broker: KafkaBroker) -> None:
    """An error, and no endless wait for room."""
    settings = _settings(broker, queue_buffering_max_kbytes="1000", message_max_bytes="9000000")
    with _producer(settings, "too-large") as producer, pytest.raises(RecordTooLargeError) as caught:
        producer.send("rows", b"k", bytes(5_000_000))

    assert "producer.override.buffer.memory" in caught.value.hint


def test_queue_holds_the_largest_record(broker: KafkaBroker) -> None:
    """The queue follows the size of a record, unless it is set."""
    broker.create_topic("wide", settings={"max.message.bytes": "200000000"})
    settings = _settings(broker, message_max_bytes="100000000")
    with _producer(settings, "wide") as producer:
        producer.send("wide", b"k", bytes(70_000_000))
        producer.commit()

    assert [len(record.value or b"") for record in read_topic(broker.bootstrap, "wide")] == [70_000_000]


@NEXT_CALL
def test_transaction_that_the_broker_ends(
    broker: KafkaBroker, next_call: Callable[[TransactionalProducer], None]
) -> None:
    """A pause longer than the transaction timeout: a new producer with the id can continue."""
    # The client gives a record up after the same time: on a slow machine the broker must have it before that.
    with _producer(_settings(broker, timeout_ms=4000), "paused") as producer:
        producer.send("rows", b"k", b"v")
        time.sleep(6)
        with pytest.raises(ProducerFencedError) as caught:
            next_call(producer)

    assert isinstance(caught.value, Retryable)
    with _producer(_settings(broker), "paused") as successor:
        successor.send("rows", b"k", b"v")
        successor.commit()


def test_second_producer_with_the_id(broker: KafkaBroker) -> None:
    """The client's fatal error is reported as what it is, also by the records after it."""
    with _producer(_settings(broker), "twice") as first:
        first.send("rows", b"k", b"v")
        with _producer(_settings(broker), "twice"), pytest.raises(ProducerFencedError):
            _send_until_error(first)
        with pytest.raises(ProducerFencedError):
            first.send("rows", b"k", b"v")
        first.abort()  # raises nothing: the error before it is the one to report


def test_transaction_timeout_above_the_limit(broker: KafkaBroker) -> None:
    """The message names both settings."""
    with (
        closing(TransactionalProducer(_settings(broker, timeout_ms=901_000), "long")) as producer,
        pytest.raises(TransactionTimeoutError) as caught,
    ):
        producer.init_transactions()

    assert "transaction.max.timeout.ms" in caught.value.hint


def test_stop_shortens_the_waits(broker: KafkaBroker) -> None:
    """A broker that does not answer, and a stop: commit and registration end soon, and so does closing."""
    stop = threading.Event()
    with closing(TransactionalProducer(_settings(broker), "stopping", stop)) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send("rows", b"k", b"v")
        with broker.paused():
            stop.set()
            started = time.monotonic()
            with pytest.raises(KafkaUnavailableError):
                producer.commit()
            producer.close()
            assert time.monotonic() - started < 25
            started = time.monotonic()
            with (
                closing(TransactionalProducer(_settings(broker), "stopping", stop)) as late,
                pytest.raises(KafkaUnavailableError),
            ):
                late.init_transactions()
            assert time.monotonic() - started < 25


def test_close_with_an_open_transaction(broker: KafkaBroker) -> None:
    """Closing does not wait for a broker that does not answer."""
    with _producer(_settings(broker), "closing") as producer:
        producer.send("rows", b"k", b"v")
        with broker.paused():
            started = time.monotonic()
            producer.close()
            assert time.monotonic() - started < 25


def test_row_that_is_too_large_is_located(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Streamed and in a split: table, topic, key, size and position; the second start says the same."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v LONGBLOB)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, STOPS)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        capture.wait_position(mysql_server)
    database.execute("INSERT INTO t VALUES (7, REPEAT('x', 2000000))")

    for _ in range(2):
        with pytest.raises(RecordTooLargeError) as streamed:
            run(configured(settings), threading.Event())
        known = streamed.value.context
        assert (str(known["table"]), known["key"]) == (f"{database.name}.t", '{"id":7}')
        assert known["file"]
        assert known["pos"]
        assert known["gtid"]

    fresh = properties(mysql_server, kafka_broker, f"{prefix}b", database.name, STOPS)
    with pytest.raises(RecordTooLargeError) as read:
        run(configured(fresh), threading.Event())
    for expected in (f"{database.name}.t", '{"id":7}', "split", "producer.override.max.request.size"):
        assert expected in str(read.value)


def test_split_that_takes_too_long_is_given_up(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, monkeypatch: Any
) -> None:
    """Before the broker ends its transaction, with the table and what to do, at each start until there is more time."""
    database.execute("CREATE TABLE t (id ENUM('a', 'b') PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES ('a')")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, STOPS)
    expected = (
        f"{database.name}.t",
        "hint: raise tailrace.snapshot.transaction.timeout.ms",
        "rows_read: 1",
        "give it a primary key",
    )
    with monkeypatch.context() as patched:
        patched.setattr(reader, "_USABLE_SHARE", 0.0)
        for _ in range(2):
            with pytest.raises(SplitTooSlowError) as caught:
                # With hooks the readers are threads, so that they see the patch.
                run(configured(settings), threading.Event(), hooks=SnapshotHooks())
            assert [part for part in expected if part not in str(caught.value)] == []
    database.execute("INSERT INTO t VALUES ('b')")
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    assert len(verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")) == 2


def _ends_soon(producer: CaptureProcess) -> None:
    """SIGTERM ends the process with code 0, in less time than supervisors give it."""
    eventually(producer.handles_stop, "a process that handles SIGTERM")
    started = time.monotonic()
    assert producer.stop() == 0, producer.log.read_text()
    assert time.monotonic() - started < 10


@pytest.mark.long
def test_pause_of_the_producer_and_stop_of_its_servers(
    own_server: MySqlServer, own_database: Database, broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """A producer that is paused within a transaction continues; it ends on SIGTERM whatever does not answer."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    topic = f"{prefix}.{own_database.name}.t"
    large = {"snapshot.mode": "no_data", "max.batch.size": 10_000_000, "tailrace.commit.interval.ms": 2000}
    times = {**large, "producer.override.transaction.timeout.ms": 3000}
    with CaptureProcess(properties(own_server, broker, prefix, own_database.name, times), tmp_path) as producer:
        eventually(lambda: topic in broker.admin().list_topics(timeout=60).topics, "the first start")
        # While a source transaction is not written whole, the Kafka transaction stays open for the interval.
        own_database.execute("INSERT INTO t VALUES " + ",".join(f"({i})" for i in range(_LARGE)))
        eventually(lambda: read_topic(broker.bootstrap, topic, committed=False), "a record that is not committed")
        producer.pause(5)
        own_database.execute(f"INSERT INTO t VALUES ({_LARGE})")
        rows = eventually(lambda: _at_least(_LARGE + 1, read_topic(broker.bootstrap, topic)), "all rows")
        assert [record.json["after"]["id"] for record in rows] == list(range(_LARGE + 1))
        assert producer.running()

        with broker.paused():
            own_database.execute(f"INSERT INTO t VALUES ({_LARGE + 1})")
            _ends_soon(producer)
            producer.start()
            _ends_soon(producer)
        producer.start()
        eventually(lambda: _at_least(_LARGE + 2, read_topic(broker.bootstrap, topic)), "the row that was not committed")
        with own_server.paused():
            _ends_soon(producer)
            producer.start()
            _ends_soon(producer)


def test_stop_while_a_reader_waits_for_a_lock(
    own_server: MySqlServer, own_database: Database, broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """The SELECT of a split that does not return does not delay the end."""
    own_database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    own_database.execute("INSERT INTO t VALUES (1)")
    with (
        CaptureProcess(properties(own_server, broker, prefix, own_database.name), tmp_path) as producer,
        own_database.connect() as session,
        session.cursor() as cursor,
    ):
        waiting = "SELECT COUNT(*) FROM information_schema.PROCESSLIST WHERE STATE LIKE 'Waiting for table metadata%'"
        cursor.execute("LOCK TABLES t WRITE")
        eventually(lambda: own_database.execute(waiting)[0][0], "a reader that waits")
        _ends_soon(producer)


def _at_least(count: int, records: list[Read]) -> list[Read]:
    return records if len(records) >= count else []


def test_clock_that_differs_from_that_of_the_broker_is_named(broker: KafkaBroker) -> None:
    """A topic that takes records of the last millisecond alone, as one whose clock is behind refuses later ones."""
    with _producer(_settings(broker), "late") as producer:
        producer.begin()
        producer.send("punctual", b"k", b"v")
        with pytest.raises(KafkaUnavailableError, match="clock of this host") as caught:
            producer.commit()
    assert caught.value.hint.startswith(
        "correct the clocks, or raise message.timestamp.after.max.ms (this host is ahead)"
    )
    assert caught.value.context["topic"] == "punctual"


@pytest.mark.long
def test_log_has_few_lines_of_its_own_while_no_broker_answers(
    mysql_server: MySqlServer, prefix: str, database: Database, tmp_path: Path
) -> None:
    """The client of Kafka wrote dozens a second, in its own format."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with (
        KafkaBroker() as own,
        CaptureProcess(properties(mysql_server, own, prefix, database.name), tmp_path) as capture,
    ):
        eventually(lambda: "snapshot of table completed" in capture.log.read_text(), "the snapshot")
        own.stop()
        message = "Kafka: a connection failed"
        eventually(lambda: capture.log.read_text().count(message) > 1, "a second line about it, ten seconds later")
        assert [line for line in capture.log.read_text().splitlines() if not line.startswith("{")] == []


@pytest.mark.long
def test_a_schema_change_that_the_broker_refuses_is_left_out(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is refused with the transaction that it is in. The next session knows it, and the rows are written."""
    kafka_broker.create_topic(prefix, settings={"max.message.bytes": "40000"})
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name)) as capture:
        capture.wait_snapshot()
        database.execute(f"ALTER TABLE t ADD COLUMN v INT /* {os.urandom(50_000).hex()} */")
        database.execute("INSERT INTO t VALUES (1, 2)")
        capture.wait_position(mysql_server)
        database.execute("ALTER TABLE t ADD COLUMN w INT")
        capture.wait_position(mysql_server)

    assert [
        record.json["after"]["v"] for record in read_topic(kafka_broker.bootstrap, f"{prefix}.{database.name}.t")
    ] == [2]
    statements = [record.json["ddl"] for record in read_topic(kafka_broker.bootstrap, prefix)]
    assert "ALTER TABLE t ADD COLUMN w INT" in statements
    assert not [statement for statement in statements if "COLUMN v" in statement]
