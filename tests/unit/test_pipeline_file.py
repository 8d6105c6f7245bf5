"""Pipeline files: what they set, every fault with its place, and the published JSON schema."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from jsonschema import Draft202012Validator
from typer.testing import CliRunner

from tailrace.producer.config import load as load_producer
from tailrace.runtime.cli import build
from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.config import load as load_consumer
from tailrace.spark_consumer.transform.rules import ROUTE_WORDS, TRANSFORM_WORDS

DOCS: Final = Path(__file__).parents[2] / "docs"
EXAMPLE: Final = DOCS / "examples" / "pipeline.yaml"
SCHEMA: Final[dict[str, Any]] = json.loads((DOCS / "pipeline.schema.json").read_text(encoding="utf-8"))
SEVERAL: Final = """sink:
  - {name: lake, type: delta, sink.path: /tables}
  - {name: screen, type: console, table.include.list: 'shop\\.orders'}
"""
ONE: Final = "sink:\n  type: delta\n  sink.path: /tmp/tailrace/tables\n"


def edited(tmp_path: Path, before: str, after: str) -> Path:
    """Return a copy of the example with one part replaced."""
    text = EXAMPLE.read_text(encoding="utf-8")
    assert text.count(before) == 1
    path = tmp_path / "shop.yaml"
    path.write_text(text.replace(before, after), encoding="utf-8")
    return path


def problems_of(path: Path) -> list[str]:
    result = CliRunner().invoke(build(), ["run", str(path), "--print"])
    assert result.exit_code == 78, result.output
    return [line.removeprefix("- ") for line in result.stderr.splitlines()[1:]]


def is_valid(path: Path) -> bool:
    return bool(Draft202012Validator(SCHEMA).is_valid(yaml.safe_load(path.read_text(encoding="utf-8"))))


def test_example_sets_both_configurations() -> None:
    producer, consumer = load_producer(EXAMPLE, {}), load_consumer(EXAMPLE, {})

    assert (producer.database.connector, producer.database.server_id) == ("mysql", 184054)
    assert (producer.topics.prefix, consumer.topic_prefix) == ("demo", "demo")
    assert [each.name for each in consumer.transforms.rules.transforms] == ["1"]
    assert consumer.transforms.rules.target_of("shop", "orders") == ("lake", "orders")
    assert [each.kind for each in consumer.chosen_sinks] == ["delta"]


def test_list_of_sinks_is_several_sinks(tmp_path: Path) -> None:
    path = edited(tmp_path, ONE, SEVERAL)
    sinks = load_consumer(path, {}).chosen_sinks

    assert [(each.name, each.kind) for each in sinks] == [("lake", "delta"), ("screen", "console")]
    assert sinks[1].tables.included == (r"shop\.orders",)
    assert is_valid(path)


def test_secret_comes_from_a_file_or_a_placeholder_and_is_never_printed(tmp_path: Path) -> None:
    (secret := tmp_path / "password").write_text("hush", encoding="utf-8")
    path = edited(tmp_path, "change-me", "${env:PASSWORD}")

    assert load_producer(path, {"PASSWORD": "p"}).database.password.get_secret_value() == "p"
    from_file = load_producer(path, {"DATABASE_PASSWORD_FILE": str(secret)})
    assert from_file.database.password.get_secret_value() == "hush"
    shown = CliRunner().invoke(build(), ["run", str(EXAMPLE), "--print"])
    assert shown.exit_code == 0, shown.output
    assert "change-me" not in shown.output
    producer, _, consumer = shown.stdout.partition("# consumer\n")
    assert r"table.include.list=shop\..*" in producer.splitlines()
    assert "sink.path=/tmp/tailrace/tables" in consumer.splitlines()


def test_init_writes_a_file_that_runs(tmp_path: Path) -> None:
    path = tmp_path / "shop.yaml"
    answers = f"db.example.org:3307\ncdc\nshop\\.(a|b)\n\n{tmp_path}\n"
    result = CliRunner().invoke(build(), ["init", str(path)], input=answers)

    assert result.exit_code == 0, result.output
    producer, consumer = load_producer(path, {"DATABASE_PASSWORD": "hush"}), load_consumer(path, {})
    assert (producer.database.hostname, producer.database.port, producer.database.user) == (
        "db.example.org",
        3307,
        "cdc",
    )
    assert (producer.topics.prefix, consumer.bootstrap_servers) == ("shop", "127.0.0.1:9092")
    assert consumer.checkpoint == f"{tmp_path}/checkpoint"
    assert r"tables: shop\.(a|b)" in path.read_text(encoding="utf-8")
    assert is_valid(path)
    assert CliRunner().invoke(build(), ["init", str(path)]).exit_code == 78


FAULTS: Final = {
    "another-section": ("consumer:\n", "spark:\n", "spark (line 19) is no section"),
    "missing-section": (ONE, "", "the section sink is missing"),
    "list": ("database.port: 3306", "database.port: [3306]", "source.database.port (line 6) is not a text"),
    "null": ("database.port: 3306", "database.port:", "source.database.port (line 6) has no value"),
    "type": ("type: mysql", "type: oracle", "source.type (line 3): connector.class: 'oracle' (file) is not one of"),
    "unknown-property": ("topic.prefix", "topic.prefx", "pipeline.topic.prefx (line 22): topic.prefx is not a known"),
    "of-one-half": ("topic.prefix", "sink", "pipeline.sink (line 22): sink is not a known property"),
    "rules": ("route:\n  - source", "route:\n    source", "route (line 13) is not a list"),
    "word": ("sink-table", "target", "route[0].target (line 15): routes.1.target is not a known property"),
    "name": (ONE, SEVERAL.replace("name: lake, ", ""), "sink[0] (line 17) has no name"),
    "sink-type": ("  type: delta\n", "", "sink is missing"),
}
"""Part of the example, its replacement, the begin of a problem: seen by the loaders and by the schema."""


@pytest.mark.parametrize(("before", "after", "problem"), FAULTS.values(), ids=FAULTS)
def test_fault_is_reported_with_its_key_path_and_refused_by_the_schema(
    tmp_path: Path, before: str, after: str, problem: str
) -> None:
    path = edited(tmp_path, before, after)

    assert any(each.startswith(problem) for each in problems_of(path)), problems_of(path)
    assert not is_valid(path)


VALUES: Final = {
    "twice": ("database.port: 3306", "database.port: 1\n  database.port: 2", "line 7) is given twice, also in line 6"),
    "two-sections": ("checkpoint\n", "checkpoint\n  topic.prefix: a\n", "sets topic.prefix, which consumer.topic"),
    "value": ("3306", "0x10", "source.database.port (line 6): database.port: '0x10' (file) is not a whole number"),
    "rule": ("upper(name)", "upper(name", "transform[0].projection (line 12): transforms.1.projection, line 1, col"),
    "tag": ("port: 3306", "port: !!binary MQ==", "source.database.port (line 6) is not a text"),
    "placeholder": ("change-me", "${env:X}", "source.database.password (line 8): database.password: the placeholder"),
    "yaml": ("database.port: 3306", "\tdatabase.port: 3306", "is not YAML: line 6, column 3: found character"),
}
"""As ``FAULTS``, with a part of the problem: the schema does not see them."""


@pytest.mark.parametrize(("before", "after", "problem"), VALUES.values(), ids=VALUES)
def test_fault_of_a_value_is_reported_with_its_key_path(tmp_path: Path, before: str, after: str, problem: str) -> None:
    found = problems_of(edited(tmp_path, before, after))

    assert len([each for each in found if problem in each]) == 1, found


def test_faults_of_both_halves_are_reported_together(tmp_path: Path) -> None:
    path = edited(tmp_path, "  database.user: cdc\n", "  database.usr: cdc\n")
    path.write_text(path.read_text(encoding="utf-8").replace("type: delta", "type: dleta"), encoding="utf-8")
    found = problems_of(path)

    assert any("source.database.usr (line 7)" in each for each in found)
    assert any("sink.type (line 17): sink: 'dleta'" in each for each in found)


def test_other_file_is_no_pipeline(tmp_path: Path) -> None:
    assert problems_of(tmp_path / "shop.json")[0].endswith("name one that ends with .yaml or .yml")


def test_deep_nesting_is_a_problem(tmp_path: Path) -> None:
    (path := tmp_path / "deep.yaml").write_text("source: " + "[" * 2_000, encoding="utf-8")

    with pytest.raises(ConfigError, match="is not YAML"):
        load_producer(path, {})


def test_published_schema_is_that_of_the_code() -> None:
    result = CliRunner().invoke(build(), ["run", "--schema"])

    assert json.loads(result.stdout) == SCHEMA, "run: tailrace run --schema > docs/pipeline.schema.json"
    Draft202012Validator.check_schema(SCHEMA)
    assert is_valid(EXAMPLE)
    words = [list(SCHEMA["properties"][kind]["items"]["properties"]) for kind in ("transform", "route")]
    assert words == [list(TRANSFORM_WORDS), list(ROUTE_WORDS)]
