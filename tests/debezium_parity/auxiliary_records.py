"""Records that are not rows as the comparison sees them: schema changes, transactions, heartbeats.

They get the names of tables of their own in the report. A heartbeat says nothing but its time, so that those that are
alike are one.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence

from tests.debezium_parity.difference import Difference
from tests.debezium_parity.payload import split_schema
from tests.debezium_parity.rows import CHANGES, HEARTBEATS, TRANSACTIONS, Identity, Row, parse, render, rows_of
from tests.debezium_parity.tokens import Tree, member, read_tree
from tests.debezium_parity.topics import Written, heartbeat_topic


def all_rows(records: Sequence[Written], *, prefix: str) -> list[Row]:
    """Return the records of data topics, and those beside them."""
    return [*rows_of(records, prefix=prefix), *auxiliary_rows(records, prefix=prefix)]


def auxiliary_rows(records: Iterable[Written], *, prefix: str) -> list[Row]:
    """Return the records of the topics beside those of data, in the order of their topics, partitions, offsets."""
    rows: list[Row] = []
    seen: dict[tuple[str, Identity], int] = {}
    for name, record in _of_topics(records, prefix=prefix):
        key, value = parse(record.key), parse(record.value)
        assert key is not None
        assert value is not None
        identity = {CHANGES: _change, TRANSACTIONS: _transaction, HEARTBEATS: _beat}[name](key, value)
        count = seen[name, identity] = seen.get((name, identity), -1) + 1
        if count and name == HEARTBEATS:
            continue
        if identity[0] == "ddl":  # one statement may have several records
            identity = (*identity, str(count))
        elif count:
            identity = (*identity, f"again {count}")
        rows.append(Row(name, identity, record, key, value))
    return rows


def auxiliary_schema_differences(
    expected: Iterable[Written], actual: Iterable[Written], *, prefixes: tuple[str, str]
) -> list[Difference]:
    """Return how the schemas around keys and values differ, for JSON with schemas."""
    theirs, ours = (_blocks(side, prefix=prefix) for side, prefix in zip((expected, actual), prefixes, strict=True))
    differences = []
    for name, side in sorted(theirs.keys() | ours.keys()):
        one, other = theirs.get((name, side), set()), ours.get((name, side), set())
        if one != other:
            row = Row(name, ("schema",), Written(name, 0, 0, None, None, ()), None, None)
            trees: list[Tree | None] = [read_tree(min(blocks)) if blocks else None for blocks in (one, other)]
            differences.append(Difference(row, ("schema", side), *trees))
    return differences


def _blocks(records: Iterable[Written], *, prefix: str) -> dict[tuple[str, str], set[str]]:
    found: dict[tuple[str, str], set[str]] = defaultdict(set)
    for name, record in _of_topics(records, prefix=prefix):
        for side, raw in (("key", record.key), ("value", record.value)):
            if raw is not None and raw.startswith(b'{"schema":'):
                found[name, side].add(split_schema(raw.decode())[0])
    return found


def _of_topics(records: Iterable[Written], *, prefix: str) -> Iterator[tuple[str, Written]]:
    names = {prefix: CHANGES, f"{prefix}.transaction": TRANSACTIONS, heartbeat_topic(prefix): HEARTBEATS}
    for record in sorted(records, key=lambda each: each[:3]):
        if record.topic in names:
            yield names[record.topic], record


def _change(key: Tree, value: Tree) -> Identity:
    if _plain(value, "source", "snapshot") not in {"false", "null"}:
        return "r", _plain(value, "ddl")
    return "ddl", *(_plain(value, "source", name) for name in ("table", "file", "pos"))


def _transaction(key: Tree, value: Tree) -> Identity:
    return _plain(value, "status"), _plain(value, "id")


def _beat(key: Tree, value: Tree) -> Identity:
    return ("heartbeat", *(name.strip('"') for tree in (key, value) if isinstance(tree, tuple) for name, _ in tree))


def _plain(tree: Tree, *path: str) -> str:
    found = member(tree, *path)
    assert isinstance(found, str), f"no {'.'.join(path)} in {render(tree)[:200]}"
    return found.strip('"')
