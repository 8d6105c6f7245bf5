"""Records sent by the compiled extension are those that Python's binding sends, and end in the same errors."""

from __future__ import annotations

import os
import time
from contextlib import closing

import pytest
from confluent_kafka import TIMESTAMP_CREATE_TIME

from tailrace.producer.errors import RecordTooLargeError
from tailrace.producer.kafka import native_sender, transactional_producer
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.runtime.errors import KafkaUnavailableError
from tests.embedded.kafka import KafkaBroker
from tests.support.capture import eventually
from tests.support.native_sending import PARTITIONS, read_committed, sending_producer, sending_settings
from tests.support.refusing_proxy import RefusingProxy
from tests.support.topics import read_topic

pytestmark = pytest.mark.skipif(
    bool(native_sender.unused_because()), reason=f"the extension sends nothing: {native_sender.unused_because()}"
)

_LONG_NS = 120_000_000_000
_RECORDS: list[tuple[bytes, bytes | None]] = [
    (b"", b"value of the empty key"),
    (b"empty value", b""),
    (b"tombstone", None),
    (b"\0\xff", b"\0\xff"),
    *((b'{"id":%d}' % i, b"x" * i) for i in range(300)),
]
_HEADERS: list[Headers | None] = [
    None,
    [],
    [("bytes", b"\0\xff"), ("text", "é😀"), ("none", None), ("empty", b"")],
    [(f"header-{i}", b"%d" % i) for i in range(27)],
    [(f"header-{i}", b"%d" % i) for i in range(40)],
]


def test_records_are_those_of_the_binding(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Keys, values, headers, partitions and order."""
    found = []
    for native in (True, False):
        topic = f"{prefix}-{native}"
        kafka_broker.create_topic(topic, partitions=PARTITIONS)
        with closing(sending_producer(sending_settings(kafka_broker), topic, native=native)) as producer:
            producer.begin()
            for headers in _HEADERS:
                producer.send_all(topic, _RECORDS, headers)
            assert producer.records_in_transaction == len(_RECORDS) * len(_HEADERS)
            producer.commit()
        found.append(read_committed(kafka_broker, topic, len(_RECORDS) * len(_HEADERS)))

    assert found[0] == found[1]
    assert all(found[0])
    assert {record[3] for partition in found[0] for record in partition} == {TIMESTAMP_CREATE_TIME}
    assert (b"tombstone", None) in [record[:2] for partition in found[0] for record in partition]


def test_full_queue_loses_and_repeats_nothing(kafka_broker: KafkaBroker, prefix: str) -> None:
    """More records than the queue of the client holds, in the order in which they were sent."""
    kafka_broker.create_topic(prefix, partitions=PARTITIONS)
    sent: list[tuple[bytes, bytes | None]] = [(b"k", b"%d" % i) for i in range(5000)]
    settings = sending_settings(kafka_broker, queue_buffering_max_messages="50", linger_ms="1")
    with closing(sending_producer(settings, prefix)) as producer:
        producer.begin()
        producer.send_all(prefix, sent, [("h", b"v")])
        producer.commit()

    found = read_committed(kafka_broker, prefix, len(sent))
    assert [record[1] for partition in found for record in partition] == [value for _, value in sent]


@pytest.mark.timeout(300)
@pytest.mark.parametrize("native", [True, False])
def test_parts_of_batches_make_room_in_a_full_queue(kafka_broker: KafkaBroker, prefix: str, *, native: bool) -> None:
    """No batch is full, and none is old enough to be sent: the records would wait for linger.ms."""
    kafka_broker.create_topic(prefix, partitions=PARTITIONS)
    sent: list[tuple[bytes, bytes | None]] = [(b"%d" % i, b"v") for i in range(400)]
    settings = sending_settings(kafka_broker, queue_buffering_max_messages="50", linger_ms="50000")
    with closing(sending_producer(settings, prefix, native=native)) as producer:
        producer.begin()
        producer.send_all(prefix, sent)
        producer.commit()

    found = read_committed(kafka_broker, prefix, len(sent))
    assert sorted(record[0] for partition in found for record in partition) == sorted(key for key, _ in sent)


@pytest.mark.timeout(120)
def test_parts_of_batches_make_room_at_once(
    kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is in flight that would make room."""
    monkeypatch.setattr(transactional_producer, "_ROOM_S", 300.0)
    kafka_broker.create_topic(prefix, partitions=PARTITIONS)
    settings = sending_settings(kafka_broker, queue_buffering_max_messages="50", linger_ms="50000")
    with closing(sending_producer(settings, prefix)) as producer:
        producer.begin()
        producer.send_all(prefix, [(b"%d" % i, b"v") for i in range(200)])
        producer.commit()

    assert sum(map(len, read_committed(kafka_broker, prefix, 200))) == 200


@pytest.mark.parametrize(
    "overrides",
    [{"batch.size": "4000000"}, {"message.max.bytes": "300000"}],
    ids=["a batch of several requests", "small requests"],
)
def test_less_than_a_batch_is_flushed_at_once(
    kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch, overrides: dict[str, str]
) -> None:
    """What the client would send only after linger.ms is not waited for."""
    monkeypatch.setattr(transactional_producer, "_IDLE_NS", _LONG_NS)
    kafka_broker.create_topic(prefix)
    settings = KafkaSettings(kafka_broker.bootstrap, {"linger.ms": "50000", **overrides}, transaction_timeout_ms=60_000)
    with closing(sending_producer(settings, prefix)) as producer:
        producer.begin()
        producer.send_all(prefix, [(b"k", os.urandom(1000))] * 2700)
        began = time.monotonic()
        producer.commit()
        assert time.monotonic() - began < 40


def test_full_batches_are_sent_before_a_commit_flushes(
    kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a flush the client polls without a pause while a request is in flight, so little may be left for it."""
    monkeypatch.setattr(transactional_producer, "_IDLE_NS", 60_000_000_000)
    kafka_broker.create_topic(prefix)
    with closing(sending_producer(sending_settings(kafka_broker), prefix)) as producer:
        client, left = producer._producer, list[int]()

        class Observed:
            """The client, of which the records in its queue are counted when it flushes."""

            def __len__(self) -> int:
                return len(client)

            def __getattr__(self, name: str) -> object:
                if name == "flush":
                    client.poll(0)  # delivered records are counted until their reports are processed
                    left.append(len(client))
                return getattr(client, name)

        producer._client = Observed()  # type: ignore[assignment]
        at_first = list[int]()
        for _ in range(3):
            left.clear()
            producer.begin()
            producer.send_all(prefix, [(b"k", os.urandom(1000))] * 5500)
            producer.commit()
            at_first.append(left[0])
        producer._client = client

    # A broker that needs more than a second for an answer is not waited for.
    assert min(at_first) < 1000
    assert len(read_committed(kafka_broker, prefix, 3 * 5500)[0]) == 3 * 5500


def test_parts_of_batches_of_several_partitions_are_not_waited_for(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Together they are more than a batch. How many partitions there are is known from their answers."""
    kafka_broker.create_topic(prefix, partitions=PARTITIONS)
    records: list[tuple[bytes, bytes | None]] = [(b"%d" % i, os.urandom(1000)) for i in range(1500)]
    with closing(sending_producer(sending_settings(kafka_broker, linger_ms="50000"), prefix)) as producer:
        sender = producer.sender
        assert sender is not None
        for idle_ns in (0, _LONG_NS):
            producer.begin()
            producer.send_all(prefix, records)
            assert sender.wait_for_batches(1_000_000, _LONG_NS, idle_ns)
            assert len(producer._producer) == len(records)
            producer.commit()


def test_what_is_in_flight_is_waited_for() -> None:
    """The answer is held back for a while, or for good."""
    broker = KafkaBroker()
    with RefusingProxy(broker.port, "held") as proxy:
        broker.listen(broker.host, advertised=f"{proxy.host}:{proxy.port}")
        with broker:
            broker.create_topic("held")
            settings = KafkaSettings(f"{proxy.host}:{proxy.target}", {"linger.ms": "0"}, transaction_timeout_ms=60_000)
            with closing(sending_producer(settings, "id")) as producer:
                sender = producer.sender
                assert sender is not None
                assert sender.wait_for_batches(1_000_000, 0, 0)
                producer.begin()
                producer.send_all("held", [(b"k", b"v")])
                assert proxy.held.wait(30)
                # The client counts a request some time after the proxy has it.
                eventually(lambda: not sender.wait_for_batches(1_000_000, 50_000_000, 0), "a request is in flight")
                # A commit waits in parts, which together are long enough.
                assert any(sender.wait_for_batches(1_000_000, 300_000_000, 0) for _ in range(100))


@pytest.mark.parametrize("native", [True, False])
def test_refused_record_is_named(kafka_broker: KafkaBroker, prefix: str, *, native: bool) -> None:
    """The delivery report of a record that its topic refuses: topic, key and size of the largest one."""
    kafka_broker.create_topic(prefix, settings={"max.message.bytes": "20000"})
    settings = sending_settings(kafka_broker, batch_size="40000")
    with closing(sending_producer(settings, prefix, native=native)) as producer:
        producer.begin()
        producer.send_all(prefix, [(b"small", os.urandom(100)), (b"large", os.urandom(50_000))])
        with pytest.raises(RecordTooLargeError) as caught:
            producer.commit()

    assert caught.value.context == {"topic": prefix, "key": "large", "size": "50005 bytes"}


@pytest.mark.parametrize("native", [True, False])
def test_records_outside_a_transaction_are_refused(kafka_broker: KafkaBroker, prefix: str, *, native: bool) -> None:
    with closing(sending_producer(sending_settings(kafka_broker), prefix, native=native)) as producer:
        with pytest.raises(KafkaUnavailableError) as caught:
            producer.send_all(prefix, [(b"k", b"v")])
        assert producer.records_in_transaction == 0

    assert caught.value.context["operation"] == f"sending to {prefix}"


def test_client_that_takes_no_plugin_sends_by_the_binding(
    kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The handle comes from librdkafka, or not at all."""
    monkeypatch.setattr(native_sender, "_PLUGINS", "client.rack")
    producer = TransactionalProducer(sending_settings(kafka_broker), prefix)
    assert producer._sender is None
    producer.close()


def test_many_clients_come_and_go(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Each has its own handle, and ends with records that are not delivered."""
    kafka_broker.create_topic(prefix)
    open_ones = [sending_producer(sending_settings(kafka_broker), f"{prefix}-{i}") for i in range(4)]
    for producer in reversed(open_ones):
        producer.begin()
        producer.send_all(prefix, [(producer.transactional_id.encode(), b"v")])
    for i, producer in enumerate(open_ones):
        if i % 2:
            producer.commit()
        producer.close()
        if not i % 2:  # its open transaction would hide the records after it
            sending_producer(sending_settings(kafka_broker), f"{prefix}-{i}").close()

    keys = [record.key or b"" for record in read_topic(kafka_broker.bootstrap, prefix)]
    assert sorted(keys) == [f"{prefix}-1".encode(), f"{prefix}-3".encode()]
