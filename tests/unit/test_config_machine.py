"""The configuration machine: the same files, variables and placeholders give the same result in both halves."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest

from tailrace.producer import config as producer
from tailrace.runtime.config.definition import ConfigDefinition, Group
from tailrace.runtime.config.environment import environment_name, resolve_placeholders
from tailrace.runtime.config.files import Setting
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.property_table import PropertyTable
from tailrace.runtime.config.section import RootConfig, Section, prefixed, section, supported
from tailrace.runtime.config.value_types import ANY_TEXT, BOOLEAN, SECRET, TEXT, integer, set_of
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config as consumer

PRODUCER = {
    "database.hostname": "db",
    "database.user": "cdc",
    "database.server.id": "1",
    "bootstrap.servers": "kafka:9092",
}
CONSUMER = {"bootstrap.servers": "kafka:9092", "checkpointLocation": "/checkpoint", "sink": "console"}


def load_producer(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic prefix and the HTTP port of a producer's configuration."""
    loaded = producer.load(path, environ, {**PRODUCER, **flags})
    return loaded.topics.prefix, loaded.ops.http_port


def load_consumer(path: Path | None, environ: Mapping[str, str], flags: Mapping[str, str]) -> tuple[str, int]:
    """Return the topic prefix and the HTTP port of a consumer's configuration."""
    loaded = consumer.load(path, environ, {**CONSUMER, **flags})
    return loaded.topic_prefix, loaded.monitor_port


Load = Callable[[Path | None, Mapping[str, str], Mapping[str, str]], tuple[str, int]]
HALVES = pytest.mark.parametrize(
    ("load", "port"),
    [(load_producer, "tailrace.http.port"), (load_consumer, "monitor.port")],
    ids=["producer", "consumer"],
)


def nested(name: str, value: Any) -> dict[str, Any]:
    """Return a JSON object for each part of a name."""
    head, _, rest = name.partition(".")
    return {head: nested(rest, value) if rest else value}


@HALVES
@pytest.mark.parametrize("form", ["flat", "nested", "connect", "properties"])
def test_forms_of_files(tmp_path: Path, load: Load, port: str, form: str) -> None:
    """JSON flat, nested and as posted to Kafka Connect, and .properties."""
    text = {
        "flat": json.dumps({"topic.prefix": "shop", port: 8080}),
        "nested": json.dumps({**nested("topic.prefix", "shop"), **nested(port, 8080)}),
        "connect": json.dumps({"name": "x", "config": {"topic.prefix": "shop", port: "8080"}}),
        "properties": f"# comment\ntopic.prefix : sh\\\n  op\n{port}=80\\u00380\n",
    }[form]
    path = tmp_path / ("c.properties" if form == "properties" else "c.json")
    path.write_text(text, encoding="utf-8")

    assert load(path, {}, {}) == ("shop", 8080)


@HALVES
def test_flags_override_environment_and_environment_overrides_file(tmp_path: Path, load: Load, port: str) -> None:
    path = tmp_path / "c.json"
    path.write_text(json.dumps({"topic.prefix": "file", port: "1"}), encoding="utf-8")

    assert load(path, {"TOPIC_PREFIX": "environment", environment_name(port): "2"}, {port: "3"}) == ("environment", 3)


@HALVES
def test_file_variables_and_placeholders(tmp_path: Path, load: Load, port: str) -> None:
    (tmp_path / "port").write_text("81\n", encoding="utf-8")
    store = tmp_path / "store.properties"
    store.write_text("prefix=shop\n", encoding="utf-8")
    environ = {environment_name(port) + "_FILE": str(tmp_path / "port"), "NUMBER": "82"}

    assert load(None, environ, {"topic.prefix": f"${{file:{store}:prefix}}"}) == ("shop", 81)
    assert load(None, environ, {"topic.prefix": f"${{dir:{tmp_path}:port}}", port: "${env:NUMBER}"}) == ("81", 82)


def test_the_content_of_a_file_has_no_placeholders(tmp_path: Path) -> None:
    """It is a secret as it is."""
    secret = "a${env:HOME}w${x:y}"
    (tmp_path / "secret").write_text(secret + "\n", encoding="utf-8")
    names = {name: str(tmp_path / "secret") for name in ("DATABASE_PASSWORD_FILE", "KAFKA_SASL_JAAS_CONFIG_FILE")}

    written = producer.load(None, {**names, "HOME": "/x"}, {**PRODUCER, "topic.prefix": "a"})
    read = consumer.load(None, {**names, "HOME": "/x"}, {**CONSUMER, "topic.prefix": "a"})

    assert written.database.password.get_secret_value() == secret
    assert read.kafka_client["kafka.sasl.jaas.config"] == secret


@HALVES
@pytest.mark.parametrize("name", ["database.pasword", "database.pw", "kafka_.sasl.pasword", "sprak.x"])
def test_values_of_properties_that_are_not_known_are_not_shown(load: Load, port: str, name: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load(None, {}, {"topic.prefix": "a", port: "1", name: "hunter2"})

    assert name in str(caught.value)
    assert "hunter2" not in str(caught.value)


@HALVES
def test_a_password_without_tls_is_warned_of(load: Load, port: str) -> None:
    module, given = (producer, PRODUCER) if load is load_producer else (consumer, CONSUMER)
    settings = {**given, "topic.prefix": "a", port: "1", "kafka.sasl.mechanism": "PLAIN"}
    for protocol, warned in (("SASL_PLAINTEXT", 1), ("SASL_SSL", 0)):
        loaded = module.load(None, {}, {**settings, "kafka.security.protocol": protocol})
        assert len([text for text in loaded.warnings if "set SASL_SSL" in text]) == warned


@HALVES
@pytest.mark.parametrize(
    ("url", "source", "warned"),
    [
        ("http://me:hush@one:8081", "url", 1),
        ("https://me:hush@one:8081,http://two:8081", "url", 1),
        ("http://one:8081", "user_info", 1),
        ("http://one:8081", "url", 0),
        ("https://me:hush@one:8081", "user_info", 0),
    ],
)
def test_a_password_for_a_registry_without_tls_is_warned_of(
    load: Load, port: str, url: str, source: str, warned: int
) -> None:
    module, given = (producer, PRODUCER) if load is load_producer else (consumer, CONSUMER)
    converter = "value.converter"
    settings = {
        converter: "io.confluent.connect.avro.AvroConverter",
        f"{converter}.schema.registry.url": url,
        f"{converter}.basic.auth.credentials.source": source,
        f"{converter}.basic.auth.user.info": "me:hush",
    }
    loaded = module.load(None, {}, {**given, "topic.prefix": "a", port: "1", **settings})

    found = [text for text in loaded.warnings if "the connection to the schema registry is not encrypted" in text]
    assert len(found) == warned
    assert "hush" not in str(loaded.warnings)


@HALVES
def test_all_problems_are_in_one_error(tmp_path: Path, load: Load, port: str) -> None:
    """An unreadable file, an unknown property, a wrong value, an unresolved placeholder; then a missing one."""
    with pytest.raises(ConfigError) as caught:
        load(tmp_path / "none.json", {}, {"topic.prefx": "a", port: "70000", "bootstrap.servers": "${env:NONE}"})

    text = str(caught.value)
    assert f"the file {tmp_path / 'none.json'} cannot be read: No such file" in text
    assert "topic.prefx is not a known property; did you mean topic.prefix?" in text
    assert f"{port}: '70000' (flag) is not a whole number from 0 to 65535" in text
    assert "bootstrap.servers: the placeholder ${env:NONE} cannot be resolved: there is no such environment" in text
    assert " is missing: " not in text  # it may be in the file
    with pytest.raises(ConfigError, match=r"topic\.prefix is missing: "):
        load(None, {}, {"topic.prefx": "a"})


@HALVES
def test_sources_of_one_value_are_not_mixed(load: Load, port: str) -> None:
    """A variable and its ``_FILE`` variable, two spellings of one property."""
    with pytest.raises(ConfigError, match=r"topic\.prefix is given twice in the environment") as caught:
        load(None, {"TOPIC_PREFIX": "a", "TOPIC_PREFIX_FILE": "/dev/null"}, {"kafka.bootstrap.servers": "k", port: "1"})

    assert "kafka.bootstrap.servers is also given under another name" in str(caught.value)


class _Inner(Section):
    words: frozenset[str] = supported("{side}.words", set_of("a", "b"), default="a", doc="Words of {side}.")
    other: str | None = supported("{side}.other", TEXT, doc="Other.", aliases=("{side}.alias",))


class _Example(RootConfig):
    name: str = supported("name", TEXT, required=True, doc="Name.", fallback="old.name")
    flag: bool = supported("flag", BOOLEAN, default="false", doc="Flag.")
    number: int = supported("number", integer(1, 5), default="3", doc="Number.")
    options: Mapping[str, Any] = prefixed("options.*", SECRET, doc="Options.", environment_keys=("*",))
    left: _Inner = section(_Inner, side="left")
    right: _Inner = section(_Inner, side="right")


_UNSUPPORTED = (
    *ignored("name applies", "old.name"),
    *ignored("it is old", "old.*", no_op_values=("none",)),
    *rejected("it is bad", "bad", no_op_values=("off",)),
)
EXAMPLE = ConfigDefinition(_Example, [Group("Example", ("", "left", "right"), _UNSUPPORTED)])


def loaded(**settings: str) -> _Example:
    """Load the example; ``__`` in a name is a dot."""
    return EXAMPLE.load(None, {}, {"name": "n", **{name.replace("__", "."): text for name, text in settings.items()}})


def test_defaults_are_those_of_the_declaration() -> None:
    """With and without the loader."""
    assert loaded() == _Example(name="n")
    assert (loaded().number, loaded().left.words, loaded().right.other) == (3, frozenset({"a"}), None)


def test_sections_of_one_class_have_their_own_properties() -> None:
    config = loaded(left__words="b,a", right__alias="x")

    assert (config.left.words, config.left.other) == (frozenset({"a", "b"}), None)
    assert (config.right.words, config.right.other) == (frozenset({"a"}), "x")


def test_ignored_and_rejected_properties() -> None:
    """No-op values cause neither a warning nor a problem."""
    assert loaded(old__x="1", old__y="none", bad="OFF").warnings == ("old.x has no effect: it is old",)
    with pytest.raises(
        ConfigError, match=r"bad: 'on' \(flag\) is not supported: it is bad; the only allowed value is off"
    ):
        loaded(bad="on")


def test_fallback_is_used_if_the_property_is_not_set() -> None:
    assert EXAMPLE.load(None, {"OLD_NAME": "m"}).name == "m"


def test_description_can_be_loaded_except_for_secrets() -> None:
    config = EXAMPLE.load(
        None, {"OPTIONS_LINGER_MS": "1", "OPTIONS_SSL_PASSWORD": "hidden"}, {"name": "n", "left.words": ""}
    )

    described = EXAMPLE.describe(config)
    assert described == {
        "name": "n",
        "flag": "false",
        "number": "3",
        "options.linger.ms": "1",
        "options.ssl.password": "********",
        "left.words": "",
        "right.words": "a",
    }
    assert EXAMPLE.load(None, {}, described).left == config.left
    assert "hidden" not in repr(config)


def test_exact_names_take_precedence_over_wildcards() -> None:
    table = PropertyTable([Property("a.*", "Wildcard.", ANY_TEXT), Property("a.b", "Exact.")])

    assert [table.find(name).doc for name in ("a.b", "a.c")] == ["Exact.", "Wildcard."]  # type: ignore[union-attr]
    assert table.find("a.") is None


@pytest.mark.parametrize(
    ("name", "variable"),
    [
        ("database.server.id", "DATABASE_SERVER_ID"),
        ("maxOffsetsPerTrigger", "MAX_OFFSETS_PER_TRIGGER"),
        ("chunk-key.upper-bound", "CHUNK_KEY_UPPER_BOUND"),
    ],
)
def test_environment_variable_of_a_property(name: str, variable: str) -> None:
    assert environment_name(name) == variable


def test_placeholders_of_spark_are_left_to_spark() -> None:
    """Only those that Spark does not know are resolved in its settings."""
    problems: list[str] = []
    setting = Setting("${system:user.home}/${env:NAME}", "file")

    found = resolve_placeholders("spark.local.dir", setting, {"NAME": "x"}, problems)
    resolve_placeholders("sink.path", setting, {"NAME": "x"}, problems)

    assert found.value == "${system:user.home}/x"
    assert len(problems) == 1
