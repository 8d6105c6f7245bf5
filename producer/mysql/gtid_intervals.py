"""The numbers of one source in a GTID set: immutable, and cheap to extend however many gaps there are.

Intervals are kept in blocks. A set with one more number shares all blocks but one with the former set: a replica that
applies in parallel leaves thousands of gaps, and the stream adds one number for each transaction.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import chain
from typing import Final

Interval = tuple[int, int]
"""First and last number."""

_BLOCK: Final = 128
_INFINITE: Final = 1 << 64
"""Greater than any number."""


class Intervals:
    """Closed, sorted, disjoint intervals that do not touch."""

    __slots__ = ("_blocks", "_firsts")

    def __init__(self, blocks: tuple[tuple[Interval, ...], ...]) -> None:
        self._blocks = blocks
        self._firsts = [block[0][0] for block in blocks]

    @classmethod
    def of(cls, ranges: Iterable[Interval]) -> Intervals:
        """Return the union of any intervals."""
        return cls(_blocks(_merge(ranges)))

    @property
    def blocks(self) -> tuple[tuple[Interval, ...], ...]:
        """The intervals, in blocks that other sets may share."""
        return self._blocks

    def __iter__(self) -> Iterator[Interval]:
        return chain.from_iterable(self._blocks)

    def __bool__(self) -> bool:
        return bool(self._blocks)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Intervals) and (self is other or tuple(self) == tuple(other))

    def __hash__(self) -> int:
        return hash(tuple(self))

    def covers(self, first: int, last: int) -> bool:
        """Return whether all numbers from ``first`` to ``last`` are in the set."""
        found = bisect_right(self._firsts, first) - 1
        if found < 0:
            return False
        block = self._blocks[found]
        return last <= block[bisect_right(block, (first, _INFINITE)) - 1][1]

    def with_numbers(self, numbers: Iterable[int]) -> Intervals:
        """Return the set with more numbers: quick if most of them follow each other."""
        grown = self
        last = grown.greatest
        for number in numbers:
            if number == last + 1:
                last = number
            else:
                grown = grown.up_to(last).with_number(number)
                last = grown.greatest
        return grown.up_to(last)

    @property
    def greatest(self) -> int:
        """The greatest number, below any if there is none."""
        return self._blocks[-1][-1][1] if self._blocks else -_INFINITE

    def up_to(self, last: int) -> Intervals:
        """Return the set with all numbers from its greatest one to ``last``."""
        if last <= self.greatest:
            return self
        newest = self._blocks[-1]
        grown = object.__new__(Intervals)
        grown._blocks = (*self._blocks[:-1], (*newest[:-1], (newest[-1][0], last)))
        grown._firsts = self._firsts
        return grown

    def with_number(self, number: int) -> Intervals:
        """Return the set with one more number."""
        if not self._blocks:
            return Intervals((((number, number),),))
        if self.greatest == number - 1:  # the common case: the next number of the source
            return self.up_to(number)
        found = max(bisect_right(self._firsts, number) - 1, 0)
        block = self._blocks[found]
        at = bisect_right(block, (number, _INFINITE))  # the intervals before ``at`` begin at or before the number
        if at and number <= block[at - 1][1]:
            return self
        end = found + 1
        if at == len(block) and end < len(self._blocks) and self._firsts[end] == number + 1:
            block, end = block + self._blocks[end], end + 1  # the number joins intervals of two blocks
        first = last = number
        start, stop = at, at
        if at and block[at - 1][1] == number - 1:
            start, first = at - 1, block[at - 1][0]
        if at < len(block) and block[at][0] == number + 1:
            stop, last = at + 1, block[at][1]
        changed = (*block[:start], (first, last), *block[stop:])
        return Intervals((*self._blocks[:found], *_blocks(changed), *self._blocks[end:]))


def _blocks(intervals: tuple[Interval, ...]) -> tuple[tuple[Interval, ...], ...]:
    if len(intervals) <= 2 * _BLOCK:
        return (intervals,) if intervals else ()
    return tuple(intervals[at : at + _BLOCK] for at in range(0, len(intervals), _BLOCK))


def _merge(ranges: Iterable[Interval]) -> tuple[Interval, ...]:
    merged: list[Interval] = []
    for first, last in sorted(ranges):
        if merged and first <= merged[-1][1] + 1:
            merged[-1] = (merged[-1][0], max(last, merged[-1][1]))
        else:
            merged.append((first, last))
    return tuple(merged)
