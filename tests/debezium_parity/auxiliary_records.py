"""Parsed records of auxiliary topics: schema changes, transaction metadata, heartbeats.

The report shows them under names of their own. Heartbeats differ only in their time, so equal ones count once.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from tests.debezium_parity.difference import Difference
from tests.debezium_parity.payload import has_schema, split_schema
from tests.debezium_parity.records import (
    CHANGES,
    HEARTBEATS,
    TRANSACTIONS,
    Identity,
    ParsedRecord,
    data_records,
    parse,
    render,
)
from tests.debezium_parity.statements import XA_TABLES
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import KafkaRecord, heartbeat_topic

XA: Final = "xa"
"""In the identity of BEGIN and END of an XA transaction."""


def all_records(records: Sequence[KafkaRecord], *, prefix: str) -> list[ParsedRecord]:
    """Return the records of data topics and of auxiliary topics."""
    return [*data_records(records, prefix=prefix), *auxiliary_records(records, prefix=prefix)]


def auxiliary_records(records: Iterable[KafkaRecord], *, prefix: str) -> list[ParsedRecord]:
    """Return the records of auxiliary topics by topic, partition and offset."""
    found: list[ParsedRecord] = []
    seen: dict[tuple[str, Identity], int] = {}
    parsed = [
        (name, record, parse(record.key), parse(record.value)) for name, record in _of_topics(records, prefix=prefix)
    ]
    xa = {_text(value, "id") for name, _, _, value in parsed if name == TRANSACTIONS and value and _ends_xa(value)}
    for name, record, key, value in parsed:
        assert key is not None
        assert value is not None
        identity = {CHANGES: _change, TRANSACTIONS: _transaction, HEARTBEATS: _heartbeat}[name](key, value)
        if name == TRANSACTIONS and identity[1] in xa:
            identity = (*identity, XA)
        count = seen[name, identity] = seen.get((name, identity), -1) + 1
        if count and name == HEARTBEATS:
            continue
        if identity[0] == "ddl":  # a statement can have several records
            identity = (*identity, str(count))
        elif count:
            identity = (*identity, f"repeat {count}")
        found.append(ParsedRecord(name, identity, record, key, value))
    return found


def auxiliary_schema_differences(
    expected: Iterable[KafkaRecord], actual: Iterable[KafkaRecord], *, prefixes: tuple[str, str]
) -> list[Difference]:
    """Return the differences between the schemas of keys and values of auxiliary topics."""
    schemas = [_schemas(side, prefix=prefix) for side, prefix in zip((expected, actual), prefixes, strict=True)]
    differences = []
    for name, side in sorted(schemas[0].keys() | schemas[1].keys()):
        texts = [each.get((name, side), set()) for each in schemas]
        if texts[0] != texts[1]:
            record = ParsedRecord(name, ("schema",), KafkaRecord(name, 0, 0, None, None, ()), None, None)
            trees: list[Tree | None] = [read_tree(min(each)) if each else None for each in texts]
            differences.append(Difference(record, ("schema", side), *trees))
    return differences


def _schemas(records: Iterable[KafkaRecord], *, prefix: str) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, record in _of_topics(records, prefix=prefix):
        for side, raw in (("key", record.key), ("value", record.value)):
            if raw is not None and has_schema(raw):
                found[name, side].add(split_schema(raw.decode())[0])
    return found


def _of_topics(records: Iterable[KafkaRecord], *, prefix: str) -> Iterator[tuple[str, KafkaRecord]]:
    names = {prefix: CHANGES, f"{prefix}.transaction": TRANSACTIONS, heartbeat_topic(prefix): HEARTBEATS}
    for record in sorted(records, key=lambda each: each[:3]):
        if record.topic in names:
            yield names[record.topic], record


def _change(key: Tree, value: Tree) -> Identity:
    if _text(value, "source", "snapshot") not in {"false", "null"}:
        return "r", _text(value, "ddl")
    return "ddl", *(_text(value, "source", name) for name in ("table", "file", "pos"))


def _ends_xa(value: Tree) -> bool:
    """Whether this is the END of an XA transaction, by the tables that it counts."""
    counts = member(value, "data_collections")
    tables = [_text(each, "data_collection").rpartition(".")[2] for each in counts] if isinstance(counts, list) else []
    return bool(tables) and set(tables) <= set(XA_TABLES)


def _transaction(key: Tree, value: Tree) -> Identity:
    return _text(value, "status"), _text(value, "id")


def _heartbeat(key: Tree, value: Tree) -> Identity:
    return ("heartbeat", *(name.strip('"') for tree in (key, value) if isinstance(tree, tuple) for name, _ in tree))


def _text(tree: Tree, *path: str) -> str:
    found = member(tree, *path)
    assert isinstance(found, str), f"no {'.'.join(path)} in {render(tree)[:200]}"
    return found.strip('"')
