"""GTID sets: immutable values; intervals are closed, sorted and disjoint.

Format: ``uuid:1-5:7:tag:1-3,uuid2:1-3`` as MySQL prints it. A source is a server, ``uuid``, or since MySQL 8.3 a server
and a tag, ``uuid:tag``; each counts its transactions by itself. Two sets may be incomparable: ``contains`` is a partial
order.

A program that knows no tags raises for a set that has some, so a stored set needs no format of its own.
"""

from __future__ import annotations

import re
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
        for part in filter(None, (p.strip() for p in text.lower().split(","))):
            uuid, *entries = (entry.strip() for entry in part.split(":"))
            target = found.setdefault(uuid, [])
            for entry in entries:
                first, dash, last = entry.partition("-")
                if _TAG.fullmatch(entry):
                    target = found.setdefault(f"{uuid}:{entry}", [])
                elif _is_number(first) and (not dash or _is_number(last)):
                    target.append((int(first), int(last or first)))
                else:
                    raise BinlogError(
                        "a GTID set has an unknown form", hint="read from MySQL 5.7 or newer", seen=part[:200]
                    )
        return cls(found)

    def __str__(self) -> str:
        parts: list[str] = []
        last = ""
        for source, ranges in self.intervals():
            uuid, _, tag = source.partition(":")
            numbers = "".join(f":{a}" if a == b else f":{a}-{b}" for a, b in ranges)
            parts.append(f":{tag}{numbers}" if uuid == last else f",{source}{numbers}")
            last = uuid
        return "".join(parts)[1:]

    def __repr__(self) -> str:
        return f"GtidSet({str(self)!r})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GtidSet) and self._intervals == other._intervals

    def __hash__(self) -> int:
        return hash(str(self))

    def __bool__(self) -> bool:
        return bool(self._intervals)

    def intervals(self) -> Sequence[tuple[str, Iterable[Interval]]]:
        """Return the sources, in order, each with its intervals: a server before its tags."""
        return sorted(self._intervals.items())

    def has(self, gtid: str) -> bool:
        """Return whether one GTID, ``uuid:n`` or ``uuid:tag:n``, is in the set."""
        source, _, number = gtid.rpartition(":")
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
            source, _, number = gtid.rpartition(":")
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
        source, _, number = gtid.rpartition(":")
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

    def shares_server(self, other: GtidSet) -> bool:
        """Return whether both sets have GTIDs of one server, whatever their tags."""
        return not self._servers().isdisjoint(other._servers())

    def _servers(self) -> set[str]:
        return {source.partition(":")[0] for source in self._intervals}


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit()


_NONE: Final = Intervals(())
_TAG: Final = re.compile("[a-z_][a-z0-9_]{0,31}")
