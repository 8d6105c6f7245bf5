"""The consumer's configuration: names, sources, and faults told all at once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.config_file import properties, variable

GOOD = {
    "bootstrap.servers": "broker:9092",
    "topic.prefix": "shop",
    "checkpointLocation": "/check",
    "sink": "delta",
    "sink.path": "/tables",
}


def test_json_and_properties_say_the_same(tmp_path: Path) -> None:
    as_json, as_properties = tmp_path / "c.json", tmp_path / "c.properties"
    nested = {
        "bootstrap.servers": "b:1",
        "topic": {"prefix": "p"},
        "checkpointLocation": "/c",
        "sink": "console",
        "trigger": {"availableNow": True},
    }
    as_json.write_text(json.dumps(nested), encoding="utf-8")
    as_properties.write_text(
        "# comment\nbootstrap.servers=b:1\ntopic.prefix : p\ncheckpointLocation=/\\\n   c\nsink console\n"
        "trigger.availableNow=true\n",
        encoding="utf-8",
    )

    assert config.load(as_json, {}) == config.load(as_properties, {})
    assert config.load(as_json, {}).available_now is True


def test_every_fault_is_told_with_the_name_that_was_meant() -> None:
    given = {"bootstrap.server": "b", "maxOffsetPerTrigger": "5", "monitor.port": "70000", "sink": "delta"}

    with pytest.raises(ConfigError) as caught:
        config.parse(given)

    told = str(caught.value)
    assert "did you mean bootstrap.servers?" in told
    assert "did you mean maxOffsetsPerTrigger?" in told
    assert "monitor.port" in told
    assert "topic.prefix: must be set" in told
    assert "checkpointLocation: must be set" in told


def test_delta_needs_a_path() -> None:
    with pytest.raises(ConfigError, match=r"sink\.path"):
        config.parse({name: value for name, value in GOOD.items() if name != "sink.path"})


def test_settings_that_would_break_the_guarantee_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.isolation\.level.*always read_committed"):
        config.parse({**GOOD, "kafka.isolation.level": "read_uncommitted"})


def test_environment_and_secret_files_come_over_the_file(tmp_path: Path) -> None:
    secret, file = tmp_path / "jaas", tmp_path / "c.json"
    secret.write_text("the secret\n", encoding="utf-8")
    file.write_text(json.dumps(GOOD), encoding="utf-8")

    loaded = config.load(
        file, {"MAX_OFFSETS_PER_TRIGGER": "7", "TOPIC_PREFIX": "other", "KAFKA_SASL_JAAS_CONFIG_FILE": str(secret)}
    )

    assert (loaded.max_offsets, loaded.topic_prefix) == (7, "other")
    assert loaded.kafka_client["kafka.sasl.jaas.config"] == "the secret"


def test_secrets_are_not_shown() -> None:
    loaded = config.parse(
        {**GOOD, "kafka.sasl.jaas.config": "hidden-one", "spark.hadoop.fs.s3a.secret.key": "hidden-two"}
    )

    assert "hidden" not in repr(loaded)
    assert "hidden" not in str(loaded.shown())
    assert loaded.shown()["kafka.sasl.jaas.config"] == "***"


def test_variable_names_part_camel_case() -> None:
    assert variable("maxOffsetsPerTrigger") == "MAX_OFFSETS_PER_TRIGGER"
    assert variable("sink.path") == "SINK_PATH"


def test_properties_escapes() -> None:
    assert properties("a\\=b=c\\u0041\\n\n! no\nempty=\n") == {"a=b": "cA\n", "empty": ""}


def test_file_that_is_no_json_names_the_line(tmp_path: Path) -> None:
    file = tmp_path / "c.json"
    file.write_text('{\n"a": }', encoding="utf-8")

    with pytest.raises(ConfigError, match="line 2"):
        config.load(file, {})
