"""Parsed records of data topics, identified by their events."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.debezium_parity.payload import has_schema, split_schema
from tests.debezium_parity.statements import XA_COMMITTED
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import KafkaRecord

Identity = tuple[str, ...]

CHANGES: Final = "(schema changes)"
TRANSACTIONS: Final = "(transactions)"
HEARTBEATS: Final = "(heartbeats)"
"""The names of topics that have no table."""


class ParsedRecord(NamedTuple):
    """A record with the payloads of its key and value; ``topic`` is without the prefix."""

    topic: str
    identity: Identity
    """Streamed: the operation and the binlog position. Snapshot: ``r`` and the key, or the row if it has no key.

    The rows of a prepared transaction have different positions: its changes differ in their rows.
    """
    raw: KafkaRecord
    key: Tree | None
    value: Tree | None
    """None for a tombstone."""

    @property
    def table(self) -> str:
        """The last part of the topic name."""
        return self.topic.rpartition(".")[2]

    @property
    def op(self) -> str:
        """The operation, or ``tombstone``."""
        return self.identity[0]


def data_records(records: Iterable[KafkaRecord], *, prefix: str) -> list[ParsedRecord]:
    """Return the records of data topics (``prefix.database.table``) by topic, partition and offset."""
    found: list[ParsedRecord] = []
    seen: dict[tuple[str, Identity], int] = {}
    last: dict[tuple[str, int, bytes | None], Identity] = {}
    for record in sorted(records, key=lambda each: each[:3]):
        topic = record.topic.removeprefix(prefix)
        if topic.count(".") != 2 or topic.startswith(".tailrace."):
            continue
        key, value = parse(record.key), parse(record.value)
        partition_key = (record.topic, record.partition, record.key)
        identity = (
            ("tombstone", *last.get(partition_key, ("without a delete",)))
            if value is None
            else _identity(topic, key, value)
        )
        # Equal rows without a key differ in their order only.
        count = seen[topic, identity] = seen.get((topic, identity), -1) + 1
        if count:
            identity = (*identity, f"repeat {count}")
        last[partition_key] = identity
        found.append(ParsedRecord(topic, identity, record, key, value))
    return found


def parse(raw: bytes | None) -> Tree | None:
    """Return the payload of a key or value, None for null."""
    if raw is None:
        return None
    text = raw.decode("utf-8")
    return read_tree(split_schema(text)[1] if has_schema(raw) else text)


def render(tree: Tree) -> str:
    """Return the JSON text of a tree."""
    if isinstance(tree, str):
        return tree
    if isinstance(tree, list):
        return f"[{','.join(map(render, tree))}]"
    return "{" + ",".join(f"{name}:{render(value)}" for name, value in tree) + "}"


def _identity(topic: str, key: Tree | None, value: Tree) -> Identity:
    op = _text(value, "op")
    if op == "r":
        return op, render(key) if key is not None else render(member(value, "after") or "null")
    if topic.endswith(f".{XA_COMMITTED}"):
        return op, *(render(member(value, image) or "null") for image in ("before", "after"))
    source = tuple(_text(value, "source", name) for name in ("file", "pos", "row"))
    return (op, *source)


def _text(tree: Tree, *path: str) -> str:
    found = member(tree, *path)
    if not isinstance(found, str):
        raise ValueError(f"no {'.'.join(path)} in {render(tree)[:200]}")
    return found.strip('"')
