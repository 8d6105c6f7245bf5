"""Kafka's client reads the values of large batches in the buffers of the extension, for as long as it needs them."""

from __future__ import annotations

import gc
import os
from collections.abc import Iterator, Sequence
from contextlib import closing

import pytest

from tailrace.producer.errors import BatchRefusedError
from tailrace.producer.kafka import native_sender
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tests.embedded.kafka import KafkaBroker
from tests.support.native_sending import read_committed, sending_producer, sending_settings

pytestmark = pytest.mark.skipif(
    bool(native_sender.unused_because()), reason=f"the extension sends nothing: {native_sender.unused_because()}"
)

_NOTHING = (0, 0, 0)
_MOST_BUFFERS = 512
_SPARE_BYTES = 2 * 1024 * 1024


def _in_flight() -> tuple[int, int, int]:
    from tailrace.producer.native.codec import buffers_in_flight  # noqa: PLC0415 - the module is optional

    return buffers_in_flight()


@pytest.fixture(autouse=True)
def nothing_is_left() -> Iterator[None]:
    """They are those of all clients of the process; a traceback keeps the records of its frames."""
    gc.collect()
    assert _in_flight() == _NOTHING, "before the test"
    yield
    gc.collect()
    assert _in_flight() == _NOTHING


def _values(count: int, size: int, number: int = 0) -> list[tuple[bytes, bytes | None]]:
    """Return records that differ in each part of their value."""
    return [(b"%d" % i, (b"%06d.%06d|" % (number, i) * (size // 14 + 1))[:size]) for i in range(count)]


def _assert_committed(broker: KafkaBroker, topic: str, parts: Sequence[Sequence[tuple[bytes, bytes | None]]]) -> None:
    """The topic has the records of all parts, in their order."""
    sent = [record for part in parts for record in part]
    [found] = read_committed(broker, topic, len(sent), partitions=1)
    assert [record[:2] for record in found] == sent


def _send_and_forget(
    producer: TransactionalProducer, topic: str, records: Sequence[tuple[bytes, bytes | None]]
) -> None:
    """Send records whose buffer nothing else keeps, and write over memory that was freed."""
    producer.send_all(topic, records)
    del records
    for size in (40_000, 200_000, 400_000):
        bytearray(b"\xee") * size


def test_values_are_kept_until_they_are_sent(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Also empty ones, at the end of a buffer, too large ones, and tombstones."""
    kafka_broker.create_topic(prefix)
    parts = [
        *(_values(400, 300, number) for number in range(40)),
        [*_values(100, 900), (b"tombstone", None), (b"large", os.urandom(65_536)), (b"reference", os.urandom(65_535))],
        [(b"first", b""), *_values(200, 500), (b"empty", b"")],
    ]
    with closing(sending_producer(sending_settings(kafka_broker), prefix)) as producer:
        producer.begin()
        with kafka_broker.paused():
            for part in parts:
                _send_and_forget(producer, prefix, list(part))
            buffers, size, messages = _in_flight()
            by_reference = sum(len(part) for part in parts) - 2  # the tombstone and the largest value are not
            assert (buffers, messages) == (len(parts), by_reference)
            assert size < sum(len(key + (value or b"")) for part in parts for key, value in part) * 1.3
        producer.commit()
        assert _in_flight() == _NOTHING

    _assert_committed(kafka_broker, prefix, parts)


def test_small_batches_are_copied(kafka_broker: KafkaBroker, prefix: str) -> None:
    kafka_broker.create_topic(prefix)
    with closing(sending_producer(sending_settings(kafka_broker), prefix)) as producer:
        producer.begin()
        producer.send_all(prefix, _values(30, 1000))
        assert _in_flight() == _NOTHING
        producer.commit()


def test_number_of_buffers_is_bounded(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The records of further ones are copied by the client, whose queue has its own bound."""
    kafka_broker.create_topic(prefix)
    parts = [_values(40, 1000, number) for number in range(_MOST_BUFFERS + 10)]
    with closing(sending_producer(sending_settings(kafka_broker), prefix)) as producer:
        producer.begin()
        with kafka_broker.paused():
            for part in parts:
                _send_and_forget(producer, prefix, list(part))
            buffers, _, messages = _in_flight()
            assert buffers == _MOST_BUFFERS
            # One of them can be another producer's, which has dropped it and is not collected yet.
            assert messages in {(_MOST_BUFFERS - 1) * 40, _MOST_BUFFERS * 40}
        producer.commit()
        assert _in_flight() == _NOTHING

    _assert_committed(kafka_broker, prefix, parts)


def test_buffers_that_are_kept_for_little_are_bounded(kafka_broker: KafkaBroker, prefix: str) -> None:
    """One message keeps a whole buffer, as their owner does: all buffers are little more than what is not answered."""
    kafka_broker.create_topic(prefix)
    parts = [_values(20, 20_000, number) for number in range(12)]
    kept = []
    with closing(sending_producer(sending_settings(kafka_broker), prefix)) as producer:
        sender = producer.sender
        assert sender is not None
        for part in parts:
            records = sender.records(part)
            kept.append(records)
            producer.begin()
            producer.send_all(prefix, records)
            producer.commit()
        buffers, size, messages = _in_flight()
        assert messages == 0
        assert _SPARE_BYTES - size // buffers < size < _SPARE_BYTES + 2 * (size // buffers)
        del records
        kept.clear()
        assert _in_flight() == _NOTHING

    _assert_committed(kafka_broker, prefix, parts)


def test_records_that_the_queue_does_not_take_are_not_waited_for(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Each batch is sent in several parts; the binding sends the first record of each part."""
    kafka_broker.create_topic(prefix)
    parts = [_values(500, 400, number) for number in range(6)]
    settings = sending_settings(kafka_broker, queue_buffering_max_messages="120", linger_ms="1")
    with closing(sending_producer(settings, prefix)) as producer:
        producer.begin()
        for part in parts:
            _send_and_forget(producer, prefix, list(part))
        producer.commit()
        assert _in_flight() == _NOTHING

    _assert_committed(kafka_broker, prefix, parts)


def test_refused_records_are_given_back(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Those that the client refuses, and those that the broker refuses."""
    kafka_broker.create_topic(prefix, settings={"max.message.bytes": "20000"})
    with closing(sending_producer(sending_settings(kafka_broker), prefix)) as producer:
        sender = producer.sender
        assert sender is not None
        records = sender.records(_values(100, 1000))
        assert sender.send(prefix, records, 0, None) == 0  # outside a transaction
        assert _in_flight()[::2] == (1, 0)
        del records
        assert _in_flight() == _NOTHING
        producer.begin()
        producer.send_all(prefix, [(b"k", os.urandom(30_000))] * 3)
        with pytest.raises(BatchRefusedError):
            producer.commit()


@pytest.mark.parametrize("kept", [True, False], ids=["records kept", "records dropped"])
def test_client_that_ends_gives_its_buffers_back(kafka_broker: KafkaBroker, prefix: str, *, kept: bool) -> None:
    """Its messages are destroyed without an acknowledgement. Another client's are not."""
    from tailrace.producer.native.codec import Records  # noqa: PLC0415 - the module is optional

    kafka_broker.create_topic(prefix)
    other = sending_producer(sending_settings(kafka_broker), f"{prefix}-other")
    producer = sending_producer(sending_settings(kafka_broker), prefix)
    records = Records()
    records.extend(_values(300, 700))
    other.begin()
    producer.begin()
    with kafka_broker.paused():
        _send_and_forget(other, prefix, _values(100, 700))
        producer.send_all(prefix, records)
        with pytest.raises(ValueError, match="do not grow"):
            records.extend([(b"k", b"v")])
        assert _in_flight()[::2] == (2, 400)
        if not kept:
            del records
        producer.close()
        assert _in_flight()[::2] == (1 + kept, 100)
        if kept:
            assert list(records) == _values(300, 700)
            other.send_all(prefix, records)
            del records
    other.commit()
    other.close()
    assert _in_flight() == _NOTHING

    _assert_committed(kafka_broker, prefix, [_values(100, 700), _values(300, 700) if kept else []])
