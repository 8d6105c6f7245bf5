"""Sorts records by the time at which the connector wrote them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.debezium_parity.records import parse
from tests.debezium_parity.tokens import Tree, member, number, text
from tests.debezium_parity.topics import KafkaRecord

TIMES: Final = ("ts_ms", "ts_us", "ts_ns")

Times = tuple[int, int, int]
"""``ts_ms``, ``ts_us`` and ``ts_ns`` of one time."""


class Parsed(NamedTuple):
    """A record with the payloads of its key and value; both are None for a record that is internal to Tailrace."""

    record: KafkaRecord
    key: Tree | None
    value: Tree | None


class _Order(NamedTuple):
    """The rank of a record."""

    topic: str
    time: int
    number: int
    tombstone: bool = False
    """A tombstone comes after the delete with the same number."""


def parsed_record(record: KafkaRecord, prefix: str) -> Parsed:
    """Parse the key and the value of a record."""
    if is_internal(record.topic, prefix):
        return Parsed(record, None, None)
    return Parsed(record, parse(record.key), parse(record.value))


def in_time_order(records: Iterable[Parsed], prefix: str) -> list[Parsed]:
    """Return the records by topic and time; the order within a partition does not change if records have keys."""
    latest: dict[tuple[str, int], int] = defaultdict(int)
    ordered: list[tuple[_Order, Parsed]] = []
    deletes: dict[str, list[_Order]] = defaultdict(list)
    tombstones: list[tuple[_Order, Parsed]] = []
    for at, each in enumerate(records):
        topic, partition = each.record.topic, each.record.partition
        latest[topic, partition] = max(latest[topic, partition], _time(each, prefix))
        order = _Order(topic, latest[topic, partition], at)
        if each.record.key is None and each.record.value is None:
            tombstones.append((order, each))
            continue
        ordered.append((order, each))
        if each.record.key is None and member(each.value or "", "op") == '"d"':
            deletes[topic].append(order)
    for found in deletes.values():
        found.sort(reverse=True)
    # Tombstones without key are equal, and their partition need not be that of the delete.
    for order, each in sorted(tombstones, key=lambda entry: entry[0]):
        found = deletes[order.topic]
        ordered.append((found.pop()._replace(tombstone=True) if found else order, each))
    return [each for _, each in sorted(ordered, key=lambda entry: entry[0])]


def _time(parsed: Parsed, prefix: str) -> int:
    """Return a number that grows with the time at which the connector wrote a record, 0 for other records."""
    if parsed.record.topic == f"{prefix}.transaction":
        number = text(parsed.value, "id").rpartition(":")[2]
        return int(number) if number.isdecimal() else 0
    times = times_of(parsed.value) if member(parsed.value or "", "op") is not None else None
    return 0 if times is None else times[2]


def has_arbitrary_partition(record: KafkaRecord, prefix: str) -> bool:
    """Whether the partition of a record depends on the run.

    A record without key goes to any partition. The key of a transaction contains the GTID, an Avro key the id that the
    registry gave to its schema.
    """
    if record.key is None or record.topic == f"{prefix}.transaction":
        return True
    return record.key.startswith(b'{"schema":{"type":"record"')


def is_internal(topic: str, prefix: str) -> bool:
    """Whether Tailrace uses the topic internally."""
    return topic.startswith(f"{prefix}.tailrace.")


def times_of(tree: Tree | None) -> Times | None:
    """Return the time of a block, None where its three numbers are not one time."""
    ms, us, ns = (number(tree, name) for name in TIMES)
    if ms is None or us is None or ns is None or (ms, us) != (us // 1000, ns // 1000):
        return None
    return ms, us, ns
