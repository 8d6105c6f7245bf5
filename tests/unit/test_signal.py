"""Signals without servers: what is read from them, what they make of the queue, and that a file is taken once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import orjson
import pytest

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.app.signals import signal_consumer, signal_settings, signal_topic
from tailrace.producer.config import ProducerConfig, load
from tailrace.producer.model.table import TableId
from tailrace.producer.notifications.notification import (
    NOTIFICATION_KEY,
    NOTIFICATION_VALUE,
    AggregateType,
    Notification,
    NotificationType,
)
from tailrace.producer.serialization.avro_encoding import json_encoder
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.signals.channels import FileChannel, Found
from tailrace.producer.signals.queue import ChannelOffsets, IncrementalSnapshotQueue, SnapshotRequest, apply_signal
from tailrace.producer.signals.signal import (
    ExecuteSnapshot,
    InvalidSignalError,
    LogSignal,
    PauseSnapshot,
    ResumeSnapshot,
    Signal,
    StopSnapshot,
    from_json,
    from_row,
    parse_action,
)
from tests.support.avro import Avro

A, B, C = TableId("db", "a"), TableId("db", "b"), TableId("other", "a")
CAPTURED = (C, B, A)


def execute(*tables: str, **more: Any) -> ExecuteSnapshot:
    """Return the request to read tables again."""
    request = parse_action(Signal("x", "execute-snapshot", {"data-collections": list(tables), **more}))
    assert isinstance(request, ExecuteSnapshot)
    return request


def stop(*tables: str) -> StopSnapshot:
    """Return the request to stop."""
    request = parse_action(Signal("x", "stop-snapshot", {"data-collections": list(tables)} if tables else {}))
    assert isinstance(request, StopSnapshot)
    return request


def after(
    control: IncrementalSnapshotQueue, request: Any, *under_way: TableId
) -> tuple[IncrementalSnapshotQueue, list[str], str]:
    """Return the control after a request, the kinds told and what is odd."""
    control, told, odd = apply_signal(control, request, "sig", CAPTURED, under_way.__contains__)
    return control, [kind.value for kind, _ in told], odd


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
    ],
)
def test_a_fault_says_what_was_seen(text: bytes, part: str) -> None:
    """Whatever comes in is a request or a fault."""
    with pytest.raises(InvalidSignalError) as caught:
        parse_action(from_json(text))
    assert part in str(caught.value)


def test_every_type_is_read() -> None:
    """As Debezium's documentation has them; data of a row is a text."""
    assert parse_action(Signal("1", "pause-snapshot", {})) == PauseSnapshot()
    assert parse_action(Signal("1", "resume-snapshot", {"type": "INCREMENTAL"})) == ResumeSnapshot()
    assert parse_action(from_row(["1", "log", '{"message": "hi"}'])) == LogSignal("hi")
    assert stop().tables is None
    with pytest.raises(InvalidSignalError, match="2 columns"):
        from_row(["1", "log"])
    request = execute(
        "db.*", **{"additional-conditions": [{"data-collection": "db.A", "filter": "x > 1"}], "type": "incremental"}
    )
    assert (request.condition("db.a"), request.condition("db.b")) == ("x > 1", "")


def test_tables_are_added_once_and_told_of_when_the_first_comes() -> None:
    """Expressions are for whole names; a second signal while a snapshot runs adds to it."""
    control, told, odd = after(IncrementalSnapshotQueue(), execute(r"db\..*"))
    assert (control.tables, told, odd, control.about) == ((A, B), ["STARTED"], "", "sig")
    control, told, odd = after(control, execute("db.a", "other.a", "no.such"))
    assert (control.tables, told) == ((A, B, C), [])
    assert "no captured table matches no.such" in odd
    assert "already in the snapshot: db.a" in odd
    assert after(control, execute("d", "b.a"))[0] == control


def test_a_stopped_table_ends_where_it_stands_and_can_be_asked_for_at_once() -> None:
    """What has not begun goes; what is under way stays until its splits are ended."""
    control, *_ = after(IncrementalSnapshotQueue(), execute("db.a", "db.b"))
    stopped, told, odd = after(control, stop("db.*"), A)
    assert (stopped.tables, stopped.queue, told, odd) == ((), (SnapshotRequest(A, stopped=True),), ["ABORTED"], "")
    once_more, told, _ = after(stopped, execute("db.a"), A)
    assert (once_more.queue, told) == ((SnapshotRequest(A, stopped=True), SnapshotRequest(A)), ["STARTED"])
    assert once_more.without(A).queue == (SnapshotRequest(A),)
    assert after(IncrementalSnapshotQueue(), stop())[1:] == ([], "nothing to stop: no snapshot is under way")
    assert after(control, stop("other.a"))[1:] == ([], "nothing to stop: none of the tables is in the snapshot")


def test_pause_and_resume_are_for_a_snapshot_that_runs() -> None:
    """Each counts once; the last table that is stopped takes a pause along."""
    assert after(IncrementalSnapshotQueue(), PauseSnapshot())[1] == []
    control, *_ = after(IncrementalSnapshotQueue(), execute("db.a"))
    assert after(control, ResumeSnapshot())[2] == "nothing to resume: it is not paused"
    paused, told, _ = after(control, PauseSnapshot())
    assert (paused.paused, told, after(paused, PauseSnapshot())[1]) == (True, ["PAUSED"], [])
    assert after(paused, ResumeSnapshot())[:2] == (control, ["RESUMED"])
    assert not after(paused, stop(), A)[0].paused
    assert not paused.without(A).paused


def test_blocking_and_surrogate_keys_are_told() -> None:
    """Both are read as what there is."""
    control, _, odd = after(IncrementalSnapshotQueue(), execute("db.a", type="BLOCKING", **{"surrogate-key": "x"}))
    assert control.tables == (A,)
    assert "does not stop" in odd
    assert "surrogate-key" in odd


def test_the_control_survives_its_record() -> None:
    """What is stored is what is read."""
    control = IncrementalSnapshotQueue(
        (SnapshotRequest(A, "x = 'ü'"), SnapshotRequest(B, stopped=True)),
        True,
        "id",
        ChannelOffsets(7, "digest", ("g:1", 3)),
    )
    assert IncrementalSnapshotQueue.from_state(orjson.loads(control.to_json())) == control
    assert IncrementalSnapshotQueue.from_state(None) == IncrementalSnapshotQueue()
    assert NotificationType.STARTED == "STARTED"


def test_a_file_is_taken_once_whenever_the_process_dies(tmp_path: Path) -> None:
    """Before it is taken, between that and its removal, and with lines that come meanwhile."""
    path = tmp_path / "signals"
    marks = ChannelOffsets()
    seen: list[Found] = []

    def take(found: Found, move: Callable[[ChannelOffsets], ChannelOffsets]) -> None:
        nonlocal marks
        seen.append(found)
        marks = move(marks)

    def die(found: Found, move: Callable[[ChannelOffsets], ChannelOffsets]) -> None:
        raise OSError("died")

    path.write_text('{"id":"1","type":"log","data":{"message":"x"}}\nno json\n')
    with pytest.raises(OSError, match="died"):
        FileChannel(path, mark="").poll(die)
    path.write_text('{"id":"2","type":"log","data":{"message":"y"}}\n')
    FileChannel(path, mark=marks.file).poll(take)
    assert isinstance(seen[0][0], Signal)
    assert isinstance(seen[0][1], InvalidSignalError)
    assert (seen[0][0].id, len(seen)) == ("1", 1)

    def take_and_die(found: Found, move: Callable[[ChannelOffsets], ChannelOffsets]) -> None:
        take(found, move)
        raise OSError("died")

    with pytest.raises(OSError, match="died"):
        FileChannel(path, mark=marks.file).poll(take_and_die)
    incremental = FileChannel(path, mark=marks.file)
    incremental.poll(take)
    incremental.poll(take)
    assert [[signal.id for signal in found if isinstance(signal, Signal)] for found in seen] == [["1"], ["2"]]
    assert list(tmp_path.iterdir()) == []
    assert replace(marks, file="") == ChannelOffsets()


def _config(**changes: str) -> ProducerConfig:
    given = {
        "database.hostname": "db",
        "database.user": "u",
        "database.password": "p",
        "database.server.id": "7",
        "topic.prefix": "shop",
        "bootstrap.servers": "main:9092",
        **{name.replace("__", "."): value for name, value in changes.items()},
    }
    return load(None, {}, given)


def test_the_topic_of_signals_may_lie_elsewhere() -> None:
    """Everything of signal.consumer.* reaches the consumer, but what the way of reading depends on."""
    plain = _config(producer__override__client__id="mine", producer__override__linger__ms="5")
    assert signal_topic(plain) == "shop-signal"
    assert signal_settings(plain).bootstrap_servers == "main:9092"
    consumer = signal_consumer(plain)
    assert (consumer["client.id"], consumer["group.id"]) == ("mine", "kafka-signal")
    assert "linger.ms" not in consumer

    config = _config(
        **{
            "signal.kafka.topic": "asked",
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
    assert signal_topic(config) == "asked"
    consumer = signal_consumer(config)
    wanted = {
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
    assert {name: consumer[name] for name in wanted} == wanted
    # The topic is made there, and by the same rights; the capture itself knows nothing of them.
    assert signal_settings(config).common()["sasl.password"] == "hidden"
    assert kafka_settings(config).common() == {"bootstrap.servers": "main:9092", "log_level": 3, "client.id": "mine"}
    assert "hidden" not in repr(config) + repr(signal_settings(config))
    last = _config(**{"signal.kafka.bootstrap.servers": "a:1", "signal.consumer.bootstrap.servers": "b:2"})
    assert signal_consumer(last)["bootstrap.servers"] == signal_settings(last).bootstrap_servers == "b:2"


@pytest.mark.parametrize("data", [{}, {"data_collections": "db.ä,db.😀", "status": "EMPTY"}])
def test_notifications_in_avro_are_what_fastavro_writes(data: dict[str, str]) -> None:
    """Key and value, the map of texts included."""
    note = Notification(AggregateType.INCREMENTAL, NotificationType.STARTED, data, id="x")
    for schema, struct in ((NOTIFICATION_KEY, note.key()), (NOTIFICATION_VALUE, note.value("shop", 1_795_256_413_373))):
        avro = Avro(avro_schema(schema))
        written = json_encoder(schema)(struct).encode("latin-1")
        assert avro.read(written) == struct
        assert written == avro.write(struct)
