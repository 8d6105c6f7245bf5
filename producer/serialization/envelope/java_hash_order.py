"""The iteration order of a Java HashMap or HashSet of strings, which Debezium's lists of tables have."""

from __future__ import annotations

from collections.abc import Sequence


def hash_order(names: Sequence[str]) -> list[str]:
    """Return distinct strings, given in insertion order, in the iteration order of ``java.util.HashMap``."""
    buckets = 16
    while len(names) > buckets * 3 // 4:
        buckets *= 2
    return sorted(names, key=lambda name: _spread(name) & (buckets - 1))  # stable: a bucket keeps the insertion order


def _spread(name: str) -> int:
    value = 0
    units = name.encode("utf-16-be")
    for at in range(0, len(units), 2):
        value = (value * 31 + (units[at] << 8 | units[at + 1])) & 0xFFFF_FFFF
    return value ^ value >> 16
