"""What a hint names exists: properties and their values, commands and their options, pages."""

from __future__ import annotations

import re
from typing import Final

import pytest

from tailrace.producer.config.definition import DEFINITION
from tailrace.runtime.config.property import Property, Support
from tailrace.spark_consumer.config.definition import definition
from tailrace.spark_consumer.sink.plugin import installed_sinks
from tests.docs.commands import tailrace_options
from tests.docs.hints import FOLDERS, UNKNOWN, Hint, hints
from tests.docs.samples import ROOT

VERB: Final = re.compile(
    rf"(?:{UNKNOWN}+[;,:] (?:or |and |then )?)?(?:"
    r"add|allow|capture|cast|change|check|choose|compare|connect|continue|convert|correct|"
    r"create|delete|do|drop|enable|end|exclude|find|fix|give|grant|install|keep|leave|let|"
    r"load|look|lower|move|name|pass|point|raise|read|register|remove|rename|repeat|request|"
    r"restart|restore|run|see|send|set|start|stop|take|try|use|wait|write|ALTER|GRANT|SET"
    r")\b"
)
OTHERS: Final = {
    "cleanup.policy": "of a topic",
    "max.message.bytes": "of a topic",
    "message.timestamp.after.max.ms": "of a topic",
    "message.timestamp.before.max.ms": "of a topic",
    "offset.storage.file.filename": "of a standalone worker of Kafka Connect",
    "offset.storage.topic": "of a worker of Kafka Connect",
    "retention.bytes": "of a topic",
    "retention.ms": "of a topic",
    "tailrace.topic": "a header of records",
    "transaction.max.timeout.ms": "of a broker",
    "unclean.leader.election.enable": "of a topic",
}
"""Settings of other programs, and whose they are."""

_NO_PROPERTY: Final = re.compile(
    r"(?<![\w.])(?:(?:org|io)\.[\w.]+|docs/[\w./-]+|[\w./-]+\.(?:sh|crc)\b|information_schema\.\w+)"
)
_NAME: Final = re.compile(r"(?<![\w./-])[a-z]\w*(?:\.(?:\w+|<\w+>|…|\*))+")
_SET: Final = re.compile(rf"({_NAME.pattern})(?:=([\w.-]*\w)| to (\w+)(?: or (\w+))?)")
_TABLES: Final = [
    DEFINITION.table,
    *(definition(sink).table for sink in (None, *installed_sinks())),
    definition(None, {"name": "delta"}).table,
]


@pytest.fixture(scope="module")
def found() -> list[Hint]:
    return [hint for folder in FOLDERS for hint in hints(folder)]


def properties(name: str) -> list[Property]:
    """Return the supported properties that have the name, or have it as a part."""
    spelled = re.sub(r"[<>*]", "", name.replace(UNKNOWN, "name")).rstrip(".")
    every = [
        entry
        for table in _TABLES
        for entry in (table.find(spelled), *table.properties)
        if entry and (entry.matches(spelled) or any(f".{spelled}." in f".{known}." for known in entry.names))
    ]
    return [entry for entry in every if entry.support is Support.SUPPORTED]


def accepts(entry: Property, value: str) -> bool:
    try:
        entry.value_type.read(value)
    except (ValueError, LookupError):
        return False
    return value not in entry.rejected_values


def test_hints_begin_with_a_verb(found: list[Hint]) -> None:
    """A hint that is unknown here, or begins with an unknown part, is none that this module can read."""
    assert len(found) > 350
    assert [hint for hint in found if not VERB.match(hint.text)] == []


def test_properties_in_hints_are_known(found: list[Hint]) -> None:
    named = {(name, hint) for hint in found for name in _NAME.findall(_NO_PROPERTY.sub("", hint.text))}
    assert len(named) > 150
    unknown = {name: hint for name, hint in named if name not in OTHERS and not properties(name)}
    assert unknown == {}
    assert OTHERS.keys() <= {name for name, _ in named}


def test_values_in_hints_are_accepted(found: list[Hint]) -> None:
    """Behind ``to`` where the property has a list of words."""
    refused = [
        (value, hint)
        for hint in found
        for name, equal, *words in _SET.findall(hint.text)
        if name not in OTHERS
        for entries in [properties(name)]
        if equal or any(entry.value_type.expects.startswith(("one of ", "true or ")) for entry in entries)
        for value in filter(None, (equal, *words))
        if not any(accepts(entry, value) for entry in entries)
    ]
    assert refused == []


def test_commands_and_pages_in_hints_exist(found: list[Hint]) -> None:
    """An option that follows no command is one of the command that has failed."""
    options = tailrace_options()
    every = set().union(*options.values())
    metrics = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    for hint in found:
        text = re.sub(r"kafka-configs\.sh .*", "", hint.text)
        for command, arguments in re.findall(r"\btailrace ([a-z]+)((?: --[a-z-]+(?: [^\s-]\S*)?)*)", text):
            assert command in options, hint
            assert {*re.findall(r"--[a-z-]+", arguments)} <= options[command], hint
        assert {*re.findall(r"(?<!\w)--[a-z-]+", text)} <= every, hint
        assert all(name in metrics for name in re.findall(r"\bcdc_\w+", text)), hint
        assert all((ROOT / page).is_file() for page in re.findall(r"docs/[\w./-]+\w", text)), hint
