"""Compares the schema blocks of Debezium's records with the table schemas that Tailrace publishes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from schemas.names import schemas_topic
from schemas.table import TableSchema
from tests.oracle.compare import Difference
from tests.oracle.golden import split_schema
from tests.oracle.rows import Row
from tests.oracle.tokens import read_tree
from tests.oracle.topics import Written

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
            nearest = max(alike, key=lambda each: sum(each[name] == block for name, block in version))
            differences += [
                Difference(row, ("schema", name), read_tree(block), read_tree(nearest[name]))
                for name, block in version
                if nearest[name] != block
            ]
    return differences


def _columns(blocks: Iterable[dict[str, Any]]) -> Columns:
    kept = ({name: part for name, part in block.items() if name not in {"default", "doc"}} for block in blocks)
    return tuple((block["field"], json.dumps(block, ensure_ascii=False, separators=(",", ":"))) for block in kept)
