"""Compares the schemas in Debezium's records with those that Tailrace publishes."""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Sequence
from typing import Any, Final

from tailrace.schemas.alteration import Alteration
from tailrace.schemas.names import schemas_topic
from tailrace.schemas.table import TableSchema
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.difference import Difference
from tests.debezium_parity.payload import split_schema
from tests.debezium_parity.records import ParsedRecord, render
from tests.debezium_parity.tailrace import tailrace_prefix
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import KafkaRecord
from tests.debezium_parity.variants import Variant

_COLUMN_OPTIONS: Final = re.compile(r"masked|truncateLength|__debezium\.source\..*").fullmatch

Columns = tuple[tuple[str, str], ...]
"""(name, JSON of the schema) of each column, in order."""


def debezium_schemas(records: Iterable[KafkaRecord], *, prefix: str) -> dict[str, set[Columns]]:
    """Return all versions of the columns of each topic from the schemas of its records."""
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


def tailrace_schemas(records: Iterable[KafkaRecord], *, prefix: str) -> dict[str, set[Columns]]:
    """Return all versions of the columns of each topic from the schemas topic."""
    found: dict[str, set[Columns]] = defaultdict(set)
    for record in records:
        if record.topic != schemas_topic(prefix) or record.value is None:
            continue
        if Alteration.from_json(record.value) is None:
            table, _ = TableSchema.from_json(record.value)
            blocks = [column.schema.to_json(column.name) for column in table.columns]
            found[table.topic.removeprefix(prefix)].add(_columns(blocks))
    return found


def record_schemas(records: Iterable[KafkaRecord], *, prefix: str) -> tuple[dict[str, set[Columns]], ...]:
    """Return all versions of the schemas of keys, rows and envelopes by topic, with defaults and without the prefix."""
    keys: dict[str, set[Columns]] = defaultdict(set)
    rows: dict[str, set[Columns]] = defaultdict(set)
    envelopes: dict[str, set[Columns]] = defaultdict(set)
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
                envelopes[topic].add(_texts([*parts, _bare(block, "envelope")]))
    return keys, rows, envelopes


def published_differences(
    variant: Variant, expected: Sequence[KafkaRecord], actual: Sequence[KafkaRecord]
) -> list[Difference]:
    """Return the differences of the schemas in the records, for variants with schemas."""
    if variant.converters == "json":
        return []
    expected_schemas = record_schemas(expected, prefix=debezium_prefix(variant))
    actual_schemas = record_schemas(actual, prefix=tailrace_prefix(variant))
    return [each for pair in zip(expected_schemas, actual_schemas, strict=True) for each in schema_differences(*pair)]


def _fields(struct: Tree) -> list[Tree]:
    fields = member(struct, "fields")
    assert isinstance(fields, list)
    return fields


def _bare(struct: Tree, name: str) -> Tree:
    """Return a struct without its fields; ``name`` becomes its field name if it is not empty."""
    assert isinstance(struct, tuple)
    kept = tuple(each for each in struct if each[0] != '"fields"')
    return (*kept, ('"field"', f'"{name}"')) if name else kept


def _texts(fields: Iterable[Tree]) -> Columns:
    return tuple((str(member(field, "field")).strip('"'), render(field)) for field in fields)


def schema_differences(expected: dict[str, set[Columns]], actual: dict[str, set[Columns]]) -> list[Difference]:
    """Return the differences between each version that only Debezium has and Tailrace's most similar version."""
    differences = []
    for topic, versions in sorted(expected.items()):
        others = actual.get(topic, set())
        for version in sorted(versions - others):
            record = ParsedRecord(topic, ("schema",), KafkaRecord(topic, 0, 0, None, None, ()), None, None)
            names = [name for name, _ in version]
            similar = [dict(each) for each in others if [name for name, _ in each] == names]
            if not similar:
                names_of_all = json.dumps(sorted([name for name, _ in each] for each in others), separators=(",", ":"))
                differences.append(
                    Difference(record, ("schema",), read_tree(json.dumps(names, separators=(",", ":"))), names_of_all)
                )
                continue
            nearest = max(similar, key=lambda each: _similarity(version, each))
            differences += [
                Difference(record, ("schema", name), read_tree(block), read_tree(nearest[name]))
                for name, block in version
                if nearest[name] != block
            ]
    return differences


def _similarity(version: Columns, other: dict[str, str]) -> tuple[int, int]:
    """Return how many columns are equal without defaults, and how many are equal."""

    def bare(block: str) -> str:
        block = re.sub(r'"__debezium\.source\.column\.(?:type|length|scale|comment)":"[^"]*",', "", block)
        return re.sub(r'"doc":"(?:[^"\\]|\\.)*",', "", re.sub(r'"default":.*,"field":', '"field":', block))

    same = sum(bare(other[name]) == bare(block) for name, block in version)
    return same, sum(other[name] == block for name, block in version)


def _columns(blocks: Iterable[dict[str, Any]]) -> Columns:
    kept = [{name: part for name, part in block.items() if name not in {"default", "doc"}} for block in blocks]
    for block in kept:
        # A decoder needs neither the column options nor the source type.
        parameters = {name: part for name, part in block.pop("parameters", {}).items() if not _COLUMN_OPTIONS(name)}
        if parameters:
            field = block.pop("field")
            block |= {"parameters": parameters, "field": field}
    return tuple((block["field"], json.dumps(block, ensure_ascii=False, separators=(",", ":"))) for block in kept)
