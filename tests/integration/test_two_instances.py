"""Two instances of one prefix: the one that took over goes on, the other one ends and names it."""

from __future__ import annotations

import os
import signal
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from confluent_kafka import KafkaException, Producer

from tailrace.producer.app.capture import run
from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.app.snapshot_worker import open_reader
from tailrace.producer.app.startup import acquire_state
from tailrace.producer.errors import ProducerFencedError
from tailrace.producer.kafka.generation import Generation, announce, claim
from tailrace.producer.kafka.state_store import FORMAT_KEY, READERS_KEY
from tailrace.producer.kafka.topics import Topics, TopicSpec
from tailrace.producer.kafka.transactional_producer import TransactionalProducer, stream_transactional_id
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.runtime.stored_format import NewerFormatError
from tailrace.schemas.names import state_topic, watermarks_topic
from tests.support.capture import CaptureProcess, CaptureThread, configured, eventually, properties, verified_rows
from tests.support.incremental_checks import state_of
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 3000


def test_reader_of_an_older_instance_does_not_start(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It registers after the later instance has fenced it, and would fence the reader of that one."""
    config = configured(properties(mysql_server, kafka_broker, prefix, database.name))
    kafka = kafka_settings(config)
    Topics(kafka).ensure([TopicSpec(state_topic(prefix))])
    fences, producers = [], []
    for run_id in ("first", "second"):
        producer = TransactionalProducer(kafka, stream_transactional_id(prefix))
        producers.append(producer)
        own = announce(kafka, state_topic(prefix), Generation(0, run_id)).generation
        acquired = acquire_state(kafka, producer, MySqlOffset.from_json, lambda: own, prefix=prefix, readers=1)  # noqa: B023
        fences.append(acquired.fence)
    older, newer = fences
    newer = newer.moved_to_end(kafka, lambda: _commit(producers[1], prefix))
    with pytest.raises(ProducerFencedError):
        older.moved_to_end(kafka, lambda: _commit(producers[0], prefix))

    with pytest.raises(ProducerFencedError, match="after its session was replaced"):
        open_reader(config, kafka, older, {}, worker=0)
    open_reader(config, kafka, newer, {}, worker=0)
    winner = older.replacement(kafka, fenced=False)
    assert winner is not None
    assert (winner.run_id, winner.number, winner.pid) == ("second", 2, os.getpid())
    assert newer.replacement(kafka, fenced=True) is None
    for producer in producers:
        producer.close()


def test_paused_instance_ends_when_it_resumes(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """An instance is stopped by a signal during its snapshot, another one takes over, the first one continues."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(200))")
    database.executemany("INSERT INTO t VALUES (%s, %s)", [(n, f"v{n}") for n in range(ROWS)])
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with CaptureProcess(settings, tmp_path / "one") as first:
        eventually(lambda: _splits(kafka_broker, prefix) > 3, "the snapshot of the first instance")
        first.signal_group(signal.SIGSTOP)
        with CaptureProcess(settings, tmp_path / "two") as second:
            eventually(
                lambda: (state_of(kafka_broker, prefix, "generation") or {})["pid"] == second.pid, "the takeover"
            )
            first.signal_group(signal.SIGCONT)
            database.execute("UPDATE t SET v = CONCAT(v, '+') WHERE id % 5 = 0")
            assert first.wait() == 1
            eventually(lambda: _finished(kafka_broker, prefix, database), "the snapshot of the second instance")
            assert second.stop() == 0

    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))
    log = first.log.read_text()
    assert "another producer with this topic.prefix has taken over" in log
    assert "run one producer for one topic.prefix: stop the other one, or leave this one stopped" in log
    assert f'"pid":"{second.pid}"' in log


def test_idle_instance_whose_binlog_stream_the_other_one_ended_names_it(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """Both have the server id of the prefix: the server ends the stream of the first one, before Kafka fences it."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    (tmp_path / "one").mkdir()
    (tmp_path / "two").mkdir()
    with CaptureProcess(settings, tmp_path / "one") as first:
        eventually(lambda: _finished(kafka_broker, prefix, database), "the stream of the first instance")
        streams = _dumps(database)
        first.signal_group(signal.SIGSTOP)
        with CaptureProcess(settings, tmp_path / "two") as second:
            eventually(lambda: _dumps(database) - streams, "the stream of the second instance")
            first.signal_group(signal.SIGCONT)
            assert first.wait() == 1
            assert second.stop() == 0

    log = first.log.read_text()
    assert "another producer with this topic.prefix has taken over" in log
    assert f'"pid":"{second.pid}"' in log


@pytest.mark.parametrize("busy", [True, False], ids=["in-a-transaction", "idle"])
def test_instance_that_is_fenced_ends_also_before_the_other_one_has_its_generation(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path, *, busy: bool
) -> None:
    """It would start again otherwise, and fence the other one; an idle one would not notice it."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    kafka, topic = kafka_settings(configured(settings)), state_topic(prefix)
    with CaptureProcess(settings, tmp_path) as first:
        eventually(lambda: _finished(kafka_broker, prefix, database), "the stream of the first instance")
        second = announce(kafka, topic, Generation(0, "second")).generation
        producer = TransactionalProducer(kafka, stream_transactional_id(prefix))
        producer.init_transactions()
        if busy:
            database.execute("INSERT INTO t VALUES (1)")
        eventually(lambda: not first.running(), "the end of the first instance", 90)
        assert first.wait() == 1
        claim(producer, topic, second, 1)  # nobody has fenced it meanwhile
        producer.close()

    log = first.log.read_text()
    assert "another producer with this topic.prefix has taken over" in log
    assert f'"pid":"{os.getpid()}"' in log


def test_later_instance_goes_on_if_an_earlier_one_fences_it(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Also if an even later one announces itself and never comes: it has fenced nobody."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    kafka, topic = kafka_settings(configured(settings)), state_topic(prefix)
    Topics(kafka).ensure([TopicSpec(topic, config={"cleanup.policy": "compact"})])
    announce(kafka, topic, Generation(0, "earlier"))
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        earlier = TransactionalProducer(kafka, stream_transactional_id(prefix))
        earlier.init_transactions()
        database.execute("INSERT INTO t VALUES (1)")
        capture.wait_position(mysql_server)
        announce(kafka, topic, Generation(0, "never"))
        for stream in _dumps(database):
            database.execute(f"KILL {stream}")
        database.execute("INSERT INTO t VALUES (2)")
        capture.wait_position(mysql_server)
        earlier.close()
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"] for row in rows.values()} == {1, 2}


@pytest.mark.long
@pytest.mark.parametrize("records", [4, 500])
def test_producer_that_is_fenced_at_any_moment_of_its_transactions_says_so(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, records: int
) -> None:
    """The binding raises that while it calls back for the records that failed: once in ten times, as another error."""
    settings = kafka_settings(configured(properties(mysql_server, kafka_broker, prefix, "none")))
    Topics(settings).ensure([TopicSpec(prefix, partitions=4)])
    owner = TransactionalProducer(settings, prefix)
    owner.init_transactions()
    for number in range(25):
        later = TransactionalProducer(settings, prefix)
        fence = threading.Timer(0.02 + number / 500, later.init_transactions)
        fence.start()
        with pytest.raises(ProducerFencedError):  # noqa: PT012
            while True:
                owner.begin()
                for at in range(records):
                    owner.send(prefix, b"%d" % at, b"v" * 100)
                owner.commit()
        fence.join()
        owner.close()
        owner = later
    owner.close()


@pytest.mark.long
def test_of_many_takeovers_under_load_the_newer_instance_always_wins(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    """While rows are written all the time, and splits are read at first."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY AUTO_INCREMENT, v VARCHAR(200))")
    database.executemany("INSERT INTO t (v) VALUES (%s)", [(f"v{n}",) for n in range(ROWS)])
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    stop = threading.Event()

    def write() -> None:
        with mysql_server.connect() as session, session.cursor() as cursor:
            while not stop.wait(0.005):
                cursor.execute(f"INSERT INTO `{database.name}`.t (v) VALUES ('new'), ('new')")
                session.commit()

    writer = threading.Thread(target=write)
    writer.start()
    try:
        older = CaptureProcess(settings, tmp_path / "0")
        older.start()
        eventually(lambda: _splits(kafka_broker, prefix) > 3, "the snapshot of the first instance")
        for number in range(1, 13):
            newer = CaptureProcess(settings, tmp_path / str(number))
            newer.start()
            eventually(lambda: not older.running() or not newer.running(), "the end of one of them", 120)  # noqa: B023
            assert (older.wait(), newer.running()) == (1, True), newer.log.read_text()[-3000:]
            assert f'"pid":"{newer.pid}"' in older.log.read_text()
            older = newer
    finally:
        stop.set()
        writer.join()
    eventually(lambda: _finished(kafka_broker, prefix, database), "the rest of the binlog")
    assert older.stop() == 0
    rows = verified_rows(kafka_broker.bootstrap, prefix, database.name, "t")
    assert {row["id"]: row["v"] for row in rows.values()} == dict(database.execute("SELECT id, v FROM t"))


def test_program_that_cannot_read_the_state_does_not_end_one_that_can(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """As after a start of the version of yesterday by mistake: it is refused before it fences anything."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with CaptureThread(settings) as later:
        later.wait_snapshot()
        writer = Producer({"bootstrap.servers": kafka_broker.bootstrap})
        writer.produce(state_topic(prefix), b'{"format":99,"program":"9.9"}', FORMAT_KEY)
        assert writer.flush(60) == 0
        with pytest.raises(NewerFormatError, match="format 99, written by Tailrace 9"):
            run(configured(settings), threading.Event())
        database.execute("INSERT INTO t VALUES (1)")
        later.wait_position(mysql_server)


def _commit(producer: TransactionalProducer, prefix: str) -> None:
    producer.begin()
    producer.send(state_topic(prefix), READERS_KEY, b'{"count": 1}')
    producer.commit()


@pytest.mark.timeout(400)
def test_latest_generation_is_found_while_the_topic_is_written(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """A stream that stores offsets without a pause does not keep the readers of its own instance from starting."""
    settings = kafka_settings(configured(properties(mysql_server, kafka_broker, prefix, database.name)))
    topic = state_topic(prefix)
    Topics(settings).ensure([TopicSpec(topic)])
    owner = TransactionalProducer(settings, stream_transactional_id(prefix))
    owner.init_transactions()
    fence = claim(owner, topic, announce(settings, topic, Generation(0, "own")).generation, 0)
    owner.close()
    stop, busy = threading.Event(), Producer({"bootstrap.servers": kafka_broker.bootstrap, "linger.ms": 0})

    def write() -> None:
        while not stop.wait(0.02):
            busy.produce(topic, b"{}", b"offset")
            busy.poll(0)

    writer = threading.Thread(target=write)
    writer.start()
    try:
        fence.require_latest(settings)
        assert fence.replacement(settings, fenced=True) is None
    finally:
        stop.set()
        writer.join()
    busy.flush(60)


def _splits(broker: KafkaBroker, prefix: str) -> int:
    try:
        return len(read_topic(broker.bootstrap, watermarks_topic(prefix)))
    except (KeyError, KafkaException):  # it does not exist yet, or has no leader
        return 0


def _dumps(database: Database) -> set[int]:
    """Return the ids of the dump connections of the server."""
    statement = "SELECT id FROM information_schema.processlist WHERE command LIKE 'Binlog Dump%'"
    return {int(row[0]) for row in database.execute(statement)}


def _finished(broker: KafkaBroker, prefix: str, database: Database) -> bool:
    """Return whether the table only streams, and everything executed is read."""
    table, offset = state_of(broker, prefix, f"table/{database.name}.t"), state_of(broker, prefix, "offset")
    executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
    if table is None or offset is None:
        return False
    read = offset["position"]["gtids"]
    return table["mode"] == "streaming" and bool(database.execute("SELECT GTID_SUBSET(%s, %s)", (executed, read))[0][0])
