"""Records of data topics as the comparison sees them: parsed, and known by what they tell of."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.debezium_parity.payload import split_schema
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import Written

Identity = tuple[str, ...]

CHANGES: Final = "(schema changes)"
TRANSACTIONS: Final = "(transactions)"
HEARTBEATS: Final = "(heartbeats)"
"""What stands for a topic and its table where a record is no row's."""

_WITH_SCHEMA: Final = b'{"schema":'


class Row(NamedTuple):
    """One record of a data topic; ``topic`` is without the prefix."""

    topic: str
    identity: Identity
    """A streamed record: file, position, row, operation. A snapshot row: its key, or all of it where it has none."""
    record: Written
    key: Tree | None
    value: Tree | None
    """The payload, whether or not a schema was around it; None for a tombstone."""

    @property
    def table(self) -> str:
        """The last part of the topic's name."""
        return self.topic.rpartition(".")[2]

    @property
    def op(self) -> str:
        """The operation, or ``tombstone``."""
        return self.identity[0]


def rows_of(records: Iterable[Written], *, prefix: str) -> list[Row]:
    """Return the records of data topics (``prefix.database.table``) in order of topic, partition, offset."""
    rows: list[Row] = []
    seen: dict[tuple[str, Identity], int] = {}
    last: dict[tuple[str, int, bytes | None], Identity] = {}
    for record in sorted(records, key=lambda each: each[:3]):
        topic = record.topic.removeprefix(prefix)
        if topic.count(".") != 2 or topic.startswith(".tailrace."):
            continue
        key, value = parse(record.key), parse(record.value)
        place = (record.topic, record.partition, record.key)
        identity = ("tombstone", *last.get(place, ("of nothing",))) if value is None else _identity(key, value)
        # Equal rows without a key are told apart by their order alone.
        count = seen[topic, identity] = seen.get((topic, identity), -1) + 1
        if count:
            identity = (*identity, f"again {count}")
        last[place] = identity
        rows.append(Row(topic, identity, record, key, value))
    return rows


def parse(raw: bytes | None) -> Tree | None:
    """Return what a key or value says, None for null."""
    if raw is None:
        return None
    text = raw.decode("utf-8")
    return read_tree(split_schema(text)[1] if raw.startswith(_WITH_SCHEMA) else text)


def render(tree: Tree) -> str:
    """Return the JSON text of a tree."""
    if isinstance(tree, str):
        return tree
    if isinstance(tree, list):
        return f"[{','.join(map(render, tree))}]"
    return "{" + ",".join(f"{name}:{render(value)}" for name, value in tree) + "}"


def _identity(key: Tree | None, value: Tree) -> Identity:
    op = _text(value, "op")
    if op == "r":
        return op, render(key) if key is not None else render(member(value, "after") or "null")
    source = tuple(_text(value, "source", name) for name in ("file", "pos", "row"))
    return (op, *source)


def _text(tree: Tree, *path: str) -> str:
    found = member(tree, *path)
    if not isinstance(found, str):
        raise ValueError(f"no {'.'.join(path)} in {render(tree)[:200]}")
    return found.strip('"')
