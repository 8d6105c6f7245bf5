"""Settings of the Kafka clients: Java's names, options that cannot be used, requests that a controller accepts."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaError, KafkaException

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.config import load
from tailrace.producer.config.java_client import client_options
from tailrace.producer.errors import KafkaAuthenticationError, ProducerFencedError
from tailrace.producer.kafka import topics
from tailrace.producer.kafka.client import KafkaSettings, check_options
from tailrace.producer.kafka.errors import NO_LEADER, UNKNOWN_PARTITION, translate
from tailrace.producer.kafka.topics import TopicSpec, own_topics, request_batches
from tailrace.producer.snapshot.reader import SnapshotReader
from tailrace.producer.snapshot.workers import Message, SplitCommitting, SplitFailed, serve
from tailrace.runtime.errors import ConfigError, KafkaRequestError, KafkaUnavailableError, Retryable, exit_code_of
from tailrace.runtime.exit_code import ExitCode
from tailrace.schemas.names import state_topic, watermarks_topic

BASE = {
    "database.hostname": "h",
    "database.user": "u",
    "database.server.id": "1",
    "topic.prefix": "p",
    "bootstrap.servers": "b:1",
}


def _settings(**overrides: str) -> KafkaSettings:
    named = {f"producer.override.{name.replace('_', '.')}": value for name, value in overrides.items()}
    return kafka_settings(load(None, {}, {**BASE, **named}))


def test_java_names_of_debezium_configurations() -> None:
    """A size, the memory and a login module; the client accepts the result."""
    jaas = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="cdc" password="a\\"b;c";'
    settings = _settings(
        max_request_size="8000000",
        buffer_memory="33554432",
        security_protocol="SASL_PLAINTEXT",
        sasl_mechanism="SCRAM-SHA-256",
        sasl_jaas_config=jaas,
    )

    found = settings.producer("id")
    assert (found["message.max.bytes"], found["queue.buffering.max.kbytes"]) == ("8000000", "32768")
    assert (found["sasl.username"], found["sasl.password"]) == ("cdc", 'a"b;c')
    check_options(settings)


def test_the_second_connection_of_every_client_comes_soon() -> None:
    """The client waits half of the time between two attempts, also if the first succeeded. The time can be chosen."""
    chosen = _settings(reconnect_backoff_ms="70")

    for settings in (_settings().common(), _settings().producer("id"), _settings().consumer()):
        assert settings["reconnect.backoff.ms"] == 20
    for settings in (chosen.common(), chosen.producer("id"), chosen.consumer()):
        assert settings["reconnect.backoff.ms"] == "70"
    check_options(chosen)


def test_stores_of_java() -> None:
    """PEM and PKCS12 can be read; the empty host name check of Java is `none`."""
    pem = {"ssl.truststore.type": "PEM", "ssl.truststore.location": "/ca.pem"}
    key = {"ssl.keystore.type": "PEM", "ssl.keystore.location": "/me.pem", "ssl.key.password": "s"}
    pkcs12 = {"ssl.keystore.location": "/me.p12", "ssl.keystore.password": "s"}

    assert client_options(pem).options == {"ssl.ca.location": "/ca.pem"}
    assert client_options(key).options == {
        "ssl.certificate.location": "/me.pem",
        "ssl.key.location": "/me.pem",
        "ssl.key.password": "s",
    }
    assert client_options(pkcs12).options == pkcs12
    none = client_options({"ssl.endpoint.identification.algorithm": ""})
    assert none.options == {"ssl.endpoint.identification.algorithm": "none"}


@pytest.mark.parametrize(
    ("name", "value", "remedy"),
    [
        ("interceptor.classes", "a.B", "remove it"),
        ("ssl.truststore.location", "/ca.jks", "as PEM"),
        ("ssl.keystore.location", "/me.jks", "convert it"),
        ("sasl.jaas.config", 'x.OAuthBearerLoginModule required a="hush";', "sasl.username"),
        ("sasl.jaas.config", 'x.PlainLoginModule required username="u";', "password is missing"),
        ("buffer.memory", "much", "not a number"),
    ],
)
def test_options_that_cannot_be_used(name: str, value: str, remedy: str) -> None:
    """Named by property, with a remedy and without the secret."""
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {**BASE, f"producer.override.{name}": value})

    assert f"producer.override.{name}" in str(caught.value)
    assert remedy in str(caught.value)
    assert "hush" not in str(caught.value)


@pytest.mark.parametrize("transaction_timeout_ms", [1000, 60_000])
@pytest.mark.parametrize("delivery_timeout", [{}, {"delivery.timeout.ms": "900"}, {"message.timeout.ms": "0"}])
def test_records_linger_for_less_than_they_may_take(
    transaction_timeout_ms: int, delivery_timeout: dict[str, str]
) -> None:
    """The client refuses other settings."""
    check_options(KafkaSettings("b:1", delivery_timeout, transaction_timeout_ms))


@pytest.mark.parametrize(
    ("batch_size", "largest", "expected"),
    [("4000000", "1048000", 1_048_000), ("4000000", "8000000", 4_000_000), ("16384", "1048000", 16_384)],
)
def test_a_batch_is_at_most_what_is_sent_at_once(batch_size: str, largest: str, expected: int) -> None:
    """Full batches are waited for, so the client may not wait for more."""
    overrides = {"batch.size": batch_size, "message.max.bytes": largest}

    assert KafkaSettings("b:1", overrides, 60_000).producer("id")["batch.size"] == expected


def test_options_of_java_alone_are_reported() -> None:
    config = load(None, {}, {**BASE, "producer.override.max.block.ms": "1"})

    assert any("producer.override.max.block.ms has no effect" in warning for warning in config.warnings)
    check_options(kafka_settings(config))


def test_options_that_the_client_does_not_know() -> None:
    """All of them at once, before anything is connected."""
    with pytest.raises(ConfigError) as caught:
        check_options(_settings(max_requst_size="1", linger_ms="soon", compression_type="lz4"))

    assert "max.requst.size" in str(caught.value)
    assert "linger.ms" in str(caught.value)
    assert len(caught.value.problems) == 2


def test_options_that_contradict_each_other() -> None:
    with pytest.raises(ConfigError, match="ssl"):
        check_options(_settings(security_protocol="ssl", ssl_ca_location="/does/not/exist.pem"))


def test_topics_are_created_in_requests_that_a_controller_accepts() -> None:
    """Each request writes far fewer than 10,000 records; every topic is in one, in order."""
    specs = [TopicSpec(f"t{n}", partitions) for n, partitions in enumerate([1] * 5_000 + [-1] * 2_000 + [9_000, 1])]

    batches = list(request_batches(specs))

    assert [spec for batch in batches for spec in batch] == specs
    assert max(sum(spec.cost for spec in batch) for batch in batches if len(batch) > 1) <= 2_000
    assert len(batches) < 30
    assert list(request_batches([])) == []


def test_settings_of_own_topics() -> None:
    """Certificates never expire, and a start reads little state."""
    specs = {spec.name: spec for spec in own_topics("p", replication_factor=3)}

    assert specs[watermarks_topic("p")].config["retention.ms"] == "-1"
    assert specs[watermarks_topic("p")].config["retention.bytes"] == "-1"
    assert int(specs[state_topic("p")].config["segment.ms"]) <= 600_000
    assert {spec.partitions for spec in specs.values()} == {1}
    assert {spec.replication_factor for spec in specs.values()} == {3}


def test_reader_reports_that_it_is_fenced() -> None:
    """The capture must know: the process with the binlog reader may be fenced as well."""

    def fenced() -> SnapshotReader:
        raise ProducerFencedError("fenced")

    sent: list[Message | SplitCommitting] = []
    serve(3, fenced, lambda: None, sent.append)

    [failed] = sent
    assert isinstance(failed, SplitFailed)
    assert isinstance(failed.error, ProducerFencedError)


@pytest.mark.parametrize("login", [KafkaError._AUTHENTICATION, KafkaError.SASL_AUTHENTICATION_FAILED])
def test_a_refused_login_names_the_settings_and_is_retried_by_a_running_producer(login: int) -> None:
    """Most calls only time out: the client tells of its connections apart."""
    refused = KafkaError(login, "Invalid username or password")
    timed_out = KafkaException(KafkaError(KafkaError._TIMED_OUT))
    for error in (translate(KafkaException(refused), "x"), translate(timed_out, "x", cause=refused)):
        assert isinstance(error, KafkaAuthenticationError)
        assert isinstance(error, Retryable)
        assert exit_code_of(error) == ExitCode.CONFIG
        assert "sasl.jaas.config" in error.hint
        assert "Invalid username or password" in str(error)
    too_large = KafkaException(KafkaError(KafkaError.INVALID_RECORD))
    assert not isinstance(translate(too_large, "x", cause=refused), KafkaAuthenticationError)


@pytest.mark.parametrize("code", sorted(NO_LEADER | UNKNOWN_PARTITION))
def test_errors_of_a_moved_partition_are_retried(code: int) -> None:
    error = translate(KafkaException(KafkaError(code)), "reading a topic")

    assert isinstance(error, Retryable)
    assert isinstance(error, KafkaUnavailableError)


@pytest.mark.parametrize(
    ("code", "message", "hint"),
    [
        (KafkaError._FENCED, "another producer with its", "run one producer for one topic.prefix; if this process was"),
        (
            KafkaError.INVALID_TRANSACTION_TIMEOUT,
            "longer than",
            "lower producer.override.transaction.timeout.ms, or ra",
        ),
        (
            KafkaError.INVALID_TIMESTAMP,
            "clock of this host",
            "correct the clocks, or raise message.timestamp.after.max",
        ),
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "denied access", "grant the account what docs/operations.md lists for"),
        (
            KafkaError._ALL_BROKERS_DOWN,
            "did not answer",
            "check bootstrap.servers, the security settings, and that the",
        ),
        (KafkaError.INVALID_CONFIG, "rejected a request", "fix the cause that the broker reports, then restart"),
    ],
)
def test_errors_of_kafka_have_a_way_on(code: int, message: str, hint: str) -> None:
    error = translate(KafkaException(KafkaError(code)), "reading a topic")

    assert message in error.message
    assert error.hint.startswith(hint)
    assert error.context["operation"] == "reading a topic"


def test_topics_that_the_producer_cannot_use_are_named_with_what_is_expected() -> None:
    """One that has the setting of the hint is accepted."""
    [state] = [spec for spec in own_topics("p", replication_factor=1) if spec.name == state_topic("p")]
    for policy in ("delete", "compact,delete"):
        with pytest.raises(KafkaRequestError, match=f"(?s)state must be compacted.*seen: {policy}") as refused:
            topics._verify_kept(state, {"cleanup.policy": policy})
        assert refused.value.hint == "set cleanup.policy=compact on topic p.tailrace.state"
    topics._verify_kept(state, {"cleanup.policy": "compact"})
