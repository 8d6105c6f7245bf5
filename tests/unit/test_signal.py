"""Signals without servers: parsing, their effect on the queue, the file channel and the consumer settings."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.app.signals import signal_consumer, signal_settings
from tailrace.producer.config import ProducerConfig, load
from tailrace.producer.kafka.state_store import State, TableState, decode
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableFault, TableMode
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.notifications.notification import (
    NOTIFICATION_KEY,
    NOTIFICATION_VALUE,
    AggregateType,
    Notification,
    NotificationType,
    data_collections,
    table_scan_data,
)
from tailrace.producer.serialization.avro_encoding import json_encoder
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.envelope.topic_names import signal_topic
from tailrace.producer.signals.channels import AdvanceOffsets, FileChannel, Signals
from tailrace.producer.signals.queue import ChannelOffsets, IncrementalSnapshotQueue, SnapshotRequest, apply_signal
from tailrace.producer.signals.signal import (
    ExecuteSnapshot,
    InvalidSignalError,
    LogSignal,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    SignalAction,
    StopSnapshot,
    from_json,
    from_row,
    parse_action,
)
from tailrace.schemas.verification import ChosenKeys
from tests.support.avro import Avro

A, B, C = TableId("db", "a"), TableId("db", "b"), TableId("other", "a")
CAPTURED = (C, B, A)


def execute(*tables: str, **more: Any) -> ExecuteSnapshot:
    """Return an execute-snapshot action."""
    action = parse_action(Signal("x", "execute-snapshot", {"data-collections": list(tables), **more}))
    assert isinstance(action, ExecuteSnapshot)
    return action


def stop(*tables: str) -> StopSnapshot:
    """Return a stop-snapshot action."""
    action = parse_action(Signal("x", "stop-snapshot", {"data-collections": list(tables)} if tables else {}))
    assert isinstance(action, StopSnapshot)
    return action


def after(
    queue: IncrementalSnapshotQueue, action: SignalAction, *running: TableId
) -> tuple[IncrementalSnapshotQueue, list[str], str]:
    """Return the queue after an action, the types of its notifications, and its warning."""
    result = apply_signal(queue, action, "sig", CAPTURED, running.__contains__)
    return result.queue, [notification.type.value for notification in result.notifications], result.warning


@pytest.mark.parametrize(
    ("text", "part"),
    [
        (b"", "not JSON"),
        (b"no", "not JSON"),
        (b"[]", "not a JSON object"),
        (b'{"id":"1"}', "type is missing"),
        (b'{"id":"1","type":7}', "type is 7"),
        (b'{"id":"1","type":"log","data":7}', "data is 7"),
        (b'{"id":"1","type":"log","data":"x"}', "data is not JSON"),
        (b'{"id":"1","type":"log"}', "message is missing"),
        (b'{"id":"1","type":"schema-changes"}', "not supported"),
        (b'{"id":"1","type":"set-binlog-position"}', "neither a gtid_set nor"),
        (b'{"id":"1","type":"set-binlog-position","data":{"gtid_set":"earliest"}}', "is not a GTID set"),
        (
            b'{"id":"1","type":"set-binlog-position","data":{"gtid_set":"u:1","binlog_position":4}}',
            "neither a gtid_set",
        ),
        (
            b'{"id":"1","type":"set-binlog-position","data":{"binlog_filename":"b.1","binlog_position":"4"}}',
            "neither a",
        ),
        (b'{"id":"1","type":"execute"}', "not known"),
        (b'{"id":"1","type":"execute-snapshot"}', "data-collections is missing"),
        (b'{"id":"1","type":"execute-snapshot","data":{"data-collections":"db.a"}}', "not a list"),
        (b'{"id":"1","type":"execute-snapshot","data":{"data-collections":["("]}}', "not a regular expression"),
        (b'{"id":"1","type":"execute-snapshot","data":{"data-collections":["a.b"],"type":"x"}}', "INCREMENTAL"),
        (
            b'{"id":"1","type":"execute-snapshot","data":{"data-collections":["a.b"],"additional-conditions":[7]}}',
            "not an object",
        ),
        (
            orjson.dumps(
                {
                    "type": "execute-snapshot",
                    "data": {
                        "data-collections": ["a.b"],
                        "type": "BLOCKING",
                        "additional-conditions": [{"data-collection": "a.b", "filter": "x"}],
                    },
                }
            ),
            "whole SELECT",
        ),
        (b'{"id":"1","type":"stop-snapshot","data":{"type":"blocking"}}', "cannot be stopped"),
        *(
            (orjson.dumps({"type": "execute-snapshot", "data": {"data-collections": ["a.b"], "keys": keys}}), part)
            for keys, part in (
                (["1"], "is not an object"),
                ({"columns": ["id"], "texts": [1]}, "is not an object"),
                ({"columns": ["id"], "texts": []}, "there is none"),
                ({"columns": ["id"], "texts": ["1,2"]}, "is not the text of a key of 1 columns"),
                ({"columns": ["id"], "texts": ["1') OR ('1'='1"]}, "is not the text of a key"),
                ({"columns": ["id"], "texts": ["1"] * 1001}, "more than 1000"),
                ({"columns": ["id"], "texts": ["1" * 400_001]}, "more than 400000 characters"),
            )
        ),
    ],
)
def test_error_includes_the_invalid_value(text: bytes, part: str) -> None:
    """Each input is a signal or raises InvalidSignalError."""
    with pytest.raises(InvalidSignalError) as caught:
        parse_action(from_json(text))
    assert part in str(caught.value)


def test_parse_signal_types() -> None:
    """Types as in Debezium's documentation; the data of a row is a string."""
    assert parse_action(Signal("1", "pause-snapshot", {})) == PauseSnapshot()
    assert parse_action(Signal("1", "resume-snapshot", {"type": "INCREMENTAL"})) == ResumeSnapshot()
    assert parse_action(from_row(["1", "log", '{"message": "hi"}'])) == LogSignal("hi")
    assert stop().tables is None
    with pytest.raises(InvalidSignalError, match="2 columns"):
        from_row(["1", "log"])
    action = execute(
        "db.*", **{"additional-conditions": [{"data-collection": "db.A", "filter": "x > 1"}], "type": "incremental"}
    )
    assert (action.condition("db.a"), action.condition("db.b")) == ("x > 1", "")


def test_keys_are_those_of_one_table() -> None:
    keys = {"columns": ["a", "b"], "texts": ["1,C3BC", "N,-2"]}
    queue, _, _ = after(IncrementalSnapshotQueue(), execute("db.a", keys=keys))
    assert queue.requests == (SnapshotRequest(A, keys=ChosenKeys(("a", "b"), ("1,C3BC", "N,-2"))),)
    assert not queue.requests[0].is_whole
    # What a table in error needs is not among them.
    assert len(queue.requiring([A], lambda _: False).requests) == 2
    queue, _, warning = after(IncrementalSnapshotQueue(), execute("db[.].", keys=keys))
    assert (queue.requests, warning) == ((), "keys are those of one table: db.a, db.b")
    for more in ({"additional-conditions": [{"data-collection": "db.a", "filter": "x"}]}, {"type": "BLOCKING"}):
        with pytest.raises(InvalidSignalError, match=r"keys are those of one table|whole SELECT"):
            execute("db.a", keys=keys, **more)


def test_the_table_of_keys_is_exact_where_it_is_named() -> None:
    """The names of two tables can differ by case, or by the place of the point."""
    tables = [TableId("shop", "Orders"), TableId("shop", "orders"), TableId("a.b", "c"), TableId("a", "b.c")]
    for table in tables:
        names = {"database": table.database, "table": table.table}
        keys = {"columns": ["id"], "texts": ["1"], **names}
        result = apply_signal(
            IncrementalSnapshotQueue(), execute(re.escape(str(table)), keys=keys), "x", tables, lambda _: False
        )
        assert [request.table for request in result.queue.requests] == [table]
        assert result.warning == ""
    missing = execute("shop.other", keys=keys | {"database": "shop", "table": "other"})
    result = apply_signal(IncrementalSnapshotQueue(), missing, "x", tables, lambda _: False)
    assert (result.queue.requests, result.warning) == ((), "no captured table matches shop.other")
    for wrong in ({"database": "shop"}, {"database": "shop", "table": 1}):
        with pytest.raises(InvalidSignalError, match="are not the strings database and table"):
            execute("shop.t", keys={"columns": ["id"], "texts": ["1"], **wrong})


def test_tables_are_added_once_and_started_is_sent_once() -> None:
    """Expressions match whole names; a second signal adds tables to the running snapshot."""
    queue, sent, warning = after(IncrementalSnapshotQueue(), execute(r"db\..*"))
    assert (queue.tables, sent, warning, queue.correlation_id) == ((A, B), ["STARTED"], "", "sig")
    queue, sent, warning = after(queue, execute("db.a", "other.a", "no.such"))
    assert (queue.tables, sent) == ((A, B, C), [])
    assert "no captured table matches no.such" in warning
    assert "already in the snapshot: db.a" in warning
    assert after(queue, execute("d", "b.a"))[0] == queue


def test_stopped_table_can_be_requested_at_once() -> None:
    """A table that has not started is removed; a running one stays in the queue until its splits have ended."""
    queue, *_ = after(IncrementalSnapshotQueue(), execute("db.a", "db.b"))
    stopped, sent, warning = after(queue, stop("db.*"), A)
    assert (stopped.tables, stopped.requests, sent, warning) == (
        (),
        (SnapshotRequest(A, stopped=True),),
        ["ABORTED"],
        "",
    )
    requested, sent, _ = after(stopped, execute("db.a"), A)
    assert (requested.requests, sent) == ((SnapshotRequest(A, stopped=True), SnapshotRequest(A)), ["STARTED"])
    assert requested.without(A).requests == (SnapshotRequest(A),)
    assert after(IncrementalSnapshotQueue(), stop())[1:] == ([], "nothing to stop: no snapshot is running")
    assert after(queue, stop("other.a"))[1:] == ([], "nothing to stop: none of the tables is in the snapshot")


def test_readings_that_a_topic_needs_are_not_stopped() -> None:
    """A table that was in error, or arrived with rows, would be incomplete; other requests of it are stopped."""
    queue = IncrementalSnapshotQueue().requiring([A], lambda _: False)
    both, *_ = after(queue, execute("db.b"))
    stopped, sent, warning = after(both, stop(), A)
    assert (stopped.requests, stopped.tables, sent) == ((SnapshotRequest(A, required=True),), (A,), ["ABORTED"])
    assert "db.a; use pause-snapshot" in warning
    assert after(stopped, stop("db.a"), A)[:2] == (stopped, [])
    signalled, *_ = after(IncrementalSnapshotQueue(), execute("db.a"))
    assert signalled.requiring([A], lambda _: False).requests == (SnapshotRequest(A, required=True),)
    assert signalled.requiring([A], lambda _: True).requests == (SnapshotRequest(A), SnapshotRequest(A, required=True))


def test_request_of_an_earlier_version_for_a_table_in_error_is_required() -> None:
    """Its record does not say so, and the table has its fault until it is read."""
    state = State(signals=orjson.loads(IncrementalSnapshotQueue().to_json()))
    body = {"database": "db", "table": "a", "condition": "", "stopped": False}
    state.requests = {1: body, 2: {**body, "table": "b"}, 3: {**body, "condition": "x > 1"}}
    state.tables["db.a"] = TableState(TableMode.STREAMING, fault=TableFault("reason", {}))
    restored = IncrementalSnapshotQueue.from_state(state)
    assert [request.required for request in restored.requests] == [True, False, False]


def test_pause_and_resume_need_a_running_snapshot() -> None:
    """Repeating one has no effect; stopping the last table also ends the pause."""
    assert after(IncrementalSnapshotQueue(), PauseSnapshot())[1] == []
    queue, *_ = after(IncrementalSnapshotQueue(), execute("db.a"))
    assert after(queue, ResumeSnapshot())[2] == "nothing to resume: it is not paused"
    paused, sent, _ = after(queue, PauseSnapshot())
    assert (paused.paused, sent, after(paused, PauseSnapshot())[1]) == (True, ["PAUSED"], [])
    assert after(paused, ResumeSnapshot())[:2] == (queue, ["RESUMED"])
    assert not after(paused, stop(), A)[0].paused
    assert not paused.without(A).paused


def test_blocking_and_surrogate_key_give_a_warning() -> None:
    """BLOCKING is handled as INCREMENTAL, and a surrogate key is ignored."""
    queue, _, warning = after(IncrementalSnapshotQueue(), execute("db.a", type="BLOCKING", **{"surrogate-key": "x"}))
    assert queue.tables == (A,)
    assert "does not stop" in warning
    assert "surrogate-key" in warning


def test_queue_is_restored_from_its_record() -> None:
    """Every field is stored."""
    queue = IncrementalSnapshotQueue(
        (
            SnapshotRequest(A, "x = 'ü'"),
            SnapshotRequest(B, stopped=True),
            SnapshotRequest(B, keys=ChosenKeys(("id",), ("1", "2"))),
        ),
        True,
        "id",
        ChannelOffsets(7, "digest", ("g:1", 3)),
    )
    numbered = replace(queue, requests=()).adding(queue.requests)
    assert IncrementalSnapshotQueue.from_state(_stored(numbered, IncrementalSnapshotQueue())) == queue
    assert IncrementalSnapshotQueue.from_state(State()) == IncrementalSnapshotQueue()
    assert NotificationType.STARTED == "STARTED"


def _stored(queue: IncrementalSnapshotQueue, before: IncrementalSnapshotQueue) -> State:
    """Return the state after the records of a change of the queue."""
    records = dict(before.records(IncrementalSnapshotQueue())) | dict(queue.records(before))
    return decode({key: value for key, value in records.items() if value is not None}, MySqlOffset.from_json)


def test_no_record_of_the_queue_grows_with_the_number_of_tables() -> None:
    """One change writes the records of what changed only."""
    tables = [TableId("db", f"a_table_with_a_long_name_{n}") for n in range(40_000)]
    queue = IncrementalSnapshotQueue().adding(map(SnapshotRequest, tables))
    assert max(len(value or b"") for _, value in queue.records(IncrementalSnapshotQueue())) < 200
    shorter = queue.without(tables[0])
    assert [key for key, _ in shorter.records(queue)] == [b"signals", b"request/1"]
    assert _stored(shorter.adding([SnapshotRequest(A)]), queue).requests[40_001]["table"] == "a"
    names = table_scan_data(queue.tables, A, 1, "SUCCEEDED")
    assert len(orjson.dumps(names)) < 70_000
    listed = names["data_collections"].split(",")
    assert len(listed) + int(names["data_collections_omitted"]) == len(tables)
    assert listed == list(map(str, tables[: len(listed)]))
    assert data_collections([A, B]) == {"data_collections": "db.a,db.b"}


def test_file_is_processed_once_across_crashes(tmp_path: Path) -> None:
    """Crashes before it is processed, and between that and its removal; lines are added in the meantime."""
    path = tmp_path / "signals"
    offsets = ChannelOffsets()
    processed: list[Signals] = []

    def process(signals: Signals, advance: AdvanceOffsets) -> None:
        nonlocal offsets
        processed.append(signals)
        offsets = advance(offsets)

    def crash(signals: Signals, advance: AdvanceOffsets) -> None:
        raise OSError("crashed")

    path.write_text('{"id":"1","type":"log","data":{"message":"x"}}\nno json\n')
    with pytest.raises(OSError, match="crashed"):
        FileChannel(path, last_digest="").poll(crash)
    path.write_text('{"id":"2","type":"log","data":{"message":"y"}}\n')
    FileChannel(path, last_digest=offsets.file).poll(process)
    assert isinstance(processed[0][0], Signal)
    assert isinstance(processed[0][1], InvalidSignalError)
    assert (processed[0][0].id, len(processed)) == ("1", 1)

    def process_and_crash(signals: Signals, advance: AdvanceOffsets) -> None:
        process(signals, advance)
        raise OSError("crashed")

    with pytest.raises(OSError, match="crashed"):
        FileChannel(path, last_digest=offsets.file).poll(process_and_crash)
    channel = FileChannel(path, last_digest=offsets.file)
    channel.poll(process)
    channel.poll(process)
    ids = [[signal.id for signal in signals if isinstance(signal, Signal)] for signals in processed]
    assert ids == [["1"], ["2"]]
    assert list(tmp_path.iterdir()) == []
    assert replace(offsets, file="") == ChannelOffsets()


def _config(**changes: str) -> ProducerConfig:
    properties = {
        "database.hostname": "db",
        "database.user": "u",
        "database.password": "p",
        "database.server.id": "7",
        "topic.prefix": "shop",
        "bootstrap.servers": "main:9092",
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return load(None, {}, properties)


def test_consumer_settings_of_the_signal_topic() -> None:
    """All of signal.consumer.* reaches the consumer, except the settings that the channel relies on."""
    plain = _config(producer__override__client__id="mine", producer__override__linger__ms="5")
    assert signal_topic(plain) == "shop-signal"
    assert signal_settings(plain).bootstrap_servers == "main:9092"
    consumer = signal_consumer(plain)
    assert (consumer["client.id"], consumer["group.id"]) == ("mine", "kafka-signal")
    assert "linger.ms" not in consumer

    config = _config(
        **{
            "signal.kafka.topic": "requests",
            "signal.kafka.bootstrap.servers": "other:9092",
            "signal.kafka.groupId": "readers",
            "producer.override.client.id": "mine",
            "signal.consumer.client.id": "theirs",
            "signal.consumer.security.protocol": "SASL_PLAINTEXT",
            "signal.consumer.sasl.password": "hidden",
            "signal.consumer.fetch.wait.max.ms": "77",
            "signal.consumer.enable.auto.commit": "true",
            "signal.consumer.auto.offset.reset": "latest",
            "signal.consumer.group.id": "no",
        }
    )
    assert signal_topic(config) == "requests"
    consumer = signal_consumer(config)
    expected = {
        "bootstrap.servers": "other:9092",
        "client.id": "theirs",
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.password": "hidden",
        "fetch.wait.max.ms": "77",
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "group.id": "readers",
        "isolation.level": "read_committed",
    }
    assert {name: consumer[name] for name in expected} == expected
    # The topic is created there with the same credentials; the capture's own clients do not have them.
    assert signal_settings(config).common()["sasl.password"] == "hidden"
    common = kafka_settings(config).common()
    assert (common["bootstrap.servers"], common["client.id"]) == ("main:9092", "mine")
    assert not {"security.protocol", "sasl.password"} & common.keys()
    assert "hidden" not in repr(config) + repr(signal_settings(config))
    last = _config(**{"signal.kafka.bootstrap.servers": "a:1", "signal.consumer.bootstrap.servers": "b:2"})
    assert signal_consumer(last)["bootstrap.servers"] == signal_settings(last).bootstrap_servers == "b:2"


@pytest.mark.parametrize("data", [{}, {"data_collections": "db.ä,db.😀", "status": "EMPTY"}])
def test_notifications_in_avro_equal_fastavro(data: dict[str, str]) -> None:
    """Key and value, including the map of strings."""
    notification = Notification(AggregateType.INCREMENTAL, NotificationType.STARTED, data, "x")
    for schema, struct in (
        (NOTIFICATION_KEY, notification.key()),
        (NOTIFICATION_VALUE, notification.value("shop", 1_795_256_413_373)),
    ):
        avro = Avro(avro_schema(schema))
        written = json_encoder(schema)(struct)
        assert avro.read(written) == struct
        assert written == avro.write(struct)
