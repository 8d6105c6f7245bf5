"""The producer's configuration: sources of values, rejected values, all problems in one error, no secret printed."""

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
    """Write a configuration file: a text unchanged, anything else as JSON."""
    path = tmp_path / name
    path.write_text(body if isinstance(body, str) else json.dumps(body), encoding="utf-8")
    return path


def problems(flags: Mapping[str, str], environ: Mapping[str, str] | None = None) -> tuple[str, ...]:
    """Return the problems of BASE with some flags; there must be some."""
    with pytest.raises(ConfigError) as caught:
        load(None, environ or {}, {**BASE, **flags})
    return caught.value.problems


def problems_of(path: Path) -> tuple[str, ...]:
    """Return the problems of a file; there must be some."""
    with pytest.raises(ConfigError) as caught:
        load(path, {})
    return caught.value.problems


def loaded_from(environ: Mapping[str, str]) -> ProducerConfig:
    """Load BASE with environment variables."""
    return load(None, environ, BASE)


def loaded(flags: Mapping[str, str]) -> ProducerConfig:
    """Load BASE with some flags."""
    return load(None, {}, {**BASE, **flags})


def test_flat_json_fills_sections_and_keeps_defaults(tmp_path: Path) -> None:
    """Numbers and booleans of JSON are accepted."""
    body = {**BASE, "database.port": 3307, "tombstones.on.delete": False, "table.include.list": None}

    config = load(written(tmp_path, body), {})

    assert (config.database.hostname, config.database.port, config.database.server_id) == ("db.local", 3307, 184054)
    assert config.values.tombstones is False
    assert (config.snapshot.chunk_size, config.snapshot.max_threads) == (8192, 2)
    assert config.warnings == ()


def test_connector_posted_to_kafka_connect_loads_with_warnings(tmp_path: Path) -> None:
    """The documented example of a Debezium connector: the properties of Kafka Connect cause warnings with a reason."""
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


def test_properties_file_has_java_syntax(tmp_path: Path) -> None:
    """Comments, separators, continued lines, escapes."""
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


def test_flags_override_environment_and_environment_overrides_file(tmp_path: Path) -> None:
    """One property in each source."""
    path = written(tmp_path, {**BASE, "database.port": "1", "max.batch.size": "1", "snapshot.max.threads": "1"})

    config = load(path, {"MAX_BATCH_SIZE": "2", "SNAPSHOT_MAX_THREADS": "2"}, {"snapshot.max.threads": "3"})

    assert (config.database.port, config.batch.max_records, config.snapshot.max_threads) == (1, 2, 3)


def test_alias_in_a_flag_overrides_the_name_in_the_file(tmp_path: Path) -> None:
    """Two spellings in one source are a problem."""
    path = written(tmp_path, {**BASE, "incremental.snapshot.chunk.size": "10"})

    config = load(path, {}, {"scan.incremental.snapshot.chunk.size": "20"})

    assert config.snapshot.chunk_size == 20
    both = {"incremental.snapshot.chunk.size": "10", "scan.incremental.snapshot.chunk.size": "20"}
    assert any("another name" in problem for problem in problems(both))


def test_secrets_come_from_files_and_placeholders(tmp_path: Path) -> None:
    """``_FILE`` variables, and the providers file, dir and env of Kafka Connect."""
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


def test_unresolved_placeholders_and_unreadable_files_are_reported(tmp_path: Path) -> None:
    """Missing files, keys and variables, and unknown providers, all in one error."""
    store = written(tmp_path, "a=1\n", "secrets.properties")
    flags = {
        "database.hostname": f"${{file:{store}:b}}",
        "database.user": "${env:NOT_THERE}",
        "topic.prefix": "${vault:secret:key}",
    }
    found = problems(flags, {"DATABASE_PASSWORD_FILE": str(tmp_path / "none")})

    assert len([f for f in found if f.startswith("database.password: the file named by")]) == 1
    assert len([f for f in found if "the file has no key b" in f]) == 1
    assert len([f for f in found if "no such environment variable" in f]) == 1
    assert len([f for f in found if "use ${file:PATH:KEY}" in f]) == 1


def test_all_problems_are_reported_with_name_value_and_what_is_allowed(tmp_path: Path) -> None:
    """A file with seven problems."""
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

    found = problems_of(written(tmp_path, body))

    assert found == (
        "database.port: '33x06' (file) is not a whole number from 1 to 65535",
        "database.server.id: '0' (file) is not a whole number from 1 to 4294967295",
        "topic.prefix: 'sh op' (file) is not letters, digits, '.', '_' and '-' only",
        "decimal.handling.mode: 'exact' (file) is not one of precise, double, string",
        "table.include.lst is not a known property; did you mean table.include.list?",
        "tombstones.on.delete: 'maybe' (file) is not true or false",
        (
            "bootstrap.servers is missing: Kafka brokers, as host:port,host:port; by default those of "
            "`schema.history.internal.kafka.bootstrap.servers`. Expected: a text that is not empty"
        ),
    )


@pytest.mark.parametrize(
    ("name", "value", "part"),
    [
        ("value.converter", "io.confluent.connect.protobuf.ProtobufConverter", "AvroConverter"),
        ("value.converter", "io.confluent.connect.avro.AvroConverter", "schema.registry.url is missing"),
        ("value.converter.schema.registry.url", "registry:8081", "begin with http"),
        ("key.converter.decimal.format", "NUMERIC", "the only allowed value is base64"),
        ("key.converter.use.latest.version", "true", "the only allowed value is false"),
        ("transforms", "unwrap", "transform them in the consumer"),
        ("column.exclude.list", "shop.(customers.email", "is not a regular expression"),
        ("column.mask.with.12.chars", "shop.)", "is not a regular expression"),
        ("column.mask.with.many.chars", "shop.customers.email", "is not a whole number of characters"),
        ("column.truncate.to.-1.chars", "shop.customers.email", "is not a whole number of characters"),
        ("column.propagate.source.type", "[", "is not a regular expression"),
        ("datatype.propagate.source.type", "[", "is not a regular expression"),
        ("snapshot.select.statement.overrides.shop.orders", "SELECT 1", "a table is read completely"),
        ("snapshot.mode", "custom", "Java classes"),
        ("snapshot.mode", "configuration_based", "nothing to do"),
        ("signal.enabled.channels", "source,jmx", "source, kafka, file"),
        ("signal.data.collection", "signals", "db.table"),
        ("notification.enabled.channels", "sink", "the channel sink needs a topic"),
        ("snapshot.mode", "never_heard", "is not one of"),
        ("snapshot.mode", "never_heard", "recovery, configuration_based"),
        ("snapshot.mode", "never", "use no_data"),
        ("snapshot.mode", "Custom", "Java classes"),
        ("event.deserialization.failure.handling.mode", "skip", "it never skips one"),
        ("event.processing.failure.handling.mode", "ignore", "is not one of"),
        ("connector.class", "io.debezium.connector.postgresql.PostgresConnector", "one of mysql, mariadb"),
        ("database.hostnam", "x", "did you mean database.hostname?"),
        ("kafka.acks", "1", "the only allowed value is all"),
        ("kafka.transactional.id", "mine", "remove it"),
        ("producer.override.enable.idempotence", "false", "the only allowed value is true"),
        ("topic.creation.default.partitions", "0", "neither -1 nor greater"),
        ("table.include.list", "shop.(orders", "is not a regular expression"),
        ("message.key.columns", "shop.orders", "not of the form db.table:column,column"),
    ],
)
def test_settings_that_would_change_the_records_are_rejected(name: str, value: str, part: str) -> None:
    """Each is one problem that names the property."""
    found = problems({name: value})

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
        ("connector.class", "mariadb"),
        ("kafka.acks", "all"),
        ("snapshot.mode", "schema_only"),
    ],
)
def test_values_that_change_nothing_are_accepted_silently(name: str, value: str) -> None:
    """A rejected property with a no-op value causes neither a problem nor a warning."""
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
def test_keys_and_values_have_their_own_converters(flags: Mapping[str, str], forms: tuple[str, str]) -> None:
    """As in Kafka Connect, JsonConverter writes schemas by default. Without a converter there are none."""
    assert loaded(flags).converters.forms == forms


def test_java_key_stores_are_rejected_with_a_hint_to_pem(tmp_path: Path) -> None:
    """So are other options of the registry client that are not supported; all in one error."""
    store = tmp_path / "trust.jks"
    store.write_bytes(b"\xfe\xed\xfe\xed\x00\x00\x00\x02")
    name = "value.converter.schema.registry.ssl"

    found = problems(
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


def test_credentials_of_a_registry_are_never_printed() -> None:
    """Neither those in the URL nor those of the property."""
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


def test_include_and_exclude_list_exclude_each_other() -> None:
    """As in Debezium."""
    found = problems({"table.include.list": "a.b", "table.exclude.list": "a.c", "database.include.list": "a"})

    assert found == ("table.include.list and table.exclude.list exclude each other; keep one",)


def test_name_given_twice_is_a_problem(tmp_path: Path) -> None:
    """Otherwise the second value would silently replace the first."""
    twice = '{"topic.prefix": "a", "topic.prefix": "b"}'
    assert any("given twice" in problem for problem in problems_of(written(tmp_path, twice)))
    assert any(
        "given twice" in problem
        for problem in problems_of(written(tmp_path, "topic.prefix=a\ntopic.prefix=b\n", "p.properties"))
    )


@pytest.mark.parametrize(
    ("name", "body", "part"),
    [
        ("c.json", '{"topic.prefix": ', "is not JSON: line 1"),
        ("c.json", "topic.prefix=a", "is not JSON: line 1"),
        ("c.json", "[1]", "is not a JSON object"),
        ("c.json", '{"topic.prefix": ["a"]}', "topic.prefix is a list"),
        ("c.json", '{"name": "x", "config": {}, "other": 1}', 'next to "config"'),
        ("c.properties", "=value\n", "not of the form name=value"),
        ("c.properties", "a=\\u12\n", "four hexadecimal digits"),
    ],
)
def test_file_with_wrong_syntax_is_reported(tmp_path: Path, name: str, body: str, part: str) -> None:
    assert any(part in problem for problem in problems_of(written(tmp_path, body, name)))


def test_missing_file_is_reported(tmp_path: Path) -> None:
    """With the reason that the operating system gives, and without the properties that are missing with it."""
    [problem] = problems_of(tmp_path / "none.json")
    assert "No such file" in problem


def test_secrets_are_never_printed() -> None:
    """Neither in repr, nor in the effective configuration, nor in problems."""
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
    rejection = problems({"database.ssl.keystore.password": "geheim", "database.sslPassword": "geheim"})
    assert "geheim" not in "".join(rejection)


def test_kafka_options_have_two_prefixes() -> None:
    """``producer.override.`` and ``kafka.`` are the same; environment variables have the first."""
    flags = {**BASE, "kafka.sasl.password": "geheim", "producer.override.security.protocol": "SASL_SSL"}
    config = load(None, {"PRODUCER_OVERRIDE_LINGER_MS": "7"}, flags)

    assert config.kafka.client_settings() == {
        "bootstrap.servers": "kafka:9092",
        "sasl.password": "geheim",
        "security.protocol": "SASL_SSL",
        "linger.ms": "7",
    }
    assert "different values" in problems({"kafka.linger.ms": "1", "producer.override.linger.ms": "2"})[0]


def test_topic_settings_are_collected() -> None:
    """Partitions and replication factor are properties of their own; other settings are passed on."""
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


def test_configuration_is_frozen_and_can_be_pickled() -> None:
    """Snapshot readers are processes. The cached filters must not prevent pickling."""
    config = loaded({"table.include.list": "shop.orders"})
    assert config.filters.tables.includes(TableId("shop", "orders"))

    copy = pickle.loads(pickle.dumps(config))  # noqa: S301 - our own bytes

    assert copy == config
    assert not copy.filters.tables.includes(TableId("shop", "other"))
    with pytest.raises(ValidationError):
        config.database.port = 1


def test_modes_become_value_options() -> None:
    """With Debezium's words."""
    settings = loaded({"time.precision.mode": "isostring", "binary.handling.mode": "hex"}).values.options

    assert (
        settings.time_precision_mode,
        settings.binary_handling_mode,
        settings.decimal_handling_mode,
    ) == ("isostring", "hex", "precise")


def test_initial_statements_keep_doubled_semicolons() -> None:
    """``;;`` is a semicolon within a statement."""
    config = loaded({"database.initial.statements": "SET a = 1; SET b = 'x;;y' ;"})

    assert config.database.initial_statements == ("SET a = 1", "SET b = 'x;y'")


def test_property_name_that_ends_in_file_is_not_a_file_variable() -> None:
    """``SIGNAL_FILE`` is the property signal.file."""
    assert loaded_from({"SIGNAL_FILE": "file-signals.txt"}).warnings == ()


def test_secrets_of_the_kafka_client_can_be_files(tmp_path: Path) -> None:
    """``_FILE`` works for options of the Kafka client too."""
    secret = written(tmp_path, "geheim\n", "secret")

    config = loaded_from({"PRODUCER_OVERRIDE_SASL_PASSWORD_FILE": str(secret)})

    assert config.kafka.client_settings()["sasl.password"] == "geheim"


@pytest.mark.parametrize(
    "name",
    [
        "kafka.sasl.oauthbearer.config",
        "kafka.sasl.oauthbearer.extensions",
        "kafka.sasl.kerberos.kinit.cmd",
        "kafka.option.of.a.later.version",
        "signal.consumer.sasl.oauthbearer.config",
        "database.initial.statements",
        "heartbeat.action.query",
    ],
)
def test_settings_that_may_be_secrets_are_masked(name: str) -> None:
    """What is passed on is shown only if its name is known to be harmless."""
    shown = describe(load(None, {}, {**BASE, name: "open-sesame"}))

    assert "open-sesame" not in str(shown)
    assert shown[name] == "********"


def test_harmless_settings_are_shown() -> None:
    """The names that a support request needs."""
    harmless = {
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.mechanism": "PLAIN",
        "kafka.linger.ms": "7",
        "kafka.queue.buffering.max.kbytes": "1048576",
        "kafka.ssl.ca.location": "/etc/ca.pem",
    }
    shown = describe(load(None, {}, {**BASE, **harmless}))

    assert {name: shown[name] for name in harmless} == harmless


def test_salt_in_a_misspelled_name_is_masked() -> None:
    """The name is printed as unknown, without its secret part."""
    [problem] = problems({"columns.mask.hash.SHA-256.with.salt.open-sesame": "shop.*"})

    assert "open-sesame" not in problem
    assert "is not a known property" in problem


@pytest.mark.parametrize("body", ["[" * 100_000, '{"a":' * 100_000, '{"database.port": ' + "1" * 5000 + "}"])
def test_json_that_python_cannot_hold_is_a_problem(tmp_path: Path, body: str) -> None:
    """Neither a RecursionError nor a ValueError."""
    with pytest.raises(ConfigError, match="cannot be read"):
        load(written(tmp_path, body), {}, BASE)
