"""Moving house from other houses: a standalone worker's file, transaction metadata, records with schemas."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from tests.debezium_parity.connect import ConnectWorker
from tests.support.capture import eventually, properties
from tests.support.connect import DistributedWorker
from tests.support.takeover_scenario import TakeoverScenario, is_ours
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = pytest.mark.long


def test_from_the_file_of_a_standalone_worker(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """Its offsets stand in no topic; the worker ends in order and saves its file."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with ConnectWorker(kafka_broker.bootstrap) as worker:
        house = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings)
        house.fill()
        with house.writer():
            house.start()
            house.stop_within_an_event()

        done = house.take_over()

    assert done.log.rows == done.offset.rows > 0
    assert any("in a file" in note for note in done.notes)
    house.go_on()
    assert house.require_equal() == []


def _told(house: TakeoverScenario) -> Mapping[str, list[Any]]:
    """Return what the transaction topic holds, by transaction."""
    told: dict[str, list[Any]] = defaultdict(list)
    for record in read_topic(house.broker.bootstrap, f"{house.prefix}.transaction"):
        told[record.json["id"]].append(record.json)
    return told


def _check_numbers(house: TakeoverScenario, *, taken_up: str) -> None:
    """Assert that the records of each transaction are numbered without a gap, and that its END counts them all.

    The connector itself repeats an END when it is stopped right behind it and goes on: only transactions that Tailrace
    wrote records of are held to one.
    """
    told = _told(house)
    numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    writers: dict[str, set[bool]] = defaultdict(set)
    for record in house.records():
        if record.value is not None and record.json["op"] != "r":
            block = record.json["transaction"]
            numbers[block["id"]].append((block["total_order"], block["data_collection_order"]))
            writers[block["id"]].add(is_ours(record))
    assert [gtid for gtid, both in writers.items() if len(both) == 2] == [taken_up]
    for gtid, found in numbers.items():
        assert sorted(found) == [(n, n) for n in range(1, len(found) + 1)], gtid
        if True in writers[gtid]:
            assert [value["status"] for value in told[gtid]] == ["BEGIN", "END"], gtid
            assert told[gtid][1]["event_count"] == len(found)
            [collection] = told[gtid][1]["data_collections"]
            assert collection == {"data_collection": f"{house.database.name}.t", "event_count": len(found)}


def test_the_numbers_within_a_transaction_go_on(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """With transaction metadata, the connector's counts are taken over with the place."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    changes = {"provide.transaction.metadata": "true"}
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        house = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings, changes)
        house.fill()
        with house.writer():
            house.start()
            house.stop_within_an_event()

        done = house.take_over()

    assert sum(done.log.counts.values()) > 0
    assert done.log.counts == done.offset.counts
    house.go_on()
    assert house.require_equal() == []
    _check_numbers(house, taken_up=done.log.transaction)


def test_records_with_schemas_go_on_with_the_same_schemas(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """JSON with schemas: what a reader knows of the topic holds for the heir's records, to the byte."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    changes = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        house = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings, changes)
        house.fill()
        with house.writer():
            house.start()
            house.stop_within_an_event()

        house.take_over()

    house.go_on()
    assert house.require_equal() == []
    schemas: dict[bool, set[bytes]] = {True: set(), False: set()}
    for whole, plain in zip(house.raw(), house.records(), strict=True):
        if whole.value is not None:
            assert whole.key is not None
            key, value = (orjson.dumps(orjson.loads(part)["schema"]) for part in (whole.key, whole.value))
            schemas[is_ours(plain)].add(key + value)
    assert len(schemas[True]) == 1
    assert schemas[True] == schemas[False]


def test_a_quiet_stop_with_transaction_metadata(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """The last record is an END, whose offset is still that of the transaction: all of it is done but its END."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    changes = {"provide.transaction.metadata": "true"}
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        house = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings, changes)
        house.fill()
        with house.writer():
            house.start()
        executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
        last = re.sub(r":.*-", ":", executed)
        eventually(lambda: [value["status"] for value in _told(house)[last]] == ["BEGIN", "END"], "the last END")
        house.stop()

        done = house.take_over()

    assert (done.log.transaction, done.log.rows) == (last, 0)
    house.go_on()
    assert house.require_equal() == []
    _, end, incremental = _told(house)[last]  # as the connector itself does when it goes on
    assert (incremental["status"], incremental["event_count"], incremental["data_collections"]) == (
        "END",
        end["event_count"],
        end["data_collections"],
    )
