"""Stores what Debezium wrote: one variant whole, the others as differences against it.

``normalize`` replaces the values of one run by tokens; the topic prefix becomes a token, too. Every file has one JSON
value per line. A string begins a topic. In the file of the base variant, the lines of a topic are ``{"key schema":S}``
and ``{"value schema":S}``, which apply to the records that follow, and the records in the order in which they were
written: ``{"partition":0,"key":K,"value":V,"headers":H}``. K and V are payloads. The string ``"context"`` among the
headers stands for ``CONTEXT``. In the files of the other variants, the lines of a topic are edits of the base's lines,
see ``patch``.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Final

from tests.debezium_parity.normalize import normalized
from tests.debezium_parity.patch import edited, edits
from tests.debezium_parity.payload import has_schema, join_schema, split_schema
from tests.debezium_parity.records import render
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import KafkaRecord

FOLDER: Final = Path(__file__).with_name("golden")
BASE: Final = "schemas"
"""The variant that is stored whole."""

CONTEXT: Final = (
    '["__debezium.context.connectorLogicalName","<prefix>"]',
    '["__debezium.context.taskId","0"]',
    '["__debezium.context.connectorName","mysql"]',
    '["__debezium.context.runId","<run>"]',
)
"""The headers of almost every record from the binlog."""

_PREFIX: Final = "<prefix>"
_CONTEXT: Final = '"context"'
_SIDES: Final = ("key", "value")

Topics = Mapping[str, list[Tree]]
"""The lines of each topic."""


def write(recorded: Mapping[str, Iterable[KafkaRecord]], *, prefixes: Mapping[str, str], folder: Path = FOLDER) -> None:
    """Store the records of some variants, with their prefixes; the other variants keep their records."""
    stored = {path.stem: _load(path.stem, folder) for path in sorted(folder.glob("*.jsonl"))}
    stored |= {
        name: _lines(normalized(found, prefix=prefixes[name]), prefixes[name]) for name, found in recorded.items()
    }
    base = stored.pop(BASE)
    _save(folder / f"{BASE}.jsonl", base)
    for name, topics in stored.items():
        changed = {
            topic: list(edits(base.get(topic, []), topics.get(topic, []), label=_label))
            for topic in base.keys() | topics.keys()
        }
        _save(folder / f"{name}.jsonl", changed)
    _load.cache_clear()


def read(name: str, *, prefix: str, folder: Path = FOLDER) -> Iterator[KafkaRecord]:
    """Yield the records of a variant under a topic prefix, by topic and in the order in which they were written."""
    topics = {topic.replace(_PREFIX, prefix): lines for topic, lines in _load(name, folder).items()}
    for topic, lines in sorted(topics.items()):
        yield from _records(topic, lines, prefix)


@lru_cache
def _load(name: str, folder: Path) -> Topics:
    found: dict[str, list[Tree]] = {}
    with (folder / f"{name}.jsonl").open(encoding="utf-8") as lines:
        for line in lines:
            tree = read_tree(line.rstrip("\n"))
            if isinstance(tree, str) and tree.startswith('"'):
                found[json.loads(tree)] = topic = []
            else:
                topic.append(tree)
    if name == BASE:
        return found
    base = _load(BASE, folder)
    whole = {topic: edited(base.get(topic, []), found[topic]) for topic in found}
    return {topic: lines for topic, lines in whole.items() if lines}


def _save(path: Path, topics: Topics) -> None:
    with path.open("w", encoding="utf-8") as out:
        for topic, lines in sorted(topics.items()):
            out.write(f"{json.dumps(topic, ensure_ascii=False)}\n")
            out.writelines(f"{render(line)}\n" for line in lines)


def _lines(records: Iterable[KafkaRecord], prefix: str) -> Topics:
    """Return the lines of normalized records."""
    found: dict[str, list[Tree]] = defaultdict(list)
    schemas: dict[tuple[str, str], str] = {}
    for record in records:
        topic = _without_prefix(record.topic, prefix)
        payloads = []
        for side, raw in zip(_SIDES, (record.key, record.value), strict=True):
            if raw is None:
                payloads.append(read_tree("null"))
                continue
            text = _without_prefix(raw.decode(), prefix)
            schema, payload = split_schema(text) if has_schema(raw) else ("null", text)
            if schemas.get((topic, side), "null") != schema:
                schemas[topic, side] = schema
                found[topic].append(((f'"{side} schema"', read_tree(schema)),))
            if payload == "null":
                raise ValueError(f"a record of {topic} has the payload null, which the stored form cannot express")
            payloads.append(read_tree(payload))
        key, value = payloads
        members = (str(record.partition), key, value, _headers(record, prefix))
        found[topic].append(tuple(zip(('"partition"', '"key"', '"value"', '"headers"'), members, strict=True)))
    return found


def _records(topic: str, lines: Iterable[Tree], prefix: str) -> Iterator[KafkaRecord]:
    """Yield the records of the lines of a topic."""
    schemas = dict.fromkeys(_SIDES, "null")
    ends: dict[int, int] = defaultdict(int)
    for line in lines:
        side = next((side for side in _SIDES if member(line, f"{side} schema") is not None), None)
        if side is not None:
            schemas[side] = _member(line, f"{side} schema")
            continue
        raws = []
        for side in _SIDES:
            text = _member(line, side)
            whole = text if "null" in {text, schemas[side]} else join_schema(schemas[side], text)
            raws.append(None if text == "null" else whole.replace(_PREFIX, prefix).encode())
        headers = _member(line, "headers").replace(_CONTEXT, ",".join(CONTEXT)).replace(_PREFIX, prefix)
        pairs = tuple((name, None if text is None else text.encode()) for name, text in json.loads(headers))
        partition = int(_member(line, "partition"))
        yield KafkaRecord(topic, partition, ends[partition], raws[0], raws[1], pairs)
        ends[partition] += 1


def _headers(record: KafkaRecord, prefix: str) -> Tree:
    pairs = [[name, None if value is None else value.decode()] for name, value in record.headers]
    texts = [_without_prefix(json.dumps(each, ensure_ascii=False, separators=(",", ":")), prefix) for each in pairs]
    first = next((at for at in range(len(texts)) if tuple(texts[at : at + len(CONTEXT)]) == CONTEXT), None)
    if first is not None:
        texts[first : first + len(CONTEXT)] = [_CONTEXT]
    return [read_tree(text) for text in texts]


def _without_prefix(text: str, prefix: str) -> str:
    if _PREFIX in text:
        raise ValueError(f"{_PREFIX} is a token of the stored form, and occurs in {text[:80]}...")
    return text.replace(prefix, _PREFIX)


def _label(line: Tree) -> str:
    """Return what the versions of a line have in common in all variants."""
    value = member(line, "value")
    if value is None:
        return render(line)[:20]
    if member(value, "op") == '"r"':
        return "r"
    source = [render(member(value, "source", name) or "") for name in ("pos", "row")]
    rest = [render(member(value, name) or "") for name in ("op", "ddl", "status", "id")]
    return " ".join([*source, *rest])


def _member(line: Tree, name: str) -> str:
    found = member(line, name)
    if found is None:
        raise ValueError(f"{render(line)[:80]}... has no {name}")
    return render(found)
