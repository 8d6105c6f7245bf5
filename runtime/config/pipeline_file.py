"""Pipeline files: one YAML file with the configurations of producer and consumer; the sections are those of Flink CDC.

::

    source: {type: mysql, tables: shop.orders, …}     properties of the producer
    transform: [{source-table: …, projection: …}]     transforms of the consumer
    route: [{source-table: …, sink-table: …}]         routes of the consumer
    sink: {type: delta, …}                            properties of the sink; a list of several, each with a name
    consumer: {checkpointLocation: …}                 other properties of the consumer
    pipeline: {topic.prefix: shop, …}                 properties that both have

A value is the text of a property, as it is written: YAML's types do not change it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Final

import yaml

from tailrace.runtime.config.files import Part, Setting, Settings

SOURCE_WORDS: Final = {"type": "connector.class", "tables": "table.include.list"}
SINK_WORDS: Final = {"type": "sink"}
RULES: Final = {"transform": "transforms", "route": "routes"}
REQUIRED: Final = ("source", "sink", "pipeline")
SECTIONS: Final = ("source", "transform", "route", "sink", "consumer", "pipeline")

_PREFIX: Final = "tag:yaml.org,2002:"
_TEXTS: Final = frozenset(f"{_PREFIX}{kind}" for kind in ("str", "int", "float", "bool", "timestamp"))

_Entry = tuple[str, str, yaml.Node]
"""Name, key path and node of a value."""


def read_pipeline(text: str, path: Path, part: Part, problems: list[str]) -> Settings:
    """Return the settings of one program. What cannot be read is added to ``problems``."""
    try:
        root = yaml.compose(text, Loader=yaml.SafeLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark
        where = f"line {mark.line + 1}, column {mark.column + 1}: " if mark else ""
        problems.append(f"{path} is not YAML: {where}{error.problem}")
    except (yaml.YAMLError, RecursionError) as error:
        problems.append(f"{path} is not YAML: {str(error) or 'it is nested too deeply'}")
    else:
        return _Reader(part, problems).read(root)
    return {}


class _Reader:
    def __init__(self, part: Part, problems: list[str]) -> None:
        self._part = part
        self._problems = problems
        self._found: Settings = {}

    def read(self, root: yaml.Node | None) -> Settings:
        sections = {name: (key_path, node) for name, key_path, node in self._entries(root, "")} if root else {}
        self._problems += [f"the section {name} is missing" for name in REQUIRED if name not in sections]
        for name, (key_path, node) in sections.items():
            if name == "source":
                self._put_all("producer", self._entries(node, name), SOURCE_WORDS)
            elif name == "sink" and isinstance(node, yaml.SequenceNode):
                self._put_sinks(node, key_path)
            elif name == "sink":
                self._put_all("consumer", self._entries(node, name), SINK_WORDS)
            elif name in RULES:
                self._put_rules(node, name, key_path)
            elif name == "consumer":
                self._put_all("consumer", self._entries(node, name))
            elif name == "pipeline":
                self._put_all(self._part, self._entries(node, name))
            else:
                self._problems.append(f"{key_path} is no section; there are {', '.join(SECTIONS)}")
        return self._found

    def _entries(self, node: yaml.Node, path: str) -> Iterator[_Entry]:
        """Yield the entries of a mapping."""
        if not isinstance(node, yaml.MappingNode):
            self._problems.append(f"{_key_path(node, path or 'the file')} is not a mapping of names to values")
            return
        lines: dict[str, int] = {}
        for key, value in node.value:
            name = key.value if isinstance(key, yaml.ScalarNode) else "?"
            key_path = _key_path(key, f"{path}.{name}" if path else name)
            if name in lines:
                self._problems.append(f"{key_path} is given twice, also in line {lines[name]}")
            else:
                lines[name] = key.start_mark.line + 1
                yield name, key_path, value

    def _put_sinks(self, node: yaml.SequenceNode, key_path: str) -> None:
        names = []
        for number, item in enumerate(node.value):
            entries = list(self._entries(item, f"sink[{number}]"))
            name = next((value.value for key, _, value in entries if key == "name"), None)
            if not isinstance(name, str):
                self._problems.append(
                    f"{_key_path(item, f'sink[{number}]')} has no name: each sink of several needs one"
                )
                continue
            names.append(name)
            self._put_all("consumer", (each for each in entries if each[0] != "name"), prefix=f"sinks.{name}.")
        self._put("consumer", "sinks", ",".join(names), key_path)

    def _put_rules(self, node: yaml.Node, section: str, key_path: str) -> None:
        if not isinstance(node, yaml.SequenceNode):
            self._problems.append(f"{key_path} is not a list")
            return
        for number, item in enumerate(node.value):
            entries = self._entries(item, f"{section}[{number}]")
            self._put_all("consumer", entries, prefix=f"{RULES[section]}.{number + 1}.")
        self._put("consumer", RULES[section], ",".join(str(n + 1) for n in range(len(node.value))), key_path)

    def _put_all(
        self, part: Part, entries: Iterable[_Entry], words: Mapping[str, str] | None = None, *, prefix: str = ""
    ) -> None:
        for key, key_path, node in entries:
            if isinstance(node, yaml.ScalarNode) and node.tag in _TEXTS:
                self._put(part, prefix + (words or {}).get(key, key), node.value, key_path)
            elif node.tag == f"{_PREFIX}null":
                self._problems.append(f"{key_path} has no value; remove it, or write '' for an empty text")
            else:
                self._problems.append(f"{key_path} is not a text, a number or a boolean")

    def _put(self, part: Part, name: str, value: str, key_path: str) -> None:
        if part != self._part:
            return
        if name in self._found:
            self._problems.append(f"{key_path} sets {name}, which {self._found[name].key_path} sets too; keep one")
        else:
            self._found[name] = Setting(value, "file", key_path=key_path)


def _key_path(node: yaml.Node, path: str) -> str:
    return f"{path} (line {node.start_mark.line + 1})"
