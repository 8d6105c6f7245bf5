"""The pages: links and anchors resolve, code blocks parse, commands and files exist, retired words are not used."""

from __future__ import annotations

import ast
import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from tailrace.producer.config import load as load_producer
from tailrace.producer.mysql.types.base import ColumnType
from tailrace.spark_consumer.config import load as load_consumer
from tailrace.spark_consumer.sink.base import Sink
from tailrace.spark_consumer.sink.delta_small import MARKED, SMALL, WHOLE, Condition
from tests.docs import glossary, samples
from tests.docs.commands import commands, run_commands, tailrace_options
from tests.docs.pages import PAGES, Block, anchors, blocks, links, prose, table
from tests.docs.samples import ROOT

BLOCKS: Final = [block for page in PAGES for block in blocks(page)]
LANGUAGES: Final = {"", "json", "mermaid", "properties", "python", "sh", "sql", "toml", "yaml"}
GENERATED: Final = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
GENERATED_PAGES: Final = ("configuration.md", "configuration-ignored.md", "consumer-configuration.md")
BUILT: Final = {ROOT / "docs" / name for name in GENERATED_PAGES}
"""Pages that are generated as a whole: their source is checked elsewhere."""


def of(*languages: str) -> list[Block]:
    """Return the blocks in one of these languages."""
    return [block for block in BLOCKS if block.language in languages]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_links_and_anchors_resolve(page: Path) -> None:
    broken = []
    for target in links(page):
        if target.startswith(("https://", "http://")):
            continue
        path, _, anchor = target.partition("#")
        linked = (page.parent / path).resolve() if path else page
        if not linked.exists() or (anchor and anchor not in anchors(linked)):
            broken.append(target)

    assert broken == []


def test_languages_of_blocks_are_known() -> None:
    """A block in another language would be checked by nothing."""
    assert {block.language for block in BLOCKS} <= LANGUAGES


@pytest.mark.parametrize("block", of("json"), ids=str)
def test_json_blocks_parse(block: Block) -> None:
    json.loads(block.text)


@pytest.mark.parametrize("block", of("toml"), ids=str)
def test_toml_blocks_parse(block: Block) -> None:
    tomllib.loads(block.text)


@pytest.mark.parametrize("block", of("yaml"), ids=str)
def test_yaml_blocks_are_an_example(block: Block) -> None:
    """Which other tests load."""
    examples = (ROOT / "docs" / "examples").glob("*.yaml")
    assert block.text.strip() in {path.read_text(encoding="utf-8").strip() for path in examples}


@pytest.mark.parametrize("block", of("python"), ids=str)
def test_python_blocks_parse(block: Block) -> None:
    ast.parse(block.text)


@pytest.mark.parametrize("block", of("properties"), ids=str)
def test_properties_blocks_are_names_and_values(block: Block) -> None:
    for line in block.text.splitlines():
        assert re.fullmatch(r"[\w.-]+=.+|#.*|", line), line


@pytest.mark.parametrize("block", of("sh", ""), ids=str)
def test_commands_and_options_exist(block: Block) -> None:
    """Of ``tailrace`` and ``./run``; in blocks without a language, lines that begin with one of them."""
    options, run = tailrace_options(), run_commands()
    lines = [line for line in block.text.splitlines() if line.startswith(("tailrace ", "./run "))]
    for words in commands(block.text if block.language else "\n".join(lines)):
        if words[0] == "tailrace" and words[1] != "--help":
            name = next((name for name in (" ".join(words[1:3]), words[1]) if name in options), None)
            assert name, f"tailrace has no command {words[1]}"
            used = {word.partition("=")[0] for word in words[2:] if word.startswith("--")}
            assert used <= options[name] | {"--help"}, f"tailrace {name} has not all of {sorted(used)}"
        elif words[0] == "./run":
            assert words[1] in run, f"./run has no command {words[1]}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_commands_in_the_text_exist(page: Path) -> None:
    """`tailrace x` and `./run x` as inline code."""
    text = prose(page)
    named = set(re.findall(r"`tailrace (\w+)", text))
    assert named <= set(tailrace_options()), named
    ran = set(re.findall(r"`\./run (\w+)", text))
    assert ran <= run_commands(), ran


@pytest.mark.parametrize("page", [page for page in PAGES if page not in BUILT], ids=lambda page: page.name)
def test_files_that_are_named_exist(page: Path) -> None:
    """Paths of the repository as inline code."""
    named = re.findall(r"`((?:producer|spark_consumer|schemas|runtime|tests|docs|docker)/[\w./-]*)`", prose(page))

    assert [path for path in named if not (ROOT / path).exists()] == []


def test_members_that_are_listed_exist() -> None:
    """Those of the interfaces that the pages on types and sinks describe."""
    folder = ROOT / "docs" / "contributing"
    for page, heading, interface in (
        (folder / "add-a-type.md", "## What a type declares", ColumnType),
        (folder / "add-a-sink.md", "## Write it", Sink),
    ):
        members = [row[0].strip("`") for row in table(page, heading)]
        assert members
        declared = vars(interface) | interface.__annotations__
        assert [name for name in members if name not in declared] == []


def test_error_messages_that_are_listed_exist() -> None:
    """The longest part without variables of each message in the page on operations is in a source."""
    texts = [text for folder in ("producer", "spark_consumer", "runtime") for text in _strings(ROOT / folder)]
    listed = [row[0] for row in table(ROOT / "docs" / "operations.md", "## Errors")]
    parts = [max(re.split(r" ?… ?|\*n\* ", message), key=len) for message in listed]

    assert parts
    assert [part for part in parts if not any(part in text for text in texts)] == []


def _strings(folder: Path) -> Iterator[str]:
    """Yield the texts of the modules of a folder, with a mark in place of each variable."""
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                yield "".join(str(part.value) if isinstance(part, ast.Constant) else "…" for part in node.values)
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                yield node.value


def test_examples_are_the_blocks_of_the_tutorial_and_load() -> None:
    """The files under docs/examples are what the tutorial prints, and the programs accept them."""
    folder = ROOT / "docs" / "examples"
    printed = {block.text.strip() for block in BLOCKS if block.page.name == "tutorial.md"}
    for name in ("producer.json", "consumer.properties"):
        assert (folder / name).read_text(encoding="utf-8").strip() in printed

    assert load_producer(folder / "producer.json", {}, {}).topics.prefix == "demo"
    assert load_consumer(folder / "consumer.properties", {}).sink == "delta"


def test_samples_are_the_recorded_events() -> None:
    """Every recorded event is shown, as it was recorded; ``python -m tests.docs.samples`` renders them."""
    for page in samples.PAGES:
        text = page.read_text(encoding="utf-8")
        assert samples.rendered(text) == text, f"run: python -m tests.docs.samples ({page})"

    assert set(samples.names(samples.PAGES[0].read_text(encoding="utf-8"))) == set(samples.load())


def test_recorded_events_have_the_fields_of_an_envelope() -> None:
    """In Debezium's order."""
    envelope = ["before", "after", "source", "transaction", "op", "ts_ms", "ts_us", "ts_ns"]
    recorded = {sample.name: json.loads(sample.value) for sample in samples.load().values() if sample.value}
    shown = {name: value for name, value in recorded.items() if "op" in value}

    assert {value["op"] for value in shown.values()} == {"r", "c", "u", "d", "t"}
    assert all(list(value) == envelope for value in shown.values())


def test_retired_words_are_a_list() -> None:
    """Sorted, each with a replacement and a scope."""
    words = glossary.retired_words()

    assert [entry.word for entry in words] == sorted({entry.word for entry in words})
    assert all(entry.instead and entry.where in {glossary.EVERYWHERE, glossary.NAMES} for entry in words)


@pytest.mark.parametrize("page", [page for page in PAGES if page not in BUILT], ids=lambda page: page.name)
def test_retired_words_are_not_used(page: Path) -> None:
    """Except in the sections that other modules generate."""
    assert glossary.in_text(GENERATED.sub("", page.read_text(encoding="utf-8"))) == []


def test_terms_of_the_glossary_are_defined_once() -> None:
    text = glossary.GLOSSARY.read_text(encoding="utf-8")
    headings = [line for line in text.splitlines() if line.startswith("## ")]
    terms = [row[0] for heading in headings for row in table(glossary.GLOSSARY, heading)]

    assert len(terms) >= 25
    assert len(terms) == len(set(terms))


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("again_header", "again"),
        ("LogReader", "log reader"),
        ("tailrace.again", "again"),
        ("adopt_place", "adopt"),
        ("against", None),
        ("placeholder", None),
    ],
)
def test_retired_words_are_found_in_names(name: str, found: str | None) -> None:
    """As whole parts of a name."""
    assert next((entry.word for entry in glossary.in_name(name)), None) == found


README_FIGURES: Final = {
    "Snapshot, rows per second": "snapshot, rows/s",
    "Changes per second behind a backlog": "stream, changes/s",
    "Peak memory, MB": "peak memory, MB",
    "Latency at rest, median, ms": "latency at rest, median, ms",
}
"""Rows of the comparison in README.md and the rows of docs/benchmarks.md that have their figures."""


@pytest.mark.parametrize("title", README_FIGURES)
def test_figures_of_the_readme_are_those_of_the_page(title: str) -> None:
    """README.md has the least and the greatest figure of the turns on the page that it links to."""

    def cells(page: str, section: str, name: str) -> list[str]:
        text = (ROOT / page).read_text().partition(f"\n## {section}\n")[2].partition("\n## ")[0]
        [line] = [line for line in text.splitlines() if line.startswith(f"| {name} |")]
        return [cell.strip() for cell in line.split("|")[2:5]]

    name = README_FIGURES[title]
    tailrace, debezium, flink = cells("README.md", "How it compares", title)
    turns = [cell.split(", ") for cell in cells("docs/benchmarks.md", "Next to Debezium and Flink CDC", name)]
    ranges = [sorted(figures, key=lambda text: float(text.replace(",", ""))) for figures in turns]

    assert [debezium, flink, tailrace] == [f"{figures[0]} to {figures[-1]}" for figures in ranges]


@pytest.mark.parametrize("conditions", [SMALL, MARKED, WHOLE], ids=["small", "marked", "whole"])
def test_conditions_of_a_small_commit_are_listed(conditions: tuple[Condition, ...]) -> None:
    page = (ROOT / "docs" / "sinks" / "delta.md").read_text(encoding="utf-8")
    assert "\n" + "".join(f"- {condition.text}\n" for condition in conditions) in page
