"""GTID sets: immutable values; intervals are closed, sorted and disjoint.

Format: ``uuid:1-5:7,uuid2:1-3`` as MySQL prints it. Two sets may be incomparable: ``contains`` is a partial order.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.gtid_intervals import Interval, Intervals


class GtidSet:
    """An immutable set of GTIDs."""

    __slots__ = ("_intervals",)

    def __init__(self, intervals: Mapping[str, Iterable[Interval]]) -> None:
        self._intervals: dict[str, Intervals] = {}
        for source, ranges in intervals.items():
            merged = Intervals.of(ranges)
            if merged:
                self._intervals[source] = merged

    @classmethod
    def parse(cls, text: str) -> GtidSet:
        """Parse the text form of the server; blanks and line breaks are allowed."""
        found: dict[str, list[Interval]] = {}
        for part in filter(None, (p.strip() for p in text.split(","))):
            source, *ranges = part.split(":")
            target = found.setdefault(source.lower().strip(), [])
            for entry in ranges:
                first, dash, last = entry.strip().partition("-")
                if not _is_number(first) or (dash and not _is_number(last)):
                    raise BinlogError(
                        "a GTID set has an unknown form",
                        hint="tags (MySQL 8.3) are not supported: use a server that has none in gtid_executed, where "
                        "sessions use gtid_next='AUTOMATIC'",
                        seen=part[:200],
                    )
                target.append((int(first), int(last or first)))
        return cls(found)

    def __str__(self) -> str:
        return ",".join(
            source + "".join(f":{a}" if a == b else f":{a}-{b}" for a, b in ranges)
            for source, ranges in self.intervals()
        )

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._intervals == other._intervals

    def __hash__(self) -> int:
        return hash(str(self))

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def intervals(self) -> Sequence[tuple[str, Iterable[Interval]]]:
        """Return the sources, in order, each with its intervals."""
        return sorted(self._intervals.items())

    def has(self, gtid: str) -> bool:
        """Return whether one GTID, ``uuid:n``, is in the set."""
        source, _, number = gtid.partition(":")
        return self._covers(source, int(number), int(number))

    def contains(self, other: GtidSet) -> bool:
        """Return whether every GTID of ``other`` is in this set."""
        return all(self._covers(s, a, b) for s, ranges in other._intervals.items() for a, b in ranges)

    def _covers(self, source: str, first: int, last: int) -> bool:
        ranges = self._intervals.get(source)
        return ranges is not None and ranges.covers(first, last)

    def with_gtid(self, gtid: str) -> GtidSet:
        """Return the set with one more GTID; it shares most of its intervals with this one."""
        return self.with_gtids((gtid,))

    def with_gtids(self, gtids: Iterable[str]) -> GtidSet:
        """Return the set with more GTIDs; it shares most of its intervals with this one."""
        added: dict[str, list[int]] = {}
        for gtid in gtids:
            source, _, number = gtid.partition(":")
            if source in added:
                added[source].append(int(number))
            else:
                added[source] = [int(number)]
        result = object.__new__(GtidSet)
        result._intervals = self._intervals.copy()
        for source, numbers in added.items():
            result._intervals[source] = self._intervals.get(source, _NONE).with_numbers(numbers)
        return result

    def without(self, gtid: str) -> GtidSet:
        """Return the set without one GTID."""
        source, _, number = gtid.partition(":")
        n = int(number)
        ranges: list[Interval] = []
        for first, last in self._intervals.get(source, ()):
            if first <= n <= last:
                ranges += [(a, b) for a, b in ((first, n - 1), (n + 1, last)) if a <= b]
            else:
                ranges.append((first, last))
        return GtidSet({**self._intervals, source: ranges})

    def union(self, other: GtidSet) -> GtidSet:
        """Return the union of both sets."""
        sources = self._intervals.keys() | other._intervals.keys()
        return GtidSet({s: [*self._intervals.get(s, ()), *other._intervals.get(s, ())] for s in sources})

    def minus(self, other: GtidSet) -> GtidSet:
        """Return the GTIDs that are in this set only."""
        left: dict[str, list[Interval]] = {}
        for source, ranges in self._intervals.items():
            rest = left.setdefault(source, [])
            for first, last in ranges:
                start = first
                for low, high in other._intervals.get(source, ()):
                    if high < start or low > last:
                        continue
                    if low > start:
                        rest.append((start, low - 1))
                    start = high + 1
                if start <= last:
                    rest.append((start, last))
        return GtidSet(left)

    def shares_source(self, other: GtidSet) -> bool:
        """Return whether both sets have GTIDs of one source."""
        return not self._intervals.keys().isdisjoint(other._intervals)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


_NONE: Final = Intervals(())
