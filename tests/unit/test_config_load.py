"""The configuration: where values come from, what is refused, and that every fault is told at once without a secret."""

from __future__ import annotations

import json
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from tailrace.producer.config import ProducerConfig, describe, load
from tailrace.producer.model.table import TableId
from tailrace.runtime.errors import ConfigError

BASE = {
    "database.hostname": "db.local",
    "database.user": "cdc",
    "database.password": "hush-hush",
    "database.server.id": "184054",
    "topic.prefix": "shop",
    "bootstrap.servers": "kafka:9092",
}


def written(tmp_path: Path, body: Any, name: str = "config.json") -> Path:
    """Write a configuration file; a text is written as it is."""
    path = tmp_path / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return path


def faults(flags: Mapping[str, str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the faults of BASE with some flags over it; there must be some."""
    with pytest.raises(ConfigError) as caught:
        load(None, environ or {}, {**BASE, **flags})
    return caught.value.faults


def faults_of(path: Path) -> tuple[str, ...]:
    """Return the faults of a file; there must be some."""
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return caught.value.faults


def loaded_from(environ: Mapping[str, str]) -> ProducerConfig:
    """Load BASE with an environment under it."""
    return load(None, environ, BASE)


def loaded(flags: Mapping[str, str]) -> ProducerConfig:
    """Load BASE with some flags over it."""
    return load(None, {}, {**BASE, **flags})


def test_flat_json_fills_sections_and_keeps_defaults_of(tmp_path: Path) -> None:
    """Numbers and booleans of JSON are taken as they are."""
    body = {**BASE, "database.port": 3307, "tombstones.on.delete": False, "table.include.list": None}

    config = load(written(tmp_path, body), {})

    assert (config.database.hostname, config.database.port, config.database.server_id) == ("db.local", 3307, 184054)
    assert config.values.tombstones is False
    assert (config.snapshot.chunk_size, config.snapshot.max_threads) == (8192, 2)
    assert config.warnings == ()


def test_a_connector_as_posted_to_kafka_connect_runs_with_warnings(tmp_path: Path) -> None:
    """The documented example of a Debezium connector: Connect's own keys give warnings that say why."""
    body = {
        "name": "inventory-connector",
        "config": {
            "connector.class": "io.debezium.connector.mysql.MySqlConnector",
            "tasks.max": "1",
            "database.hostname": "192.168.99.100",
            "database.port": "3306",
            "database.user": "debezium-user",
            "database.password": "debezium-user-pw",
            "database.server.id": "184054",
            "topic.prefix": "fullfillment",
            "database.include.list": "inventory",
            "schema.history.internal.kafka.bootstrap.servers": "kafka:9092",
            "schema.history.internal.kafka.topic": "schemahistory.fullfillment",
            "include.schema.changes": "false",
            "snapshot.locking.mode": "minimal",
        },
    }

    config = load(written(tmp_path, body), {})

    assert config.kafka.bootstrap_servers == "kafka:9092"
    warned = [warning.partition(" has no effect: ")[0] for warning in config.warnings]
    assert warned == [
        "name",
        "schema.history.internal.kafka.bootstrap.servers",
        "schema.history.internal.kafka.topic",
        "snapshot.locking.mode",
    ]
    assert all(len(warning.partition(": ")[2]) > 10 for warning in config.warnings)


def test_properties_file_is_read_with_javas_escapes(tmp_path: Path) -> None:
    """Comments, both separators, continued lines, escapes."""
    text = (
        "# a comment\n! another\n"
        "database.hostname=db.local\n"
        "database.user : cdc\n"
        "database.password=a\\=b\\u0021 \n"
        "database.server.id 5\n"
        "topic.prefix = shop\r\n"
        "table.include.list=shop\\\\.orders,\\\n    shop.customers\n"
        "bootstrap.servers=k1:9092,k2:9092\n"
    )

    config = load(written(tmp_path, text, "config.properties"), {})

    assert config.database.password.get_secret_value() == "a=b! "
    assert config.filters.table_include == "shop\\.orders,shop.customers"
    assert (config.database.user, config.database.server_id, config.topics.prefix) == ("cdc", 5, "shop")


def test_flags_win_over_environment_and_environment_over_file(tmp_path: Path) -> None:
    """One property at each level."""
    path = written(tmp_path, {**BASE, "database.port": "1", "max.batch.size": "1", "snapshot.max.threads": "1"})

    config = load(path, {"MAX_BATCH_SIZE": "2", "SNAPSHOT_MAX_THREADS": "2"}, {"snapshot.max.threads": "3"})

    assert (config.database.port, config.batch.max_records, config.snapshot.max_threads) == (1, 2, 3)


def test_an_alias_in_a_flag_replaces_the_name_in_the_file(tmp_path: Path) -> None:
    """Flink CDC's name for the chunk size wins from a flag; both in one place are a fault."""
    path = written(tmp_path, {**BASE, "incremental.snapshot.chunk.size": "10"})

    config = load(path, {}, {"scan.incremental.snapshot.chunk.size": "20"})

    assert config.snapshot.chunk_size == 20
    both = {"incremental.snapshot.chunk.size": "10", "scan.incremental.snapshot.chunk.size": "20"}
    assert any("another name" in fault for fault in faults(both))


def test_secrets_come_from_files_and_placeholders(tmp_path: Path) -> None:
    """A mounted file by ``_FILE``, Connect's file, dir and env providers."""
    secret = written(tmp_path, "s3cret\n", "password")
    store = written(tmp_path, "db.user=cdc-reader\nhost=h2\n", "secrets.properties")
    environ = {"DATABASE_PASSWORD_FILE": str(secret), "PREFIX": "from-env"}
    flags = {
        **{name: value for name, value in BASE.items() if name != "database.password"},
        "database.user": f"${{file:{store}:db.user}}",
        "database.hostname": f"${{dir:{tmp_path}:password}}.local",
        "topic.prefix": "${env:PREFIX}",
    }

    config = load(None, environ, flags)

    assert config.database.password.get_secret_value() == "s3cret"
    assert (config.database.user, config.database.hostname) == ("cdc-reader", "s3cret.local")
    assert config.topics.prefix == "from-env"


def test_what_cannot_be_filled_or_read_is_told(tmp_path: Path) -> None:
    """Missing files, keys, variables and unknown providers are faults beside each other."""
    store = written(tmp_path, "a=1\n", "secrets.properties")
    flags = {
        "database.hostname": f"${{file:{store}:b}}",
        "database.user": "${env:NOT_THERE}",
        "topic.prefix": "${vault:secret:key}",
    }
    found = faults(flags, {"DATABASE_PASSWORD_FILE": str(tmp_path / "none")})

    assert len([f for f in found if f.startswith("database.password: the file named by")]) == 1
    assert len([f for f in found if "the file has no key b" in f]) == 1
    assert len([f for f in found if "no such environment variable" in f]) == 1
    assert len([f for f in found if "use ${file:PATH:KEY}" in f]) == 1


def test_all_faults_are_told_at_once_with_name_value_and_what_is_allowed(tmp_path: Path) -> None:
    """A file with seven things wrong."""
    body = {
        "database.hostname": "h",
        "database.port": "33x06",
        "database.user": "u",
        "database.server.id": "0",
        "topic.prefix": "sh op",
        "decimal.handling.mode": "exact",
        "table.include.lst": "shop.*",
        "tombstones.on.delete": "maybe",
    }

    found = faults_of(written(tmp_path, body))

    assert found == (
        "database.port: '33x06' (file) is not a whole number from 1 to 65535",
        "database.server.id: '0' (file) is not a whole number from 1 to 4294967295",
        "topic.prefix: 'sh op' (file) is not letters, digits, '.', '_' and '-' only",
        "decimal.handling.mode: 'exact' (file) is not one of precise, double, string",
        "table.include.lst is not a known property; did you mean table.include.list?",
        "tombstones.on.delete: 'maybe' (file) is not true or false",
        (
            "bootstrap.servers is missing: Kafka brokers as host:port,host:port; where it is missing, "
            "`schema.history.internal.kafka.bootstrap.servers` holds. Expected a text that is not empty"
        ),
    )


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("value.converter", "io.confluent.connect.protobuf.ProtobufConverter", "AvroConverter"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", "schema.registry.url is missing"),
        ("value.converter.schema.registry.url", "registry:8081", "begin with http"),
        ("key.converter.decimal.format", "NUMERIC", "it may only be base64"),
        ("key.converter.use.latest.version", "true", "it may only be false"),
        ("transforms", "unwrap", "change them in the consumer"),
        ("column.exclude.list", "shop.(customers.email", "is not a regular expression"),
        ("column.mask.with.12.chars", "shop.)", "is not a regular expression"),
        ("column.mask.with.many.chars", "shop.customers.email", "is not a whole number of characters"),
        ("column.truncate.to.-1.chars", "shop.customers.email", "is not a whole number of characters"),
        ("column.propagate.source.type", "[", "is not a regular expression"),
        ("datatype.propagate.source.type", "[", "is not a regular expression"),
        ("snapshot.select.statement.overrides.shop.orders", "SELECT 1", "by key over the whole table"),
        ("snapshot.mode", "custom", "Java classes"),
        ("snapshot.mode", "configuration_based", "nothing to do"),
        ("signal.enabled.channels", "source,jmx", "source, kafka, file"),
        ("signal.data.collection", "signals", "db.table"),
        ("notification.enabled.channels", "sink", "the channel sink needs a topic"),
        ("snapshot.mode", "never_heard", "is not one of"),
        ("snapshot.mode", "never_heard", "recovery, configuration_based"),
        ("snapshot.mode", "never", "use no_data"),
        ("snapshot.mode", "Custom", "Java classes"),
        ("event.processing.failure.handling.mode", "skip", "none is ever skipped"),
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector", "MySQL connector only"),
        ("database.hostnam", "x", "did you mean database.hostname?"),
        ("kafka.acks", "1", "it may only be all"),
        ("kafka.transactional.id", "mine", "leave it out"),
        ("producer.override.enable.idempotence", "false", "it may only be true"),
        ("topic.creation.default.partitions", "0", "neither -1 nor greater"),
        ("table.include.list", "shop.(orders", "is not a regular expression"),
        ("message.key.columns", "shop.orders", "not of the form db.table:column,column"),
    ],
)
def test_what_would_change_the_data_is_refused(name: str, value: str, part: str) -> None:
    """Each is one fault that names the property."""
    found = faults({name: value})

    assert len(found) == 1
    assert name.rsplit(".", maxsplit=1)[-1] in found[0]
    assert part in found[0]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("heartbeat.interval.ms", "0"),
        ("schema.name.adjustment.mode", "none"),
        ("read.only", "true"),
        ("snapshot.query.mode", "select_all"),
        ("column.exclude.list", ""),
        ("connector.class", "io.debezium.connector.mysql.MySqlConnector"),
        ("kafka.acks", "all"),
        ("snapshot.mode", "schema_only"),
    ],
)
def test_what_asks_for_nothing_is_taken_silently(name: str, value: str) -> None:
    """A refused property with the value that holds anyway is neither fault nor warning."""
    assert loaded({name: value}).warnings == ()


@pytest.mark.parametrize(
    ("flags", "forms"),
    [
        ({}, ("json", "json")),
        ({"value.converter": "org.apache.kafka.connect.json.JsonConverter"}, ("json", "json-schema")),
        (
            {
                "value.converter": "org.apache.kafka.connect.json.JsonConverter",
                "value.converter.schemas.enable": "false",
            },
            ("json", "json"),
        ),
        ({"key.converter.schemas.enable": "true"}, ("json-schema", "json")),
        (
            {
                "key.converter": "io.confluent.connect.avro.AvroConverter",
                "key.converter.schema.registry.url": "http://registry:8081",
            },
            ("avro", "json"),
        ),
    ],
)
def test_key_and_value_have_each_their_converter(flags: Mapping[str, str], forms: tuple[str, str]) -> None:
    """Connect's JsonConverter, once named, writes schemas unless told otherwise; nothing named is JSON without."""
    assert loaded(flags).converters.forms == forms


def test_java_key_stores_are_refused_with_the_way_to_pem(tmp_path: Path) -> None:
    """As is what a registry's client would do silently otherwise than told; all at once."""
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    name = "value.converter.schema.registry.ssl"

    found = faults(
        {
            f"{name}.truststore.location": str(store),
            f"{name}.truststore.password": "hush",
            f"{name}.keystore.location": str(tmp_path / "none.pem"),
            f"{name}.keystore.type": "JKS",
            f"{name}.endpoint.identification.algorithm": "",
            "value.converter.use.latest.version": "true",
        }
    )

    assert len(found) == 6
    assert "keytool -exportcert" in next(each for each in found if "truststore.location" in each)
    assert not any("hush" in each for each in found)


def test_the_users_of_a_registry_are_never_printed() -> None:
    """Neither from its URL nor from the property for them."""
    config = loaded(
        {
            "value.converter": "io.confluent.connect.avro.AvroConverter",
            "value.converter.schema.registry.url": "http://user:hush-url@registry:8081/api",
            "value.converter.basic.auth.user.info": "user:hush-info",
        }
    )

    settings = config.converters.registry("value")
    printed = f"{describe(config)} {config!r} {settings!r}"
    assert "hush" not in printed
    assert "http://registry:8081/api" in repr(settings)


def test_include_and_exclude_of_one_kind_exclude_each_other() -> None:
    """As in Debezium."""
    found = faults({"table.include.list": "a.b", "table.exclude.list": "a.c", "database.include.list": "a"})

    assert found == ("table.include.list and table.exclude.list exclude each other: keep one",)


def test_a_name_given_twice_is_a_fault(tmp_path: Path) -> None:
    """In JSON and in .properties the second would win silently."""
    twice = '{"topic.prefix": "a", "topic.prefix": "b"}'
    assert any("given twice" in fault for fault in faults_of(written(tmp_path, twice)))
    assert any(
        "given twice" in fault
        for fault in faults_of(written(tmp_path, "topic.prefix=a\ntopic.prefix=b\n", "p.properties"))
    )


@pytest.mark.parametrize(
    ("body", "part"),
    [
        ('{"topic.prefix": ', "is not JSON"),
        ('{"topic": {"prefix": "a"}}', "every setting is one text"),
        ('{"name": "x", "config": {}, "other": 1}', 'beside "config"'),
        ("=value\n", "not of the form name=value"),
    ],
)
def test_a_file_of_another_form_is_told(tmp_path: Path, body: str, part: str) -> None:
    """Never a traceback of the parser."""
    assert any(part in fault for fault in faults_of(written(tmp_path, body)))


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    """With the reason of the system."""
    assert "No such file" in faults_of(tmp_path / "none.json")[0]


def test_secrets_are_never_printed() -> None:
    """Not in repr, not in the effective configuration, not in faults, not in the faults of pydantic."""
    config = loaded({"kafka.sasl.password": "geheim", "kafka.linger.ms": "5"})

    shown = describe(config)
    assert (
        shown["database.password"],
        shown["kafka.sasl.password"],
        shown["kafka.linger.ms"],
    ) == ("********", "********", "5")
    everything = repr(config) + str(shown) + str(config.model_dump())
    assert "hush" not in everything
    assert "geheim" not in everything
    refusal = faults({"database.ssl.keystore.password": "geheim", "database.sslPassword": "geheim"})
    assert "geheim" not in "".join(refusal)


def test_kafka_settings_reach_librdkafka_in_clear_by_either_prefix() -> None:
    """``producer.override.`` and ``kafka.`` are one; the environment knows the first."""
    flags = {**BASE, "kafka.sasl.password": "geheim", "producer.override.security.protocol": "SASL_SSL"}
    config = load(None, {"PRODUCER_OVERRIDE_LINGER_MS": "7"}, flags)

    assert config.kafka.client_settings() == {
        "bootstrap.servers": "kafka:9092",
        "sasl.password": "geheim",
        "security.protocol": "SASL_SSL",
        "linger.ms": "7",
    }
    assert "different values" in faults({"kafka.linger.ms": "1", "producer.override.linger.ms": "2"})[0]


def test_topic_settings_are_gathered() -> None:
    """Partitions and replicas are their own; everything else goes to the topic as it is."""
    config = loaded(
        {
            "topic.creation.default.partitions": "6",
            "topic.creation.default.replication.factor": "3",
            "topic.creation.default.retention.ms": "-1",
        }
    )

    assert (
        config.topics.partitions,
        config.topics.replication_factor,
        config.topics.settings,
    ) == (6, 3, {"retention.ms": "-1"})


def test_the_configuration_is_frozen_and_travels_to_other_processes() -> None:
    """Readers are processes: the filters that were made of it must not hinder it."""
    config = loaded({"table.include.list": "shop.orders"})
    assert config.filters.tables.wanted(TableId("shop", "orders"))

    copy = pickle.loads(pickle.dumps(config))  # noqa: S301 - our own bytes

    assert copy == config
    assert not copy.filters.tables.wanted(TableId("shop", "other"))
    with pytest.raises(ValidationError):
        config.database.port = 1


def test_modes_reach_the_value_settings() -> None:
    """Debezium's words, in the names of the type table."""
    settings = loaded({"time.precision.mode": "isostring", "binary.handling.mode": "hex"}).values.settings

    assert (
        settings.time_precision_mode,
        settings.binary_handling_mode,
        settings.decimal_handling_mode,
    ) == ("isostring", "hex", "precise")


def test_initial_statements_keep_doubled_semicolons() -> None:
    """``;;`` is the character itself."""
    config = loaded({"database.initial.statements": "SET a = 1; SET b = 'x;;y' ;"})

    assert config.database.initial_statements == ("SET a = 1", "SET b = 'x;y'")


def test_a_variable_that_ends_in_file_by_its_own_name_is_no_mounted_file() -> None:
    """``SIGNAL_FILE`` is signal.file; secrets of the Kafka client can be mounted."""
    assert loaded_from({"SIGNAL_FILE": "file-signals.txt"}).warnings == ()


def test_secrets_of_the_kafka_client_can_be_mounted(tmp_path: Path) -> None:
    """By the variable of the client's setting with ``_FILE``."""
    secret = written(tmp_path, "geheim\n", "secret")

    config = loaded_from({"PRODUCER_OVERRIDE_SASL_PASSWORD_FILE": str(secret)})

    assert config.kafka.client_settings()["sasl.password"] == "geheim"
