"""Moving house under load: a real Debezium connector writes, ends in some way, and Tailrace goes on in its topics."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import orjson
import pytest
from confluent_kafka import Producer

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.errors import TakeoverError
from tailrace.producer.kafka import state_store as states
from tailrace.producer.kafka.topics import Topics, TopicSpec
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.takeover.takeover import TakeoverResult
from tailrace.schemas.names import state_topic
from tests.support.capture import CaptureThread, configured, eventually, properties
from tests.support.connect import DistributedWorker
from tests.support.takeover_scenario import NAME, TakeoverScenario, identity

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = pytest.mark.long


@pytest.fixture
def house(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> Iterator[TakeoverScenario]:
    """A filled table and a worker, the connector not yet started."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        found = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings)
        found.fill()
        yield found


def test_stopped_within_a_transaction_and_nothing_is_doubled(house: TakeoverScenario) -> None:
    """An orderly stop under load, in the middle of a rows event: event and row are taken over to the row."""
    with house.writer():
        house.start()
        with pytest.raises(TakeoverError, match="was last said to be running"):
            house.take_over()
        house.stop_within_an_event()
    last = len(house.records())

    tried = house.take_over(dry_run=True)
    assert not house.exists(state_topic(house.prefix))
    _check_without_gtids(house, tried)
    done = house.take_over()
    with pytest.raises(TakeoverError, match="there is state of Tailrace"):
        house.take_over()

    assert done.log == tried.log
    assert done.log.rows == done.offset.rows > 0
    assert [table.table for table in done.adopted] == ["t"]
    assert [table.table for table in done.unread] == ["silent"]
    assert len(house.records()) == last
    house.go_on()
    assert house.require_equal() == []


def _check_without_gtids(house: TakeoverScenario, known: TakeoverResult) -> None:
    """Assert that the same offset without GTIDs, as from before they were on, leads to the same place."""
    topic = f"{house.prefix}-old-offsets"
    fields = {
        "file": known.offset.file,
        "pos": known.offset.pos,
        "event": known.offset.events,
        "row": known.offset.rows,
    }
    Topics(kafka_settings(configured(house.settings))).ensure([TopicSpec(topic)])
    producer = Producer({"bootstrap.servers": house.broker.bootstrap})
    producer.produce(topic, orjson.dumps(fields), orjson.dumps([NAME, {"server": house.prefix}]))
    assert producer.flush(30) == 0

    found = house.take_over(dry_run=True, offset_topic=topic)

    assert found.log == known.log


def test_killed_under_load_and_only_what_was_not_flushed_is_doubled(house: TakeoverScenario) -> None:
    """SIGKILL of the worker: its status still says RUNNING, and its last records are beyond its last offset."""
    with house.writer():
        house.start()
        eventually(house.flushed, "an offset behind Debezium's snapshot")
        written = len(house.records())
        eventually(lambda: len(house.records()) > written + 500, "more of Debezium's records")
        house.worker.kill()
        theirs = [r for r in house.records() if r.value is not None and r.json["op"] != "r"]
        offset = house.offset()
        with pytest.raises(TakeoverError, match="--stopped"):
            house.take_over()
        done = house.take_over(stopped=True)
        assert done.offset == offset

    house.go_on()

    repeated = {identity(r) for r in house.require_equal()}
    flushed = GtidSet.parse(offset.gtids)
    in_order = sorted(
        theirs, key=lambda r: (r.json["source"]["file"], r.json["source"]["pos"], r.json["source"]["row"])
    )
    beyond = [identity(r) for r in in_order if not flushed.has(r.json["source"]["gtid"])]
    # Of the transaction the offset is within, what was done is not repeated; of the rest, all is.
    assert set(beyond[len(beyond) - len(repeated) :]) == repeated
    assert repeated
    if not offset.within:
        assert set(beyond) == repeated


def test_forced_over_existing_state(house: TakeoverScenario) -> None:
    """--force replaces what Tailrace had stored, its tables included, in one transaction."""
    with house.writer():
        house.start()
    house.stop()
    with CaptureThread({**house.settings, "snapshot.mode": "no_data"}) as capture:
        capture.wait_position(house.server)
    kafka = kafka_settings(configured(house.settings))

    done = house.take_over(force=True)

    stored = states.read(kafka, state_topic(house.prefix), MySqlOffset.from_json)
    assert stored.log == done.log
    assert {name: table.phase for name, table in stored.tables.items()} == {str(table): "log" for table in done.adopted}
    house.go_on()
    assert house.require_equal() == []
