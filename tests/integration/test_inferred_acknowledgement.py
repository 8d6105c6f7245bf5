"""A record that librdkafka takes for delivered although its broker has refused it is not lost."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing

import pytest

from tailrace.producer.kafka import native_sender
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.topics import Topics, TopicSpec
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.native.loader import SWITCH
from tailrace.runtime.errors import KafkaUnavailableError
from tests.embedded.kafka import KafkaBroker
from tests.support.refusing_proxy import RefusingProxy
from tests.support.topics import read_topic

TOPIC = "new"

pytestmark = pytest.mark.kafka


@pytest.fixture
def proxy() -> Iterator[RefusingProxy]:
    """A broker that its clients reach through the proxy; the topic exists."""
    broker = KafkaBroker()
    with RefusingProxy(broker.port, TOPIC) as proxy:
        broker.listen(broker.host, advertised=f"{proxy.host}:{proxy.port}")
        with broker:
            broker.create_topic(TOPIC)
            yield proxy


@pytest.mark.parametrize("native", [True, False])
def test_a_transaction_with_an_inferred_acknowledgement_is_not_committed(
    proxy: RefusingProxy, monkeypatch: pytest.MonkeyPatch, *, native: bool
) -> None:
    """The broker refuses the first batch of a partition and takes the second, as it does when it becomes its leader."""
    if native and (reason := native_sender.unused_because()):
        pytest.skip(f"the extension sends nothing: {reason}")
    monkeypatch.setenv(SWITCH, "1" if native else "0")
    bootstrap = f"{proxy.host}:{proxy.target}"
    settings = KafkaSettings(bootstrap, {}, transaction_timeout_ms=60_000)
    with closing(TransactionalProducer(settings, "id")) as producer:
        assert (producer.sender is not None) is native
        producer.init_transactions()
        producer.begin()
        producer.send_all(TOPIC, [(b"1", b"first")])
        assert proxy.held.wait(30)
        producer.send_all(TOPIC, [(b"1", b"second")])
        with pytest.raises(KafkaUnavailableError, match=r"(?s)a record may not be in Kafka.*hint: wait: the records"):
            producer.commit()
    assert proxy.refused

    with closing(TransactionalProducer(settings, "id")) as producer:
        producer.init_transactions()
        producer.begin()
        producer.send_all(TOPIC, [(b"1", b"first"), (b"1", b"second")])
        producer.commit()

    assert [record.value for record in read_topic(bootstrap, TOPIC)] == [b"first", b"second"]


def test_the_leaders_of_new_topics_are_waited_for(
    kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each partition is queried for, also where the broker decides on their number."""
    settings = KafkaSettings(kafka_broker.bootstrap, {}, transaction_timeout_ms=60_000)
    topics = Topics(settings)
    queried = list[tuple[str, int]]()
    query = topics._admin.list_offsets

    def list_offsets(partitions: dict[object, object], **options: object) -> object:
        queried.extend((str(each.topic), int(each.partition)) for each in partitions)  # type: ignore[attr-defined]
        return query(partitions, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(topics._admin, "list_offsets", list_offsets)
    topics.ensure([TopicSpec(f"{prefix}.a", partitions=3), TopicSpec(f"{prefix}.b", partitions=-1)])

    wanted = {(f"{prefix}.a", number) for number in range(3)} | {(f"{prefix}.b", 0)}
    assert wanted <= set(queried)
    topics.ensure([TopicSpec(f"{prefix}.a", partitions=3)])
