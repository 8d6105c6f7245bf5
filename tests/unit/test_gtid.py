"""GTID sets against plain sets of (source, number)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.gtid_intervals import Intervals

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"
SOURCES = (A, B, f"{B}:app", f"{B}:_2")

members = st.frozensets(st.tuples(st.sampled_from(SOURCES), st.integers(1, 30)), max_size=40)


def of(pairs: frozenset[tuple[str, int]]) -> GtidSet:
    """Return the set with these members."""
    return GtidSet({source: [(n, n) for s, n in pairs if s == source] for source in SOURCES})


@given(members)
def test_text_form_round_trip(pairs: frozenset[tuple[str, int]]) -> None:
    """Print and parse."""
    assert GtidSet.parse(str(of(pairs))) == of(pairs)


@given(members, members)
def test_contains_and_union_match_sets(one: frozenset[tuple[str, int]], other: frozenset[tuple[str, int]]) -> None:
    """A partial order: two sets may be incomparable."""
    assert of(one).contains(of(other)) == (other <= one)
    assert of(one).union(of(other)) == of(one | other)
    assert (of(one) == of(other)) == (one == other)
    assert bool(of(one)) == bool(one)


@given(members, st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40))))
def test_adding_one_by_one_gives_the_same_set(start: frozenset[tuple[str, int]], more: list[tuple[str, int]]) -> None:
    """In any order, with gaps and repetitions."""
    grown = of(start)
    for source, number in more:
        before = grown
        grown = grown.with_gtid(f"{source}:{number}")
        assert grown.has(f"{source}:{number}")
        assert grown.contains(before)
        assert before == GtidSet.parse(str(before))

    assert grown == of(start | frozenset(more))
    assert hash(grown) == hash(of(start | frozenset(more)))


@given(members, st.lists(st.tuples(st.sampled_from(SOURCES), st.integers(1, 40))))
def test_adding_many_gives_the_same_set(start: frozenset[tuple[str, int]], more: list[tuple[str, int]]) -> None:
    """As one by one."""
    before = of(start)
    grown = before.with_gtids(f"{source}:{number}" for source, number in more)

    assert grown == of(start | frozenset(more))
    assert str(grown) == str(of(start | frozenset(more)))
    assert before == of(start)


def test_adding_the_next_numbers_shares_all_other_intervals() -> None:
    """A replica that applies in parallel leaves thousands of gaps."""
    gaps = GtidSet({A: [(n, n) for n in range(1, 4000, 2)]})

    grown = gaps.with_gtids([f"{A}:4000", f"{A}:4001", f"{B}:7", f"{A}:4002", f"{B}:8", f"{A}:2", f"{A}:4003"])

    assert grown == gaps.union(GtidSet({A: [(2, 2), (4000, 4003)], B: [(7, 8)]}))
    assert grown._intervals[A].blocks[1] is gaps._intervals[A].blocks[1]


@given(members, st.sampled_from(SOURCES), st.integers(1, 40))
def test_has_is_membership(pairs: frozenset[tuple[str, int]], source: str, number: int) -> None:
    """For one GTID."""
    assert of(pairs).has(f"{source}:{number}") == ((source, number) in pairs)


def test_server_text_with_line_breaks_and_upper_case() -> None:
    """As the server prints and reads it; overlapping and unsorted ranges, and those of a tag, are merged."""
    text = f"{A.upper()}:7-9:1-3:4-5,\n{B}:2,{B}: Tag :7:b:1:tag:8,{A}:c"

    assert str(GtidSet.parse(text)) == f"{A}:1-5:7-9,{B}:2:b:1:tag:7-8"
    assert str(GtidSet.parse("")) == ""


@pytest.mark.parametrize("ranges", ["1-", "-3", "1-2-3", "1-a", "a-1", "2a", "\u00e9:1", f"{33 * 'a'}:1"])
def test_unknown_forms_are_rejected(ranges: str) -> None:
    """A partly parsed set would lose transactions."""
    with pytest.raises(BinlogError) as caught:
        GtidSet.parse(f"{A}:{ranges}")
    assert caught.value.hint == "read from MySQL 5.7 or newer"


@pytest.mark.parametrize(
    ("one", "other", "left"),
    [
        (f"{A}:1-10", f"{A}:1-10", ""),
        (f"{A}:1-10", f"{A}:3-4:6", f"{A}:1-2:5:7-10"),
        (f"{A}:1-10", f"{A}:5-20", f"{A}:1-4"),
        (f"{A}:5-10", f"{A}:1-6", f"{A}:7-10"),
        (f"{A}:1-3:7-9", f"{A}:2-8", f"{A}:1:9"),
        (f"{A}:1-3,{B}:4", f"{B}:4", f"{A}:1-3"),
        (f"{A}:1-3", "", f"{A}:1-3"),
    ],
)
def test_difference(one: str, other: str, left: str) -> None:
    assert str(GtidSet.parse(one).minus(GtidSet.parse(other))) == left


def test_common_server() -> None:
    assert GtidSet.parse(f"{A}:1,{B}:2").shares_server(GtidSet.parse(f"{B}:9"))
    assert GtidSet.parse(f"{B}:app:1").shares_server(GtidSet.parse(f"{B}:9"))
    assert not GtidSet.parse(f"{A}:app:1").shares_server(GtidSet.parse(f"{B}:app:1"))


def test_adding_a_gtid_to_a_set_with_many_gaps_copies_one_block() -> None:
    """In order at the end, in a gap, joining two intervals, and out of order: the work does not grow with the gaps."""
    known = Intervals.of((n, n) for n in range(10, 100_000, 5))
    assert len(known.blocks) > 100
    for number in (100_000, 50_001, 12, 1, 99_999):
        grown = known.with_number(number)
        assert set(grown) == set(Intervals.of([*known, (number, number)]))
        shared = {id(block) for block in known.blocks} & {id(block) for block in grown.blocks}
        assert len(shared) >= len(known.blocks) - 2
    assert known.with_number(10) is known


@given(st.lists(st.integers(1, 4000), max_size=1500))
@settings(max_examples=50)
def test_blocks_hold_any_numbers(numbers: list[int]) -> None:
    """Split and joined blocks give the intervals of the plain set."""
    grown = Intervals.of([])
    for number in numbers:
        grown = grown.with_number(number)
    assert {n for first, last in grown for n in range(first, last + 1)} == set(numbers)
    assert list(grown) == list(Intervals.of((n, n) for n in numbers))
    assert all(grown.covers(n, n) is (n in set(numbers)) for n in range(1, 100))
