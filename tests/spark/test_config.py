"""The configuration of the consumer: its properties, those of the sinks, and all problems in one error."""

from __future__ import annotations

from pathlib import Path

import pytest

from tailrace.runtime.config.environment import variables_of
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.config.definition import definition, pages
from tailrace.spark_consumer.sink.plugin import installed_sinks

DOCS = Path(__file__).parents[2] / "docs"
GOOD = {
    "bootstrap.servers": "broker:9092",
    "topic.prefix": "shop",
    "checkpointLocation": "/check",
    "sink": "delta",
    "sink.path": "/tables",
}


def test_every_problem_is_reported_with_the_name_that_was_meant() -> None:
    given = {"bootstrap.server": "b", "maxOffsetPerTrigger": "5", "monitor.port": "70000", "sink": "delta"}

    with pytest.raises(ConfigError) as caught:
        config.parse(given)

    text = str(caught.value)
    assert "did you mean bootstrap.servers?" in text
    assert "did you mean maxOffsetsPerTrigger?" in text
    assert "monitor.port: '70000' (flag) is not a whole number from 0 to 65535" in text
    assert "topic.prefix is missing: " in text
    assert "checkpointLocation is missing: " in text
    assert "sink.path is missing: " in text


def test_relative_directories_are_refused() -> None:
    """A start in another working directory would find no checkpoint, and begin silently from the beginning."""
    with pytest.raises(ConfigError) as caught:
        config.parse({**GOOD, "checkpointLocation": "check", "sink.path": "s3a:tables"})

    text = str(caught.value)
    assert "checkpointLocation: 'check' (flag) is not an absolute path, or a URI such as s3a://bucket/path" in text
    assert "sink.path: 's3a:tables' (flag) is not an absolute path, or a URI such as s3a://bucket/path" in text


def test_sink_that_is_not_installed_is_reported_with_the_installed_ones() -> None:
    """With the other problems."""
    with pytest.raises(ConfigError, match=r"sink: 'hive' is not installed; .*console.*delta.*kafka") as caught:
        config.parse({**GOOD, "sink": "hive", "monitor.port": "x"})

    assert "monitor.port: 'x'" in str(caught.value)


def test_properties_of_another_sink_have_no_effect() -> None:
    loaded = config.parse({**GOOD, "sink.numRows": "5"})

    assert loaded.warnings == ("sink.numRows has no effect: it is a property of the sink console",)


def test_settings_that_would_break_the_guarantee_are_rejected() -> None:
    with pytest.raises(ConfigError, match=r"kafka\.isolation\.level.*always reads committed records"):
        config.parse({**GOOD, "kafka.isolation.level": "read_uncommitted"})


def test_variables_override_the_file_and_may_name_secret_files(tmp_path: Path) -> None:
    secret, file = tmp_path / "jaas", tmp_path / "c.properties"
    secret.write_text("the secret\n", encoding="utf-8")
    file.write_text("\n".join(f"{name}={text}" for name, text in GOOD.items()), encoding="utf-8")

    loaded = config.load(
        file, {"MAX_OFFSETS_PER_TRIGGER": "7", "TOPIC_PREFIX": "other", "KAFKA_SASL_JAAS_CONFIG_FILE": str(secret)}
    )

    assert (loaded.max_offsets, loaded.topic_prefix) == (7, "other")
    assert loaded.kafka_client["kafka.sasl.jaas.config"] == "the secret"


def test_sink_may_come_from_a_variable() -> None:
    """Its properties are known then."""
    given = {name: text for name, text in GOOD.items() if not name.startswith("sink")}

    loaded = config.load(None, {"SINK": "delta", "SINK_PATH": "/tables"}, given)

    assert (loaded.sink, config.describe(loaded)["sink.path"]) == ("delta", "/tables")


def test_secrets_are_not_shown() -> None:
    loaded = config.parse(
        {**GOOD, "kafka.sasl.jaas.config": "hidden-one", "spark.hadoop.fs.s3a.secret.key": "hidden-two"}
    )

    assert "hidden" not in repr(loaded)
    assert "hidden" not in str(config.describe(loaded))
    assert config.describe(loaded)["kafka.sasl.jaas.config"] == "********"


def test_options_of_kafka_and_spark_keep_their_names() -> None:
    loaded = config.parse({**GOOD, "kafka.security.protocol": "SSL", "spark.sql.shuffle.partitions": "3"})

    assert loaded.kafka_client == {"kafka.security.protocol": "SSL", "kafka.bootstrap.servers": "broker:9092"}
    assert loaded.spark == {"spark.sql.shuffle.partitions": "3"}


@pytest.mark.parametrize("sink", [None, *installed_sinks()])
def test_names_and_variables_of_a_sink_are_unique(sink: str | None) -> None:
    """Together with the common properties."""
    properties = definition(sink).table.properties
    names = [name for entry in properties for name in entry.names]
    variables = [variable for entry in properties for _, variable in variables_of(entry)]

    assert len(names) == len(set(names))
    assert len(variables) == len(set(variables))
    assert all(entry.reason or entry.doc.endswith(".") for entry in properties)


@pytest.mark.parametrize("name", pages())
def test_reference_page_is_current(name: str) -> None:
    assert (DOCS / name).read_text(encoding="utf-8") == pages()[name], (
        "run: python -m tailrace.spark_consumer.config --docs docs"
    )


def test_settings_that_may_be_secrets_are_masked() -> None:
    """What is passed on is shown only if its name is known to be harmless: Azure's key has no telling name."""
    secret = {
        "spark.hadoop.fs.azure.account.key.lake.dfs.core.windows.net": "open-sesame",
        "spark.hadoop.fs.azure.sas.fixed.token": "open-sesame",
        "spark.driver.extraJavaOptions": "-Dpassword=open-sesame",
        "kafka.basic.auth.user.info": "user:open-sesame",
    }
    harmless = {"spark.app.name": "cdc", "spark.executor.memory": "2g", "kafka.security.protocol": "SSL"}
    shown = config.describe(config.parse({**GOOD, **secret, **harmless}))

    assert "open-sesame" not in str(shown)
    assert {name: shown[name] for name in harmless} == harmless
