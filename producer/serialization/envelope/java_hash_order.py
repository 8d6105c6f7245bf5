"""The order in which a Java HashMap or HashSet of strings yields them: Debezium's lists of tables have it."""

from __future__ import annotations

from collections.abc import Sequence


def hash_order(names: Sequence[str]) -> list[str]:
    """Return distinct strings, given in the order of insertion, as ``java.util.HashMap`` iterates over them."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))  # stable: a bucket keeps the order


def _spread(name: str) -> int:
    value = 0
    units = name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value ^ value >> 16
