"""Compares the schema blocks of Debezium's records with the table schemas that Tailrace publishes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tailrace.schemas.names import schemas_topic
from tailrace.schemas.table import TableSchema
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.difference import Difference
from tests.debezium_parity.payload import split_schema
from tests.debezium_parity.rows import Row, render
from tests.debezium_parity.tailrace import tailrace_prefix
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import Written
from tests.debezium_parity.variants import Variant

_ABOUT_RULES: Final = re.compile(r"masked|truncateLength|__debezium\.source\..*").fullmatch

Columns = tuple[tuple[str, str], ...]
"""(name, schema block as JSON text) of each column in order, without defaults and comments."""


def debezium_schemas(records: Iterable[Written], *, prefix: str) -> dict[str, set[Columns]]:
    """Return every version of the columns of every topic, as the schema blocks of its records tell them."""
    found: dict[str, set[Columns]] = defaultdict(set)
    seen: set[str] = set()
    for record in records:
        topic = record.topic.removeprefix(prefix)
        if topic.count(".") != 2 or not (record.value or b"").startswith(b'{"schema":'):
            continue
        schema, _ = split_schema((record.value or b"").decode())
        if schema not in seen:
            seen.add(schema)
            [after] = [each for each in json.loads(schema)["fields"] if each["field"] == "after"]
            found[topic].add(_columns(after["fields"]))
    return found


def tailrace_schemas(records: Iterable[Written], *, prefix: str) -> dict[str, set[Columns]]:
    """Return every version of the columns of every topic, as the schemas topic tells them."""
    found: dict[str, set[Columns]] = defaultdict(set)
    for record in records:
        if record.topic == schemas_topic(prefix) and record.value is not None:
            table, _ = TableSchema.from_json(record.value)
            blocks = [column.schema.to_json(column.name) for column in table.columns]
            found[table.topic.removeprefix(prefix)].add(_columns(blocks))
    return found


def schema_blocks(records: Iterable[Written], *, prefix: str) -> tuple[dict[str, set[Columns]], ...]:
    """Return every version of keys, of rows, and of the envelopes around rows, as the blocks of the records tell them.

    Defaults are kept as they are written; the prefix is taken out of names.
    """
    keys: dict[str, set[Columns]] = defaultdict(set)
    rows: dict[str, set[Columns]] = defaultdict(set)
    around: dict[str, set[Columns]] = defaultdict(set)
    seen: set[tuple[str, str]] = set()
    for record in records:
        topic = record.topic.removeprefix(prefix)
        if topic.count(".") != 2 or topic.startswith(".tailrace."):
            continue
        for raw, found in ((record.key, keys), (record.value, rows)):
            schema = split_schema(raw.decode())[0] if raw is not None and raw.startswith(b'{"schema":') else ""
            if not schema or (topic, schema) in seen:
                continue
            seen.add((topic, schema))
            block = read_tree(schema.replace(f'"name":"{prefix}.', '"name":".'))
            fields = _fields(block)
            if found is keys:
                keys[topic].add(_texts([*fields, _bare(block, "key")]))
            else:
                rows[topic].add(_texts(_fields(next(each for each in fields if member(each, "field") == '"after"'))))
                parts = [
                    _bare(each, "") if member(each, "field") in {'"before"', '"after"'} else each for each in fields
                ]
                around[topic].add(_texts([*parts, _bare(block, "envelope")]))
    return keys, rows, around


def published_differences(variant: Variant, expected: Sequence[Written], actual: Sequence[Written]) -> list[Difference]:
    """Return how the blocks around keys and values differ, for a variant that has Tailrace write them."""
    if variant.converters == "json":
        return []
    theirs = schema_blocks(expected, prefix=debezium_prefix(variant))
    ours = schema_blocks(actual, prefix=tailrace_prefix(variant))
    return [each for their, our in zip(theirs, ours, strict=True) for each in schema_differences(their, our)]


def _fields(struct: Tree) -> list[Tree]:
    fields = member(struct, "fields")
    assert isinstance(fields, list)
    return fields


def _bare(struct: Tree, name: str) -> Tree:
    """Return a struct without its fields, called ``name`` where it has no name within another."""
    assert isinstance(struct, tuple)
    kept = tuple(each for each in struct if each[0] != '"fields"')
    return (*kept, ('"field"', f'"{name}"')) if name else kept


def _texts(fields: Iterable[Tree]) -> Columns:
    return tuple((str(member(field, "field")).strip('"'), render(field)) for field in fields)


def schema_differences(expected: dict[str, set[Columns]], actual: dict[str, set[Columns]]) -> list[Difference]:
    """Return, for each version that only Debezium has, how each column differs from the nearest version of Tailrace."""
    differences = []
    for topic, versions in sorted(expected.items()):
        ours = actual.get(topic, set())
        for version in sorted(versions - ours):
            row = Row(topic, ("schema",), Written(topic, 0, 0, None, None, ()), None, None)
            names = [name for name, _ in version]
            alike = [dict(each) for each in ours if [name for name, _ in each] == names]
            if not alike:
                told = json.dumps(sorted([name for name, _ in each] for each in ours), separators=(",", ":"))
                differences.append(
                    Difference(row, ("schema",), read_tree(json.dumps(names, separators=(",", ":"))), told)
                )
                continue
            nearest = max(alike, key=lambda each: _likeness(version, each))
            differences += [
                Difference(row, ("schema", name), read_tree(block), read_tree(nearest[name]))
                for name, block in version
                if nearest[name] != block
            ]
    return differences


def _likeness(version: Columns, other: dict[str, str]) -> tuple[int, int]:
    """Return how many columns are equal but for defaults, and how many are equal."""

    def bare(block: str) -> str:
        block = re.sub(r'"__debezium\.source\.column\.(?:type|length|scale|comment)":"[^"]*",', "", block)
        return re.sub(r'"doc":"(?:[^"\\]|\\.)*",', "", re.sub(r'"default":.*,"field":', '"field":', block))

    same = sum(bare(other[name]) == bare(block) for name, block in version)
    return same, sum(other[name] == block for name, block in version)


def _columns(blocks: Iterable[dict[str, Any]]) -> Columns:
    kept = [{name: part for name, part in block.items() if name not in {"default", "doc"}} for block in blocks]
    for block in kept:
        # What a rule does to a column, or its type at the source, is nothing that a decoder needs.
        told = {name: part for name, part in block.pop("parameters", {}).items() if not _ABOUT_RULES(name)}
        if told:
            field = block.pop("field")
            block |= {"parameters": told, "field": field}
    return tuple((block["field"], json.dumps(block, ensure_ascii=False, separators=(",", ":"))) for block in kept)
