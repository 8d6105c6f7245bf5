"""Takeover under load: a real Debezium connector writes and stops, and Tailrace continues in its topics."""

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
from tests.support.takeover_scenario import CONNECTOR, TakeoverScenario, identity, is_at_most_one_changed_key
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = pytest.mark.long


@pytest.fixture
def scenario(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> Iterator[TakeoverScenario]:
    """A filled table and a worker; the connector is not started yet."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        found = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings)
        found.fill()
        yield found


def test_stop_within_a_transaction_repeats_nothing(scenario: TakeoverScenario) -> None:
    """An orderly stop under load, in the middle of a rows event: the offset is taken over to the row."""
    with scenario.writer():
        scenario.start()
        eventually(scenario.flushed, "an offset after the connector's snapshot")
        with pytest.raises(TakeoverError, match="is running"):
            scenario.take_over()
        scenario.stop_within_an_event()
    last = len(scenario.records())

    tried = scenario.take_over(dry_run=True)
    assert not scenario.exists(state_topic(scenario.prefix))
    _check_without_gtids(scenario, tried)
    done = scenario.take_over()
    with pytest.raises(
        TakeoverError, match=r"(?s)Tailrace has state.*hint: continue with `tailrace produce`; or pass --f"
    ):
        scenario.take_over()

    assert done.stored_offset == tried.stored_offset
    assert done.stored_offset.transactions[0].rows == done.connector_offset.rows > 0
    assert [table.table for table in done.tables] == ["t"]
    assert [table.table for table in done.new_tables] == ["silent"]
    assert len(scenario.records()) == last
    scenario.run_tailrace()
    assert is_at_most_one_changed_key(scenario.require_equal())
    statements = [record.json for record in read_topic(scenario.broker.bootstrap, scenario.prefix)]
    dropped = f"DROP TABLE IF EXISTS `{scenario.database.name}`.`t`"
    assert [each["payload"]["ddl"] if "payload" in each else each["ddl"] for each in statements].count(dropped) == 1


def _check_without_gtids(scenario: TakeoverScenario, known: TakeoverResult) -> None:
    """Assert that the same offset without GTIDs, as stored before GTIDs were enabled, gives the same position."""
    topic = f"{scenario.prefix}-old-offsets"
    fields = {
        "file": known.connector_offset.file,
        "pos": known.connector_offset.pos,
        "event": known.connector_offset.events,
        "row": known.connector_offset.rows,
    }
    Topics(kafka_settings(configured(scenario.settings))).ensure([TopicSpec(topic)])
    producer = Producer({"bootstrap.servers": scenario.broker.bootstrap})
    producer.produce(topic, orjson.dumps(fields), orjson.dumps([CONNECTOR, {"server": scenario.prefix}]))
    assert producer.flush(30) == 0

    found = scenario.take_over(dry_run=True, offset_topic=topic)

    assert found.stored_offset == known.stored_offset


def test_kill_under_load_repeats_only_what_was_not_flushed(scenario: TakeoverScenario) -> None:
    """SIGKILL of the worker: its status is still RUNNING, and its last records are after its last offset."""
    with scenario.writer():
        scenario.start()
        eventually(scenario.flushed, "an offset behind Debezium's snapshot")
        written = len(scenario.records())
        eventually(lambda: len(scenario.records()) > written + 500, "more of Debezium's records")
        scenario.worker.kill()
        theirs = [r for r in scenario.records() if r.value is not None and r.json["op"] != "r"]
        offset = scenario.offset()
        with pytest.raises(TakeoverError, match="--stopped"):
            scenario.take_over()
        done = scenario.take_over(stopped=True)
        assert done.connector_offset == offset

    scenario.run_tailrace()

    repeated = {identity(r) for r in scenario.require_equal()}
    flushed = GtidSet.parse(offset.gtids)
    in_order = sorted(
        theirs, key=lambda r: (r.json["source"]["file"], r.json["source"]["pos"], r.json["source"]["row"])
    )
    beyond = [identity(r) for r in in_order if not flushed.has(r.json["source"]["gtid"])]
    # Done rows of the transaction that the offset is in are not repeated; everything after it is.
    assert set(beyond[len(beyond) - len(repeated) :]) == repeated
    assert repeated
    if not offset.in_transaction:
        assert set(beyond) == repeated


def test_force_replaces_existing_state(scenario: TakeoverScenario) -> None:
    """--force replaces the stored state of Tailrace, including its tables, in one transaction."""
    with scenario.writer():
        scenario.start()
    scenario.stop()
    other = {"snapshot.mode": "no_data", "tailrace.missing.state.handling.mode": "snapshot"}
    with CaptureThread({**scenario.settings, **other}) as capture:
        capture.wait_position(scenario.server)
    kafka = kafka_settings(configured(scenario.settings))

    done = scenario.take_over(force=True)

    stored = states.read(kafka, state_topic(scenario.prefix), MySqlOffset.from_json)
    assert stored.offset == done.stored_offset
    modes = {name: table.mode for name, table in stored.tables.items()}
    assert modes == {str(table): "streaming" for table in done.tables}
    scenario.run_tailrace()
    assert is_at_most_one_changed_key(scenario.require_equal())
