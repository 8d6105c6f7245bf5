"""Variants of a takeover: the file of a standalone worker, transaction metadata, records with schemas."""

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
from tests.support.takeover_scenario import TakeoverScenario, is_at_most_one_changed_key, is_ours
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = pytest.mark.long


def test_from_the_file_of_a_standalone_worker(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """Its offsets are in no topic; the worker saves its file when it stops."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with ConnectWorker(kafka_broker.bootstrap) as worker:
        scenario = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings)
        scenario.fill()
        with scenario.writer():
            scenario.start()
            scenario.stop_within_an_event()

        done = scenario.take_over()

    assert done.stored_offset.transactions[0].rows == done.connector_offset.rows > 0
    assert any("an offset file has no status" in note for note in done.notes)
    scenario.run_tailrace()
    assert is_at_most_one_changed_key(scenario.require_equal())


def _transaction_records(scenario: TakeoverScenario) -> Mapping[str, list[Any]]:
    """Return the records of the transaction topic, by transaction."""
    transactions: dict[str, list[Any]] = defaultdict(list)
    for record in read_topic(scenario.broker.bootstrap, f"{scenario.prefix}.transaction"):
        transactions[record.json["id"]].append(record.json)
    return transactions


def _check_numbers(scenario: TakeoverScenario, *, taken_up: str) -> None:
    """Assert that the records of each transaction are numbered without a gap, and that its END counts them all.

    The connector itself repeats an END if it is stopped right after it and resumes. So only transactions with records
    of Tailrace must have exactly one END.
    """
    transactions = _transaction_records(scenario)
    numbers: dict[str, list[tuple[int, int]]] = defaultdict(list)
    writers: dict[str, set[bool]] = defaultdict(set)
    for record in scenario.records():
        if record.value is not None and record.json["op"] != "r":
            block = record.json["transaction"]
            numbers[block["id"]].append((block["total_order"], block["data_collection_order"]))
            writers[block["id"]].add(is_ours(record))
    # The connector can stop after the last row of its transaction: then only the END is Tailrace's.
    assert [gtid for gtid, both in writers.items() if len(both) == 2] in ([taken_up], [])
    for gtid, found in numbers.items():
        assert sorted(found) == [(n, n) for n in range(1, len(found) + 1)], gtid
        if True in writers[gtid] or gtid == taken_up:
            assert [value["status"] for value in transactions[gtid]] == ["BEGIN", "END"], gtid
            assert transactions[gtid][1]["event_count"] == len(found)
            [collection] = transactions[gtid][1]["data_collections"]
            assert collection == {"data_collection": f"{scenario.database.name}.t", "event_count": len(found)}


def test_record_numbers_continue_within_a_transaction(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """With transaction metadata, the counts of the connector are taken over with its offset."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    changes = {"provide.transaction.metadata": "true"}
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        scenario = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings, changes)
        scenario.fill()
        with scenario.writer():
            scenario.start()
            scenario.stop_within_an_event()

        done = scenario.take_over()

    [mark] = done.stored_offset.transactions
    assert sum(mark.records.values()) > 0
    assert mark.records == done.connector_offset.counts
    scenario.run_tailrace()
    assert is_at_most_one_changed_key(scenario.require_equal())
    _check_numbers(scenario, taken_up=mark.gtid)


def test_records_with_schemas_keep_their_schemas(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """JSON with schemas: the schemas of Tailrace's records equal those of the connector, byte for byte."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    changes = {"key.converter.schemas.enable": "true", "value.converter.schemas.enable": "true"}
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        scenario = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings, changes)
        scenario.fill()
        with scenario.writer():
            scenario.start()
            scenario.stop_within_an_event()

        scenario.take_over()

    scenario.run_tailrace()
    assert is_at_most_one_changed_key(scenario.require_equal())
    schemas: dict[bool, set[bytes]] = {True: set(), False: set()}
    for whole, plain in zip(scenario.raw(), scenario.records(), strict=True):
        if whole.value is not None:
            assert whole.key is not None
            key, value = (orjson.dumps(orjson.loads(part)["schema"]) for part in (whole.key, whole.value))
            schemas[is_ours(plain)].add(key + value)
    assert len(schemas[True]) == 1
    assert schemas[True] == schemas[False]


def test_stop_after_the_last_end_with_transaction_metadata(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> None:
    """The last record is an END. Its offset is still that of the transaction, of which only the END is not done."""
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    changes = {"provide.transaction.metadata": "true"}
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        scenario = TakeoverScenario(mysql_server, kafka_broker, database, worker, settings, changes)
        scenario.fill()
        with scenario.writer():
            scenario.start()
        executed = str(database.execute("SELECT @@global.gtid_executed")[0][0])
        last = re.sub(r":.*-", ":", executed)
        eventually(
            lambda: [value["status"] for value in _transaction_records(scenario)[last]] == ["BEGIN", "END"],
            "the last END",
        )
        scenario.stop()

        done = scenario.take_over()

    assert [(mark.gtid, mark.rows) for mark in done.stored_offset.transactions] == [(last, 0)]
    scenario.run_tailrace()
    assert is_at_most_one_changed_key(scenario.require_equal())
    _, end, repeated = _transaction_records(scenario)[last]  # the connector does the same when it resumes
    assert (repeated["status"], repeated["event_count"], repeated["data_collections"]) == (
        "END",
        end["event_count"],
        end["data_collections"],
    )
