"""END certificates of splits against what a topic holds of them."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.source.watermarks import SplitEnd
from tailrace.spark_consumer.verify.certificates import HeldSplit, SnapshotResult, SplitResult, compare_splits

WHOLE = {"lower": None, "upper": None}


def end(split: str, rows: int, backfill: int = 0, **changes: Any) -> SplitEnd:
    """Return a certificate; the checksum of its rows is ten times their number."""
    given = {"run": "r", "number": 0, "high": Sequence(1, 1, 50, 0, 0), **WHOLE, "checksum": rows * 10, **changes}
    return SplitEnd(topic="p.d.t", split=split, rows=rows, backfill=backfill, **given)


def only(result: SnapshotResult) -> SplitResult:
    """Return the result of the one split."""
    [found] = result.counts.elements()
    return found


@pytest.mark.parametrize(
    ("held", "expected"),
    [
        (HeldSplit(5, 2, 50), SplitResult.EQUAL),
        (HeldSplit(5, 2, None), SplitResult.EQUAL),
        (HeldSplit(5, 2, 51), SplitResult.DIFFERENT),
        (HeldSplit(4, 2, 40), SplitResult.MISSING),
        (HeldSplit(5, 1, 50), SplitResult.MISSING),
        (HeldSplit(6, 2, 60), SplitResult.EXTRA),
        (HeldSplit(5, 3, 50), SplitResult.EXTRA),
        (HeldSplit(4, 3, 40), SplitResult.DIFFERENT),
        (HeldSplit(5, 2, 50, unreadable=1), SplitResult.EXTRA),
    ],
)
def test_a_split_is_compared_by_its_numbers_and_its_checksum(held: HeldSplit, expected: SplitResult) -> None:
    result = compare_splits([end("s", 5, 2)], {"s": held}, ())

    assert only(result) is expected
    assert result.different == (expected is not SplitResult.EQUAL)
    assert result.decided
    assert result.without_checksum == (held.checksum is None)
    assert result.rows == (5 if expected is SplitResult.EQUAL else 0)


def test_a_split_that_the_topic_lacks_is_missing_unless_it_has_no_records() -> None:
    assert only(compare_splits([end("s", 1)], {}, ())) is SplitResult.MISSING
    assert only(compare_splits([end("s", 0)], {}, ())) is SplitResult.EQUAL


def test_records_of_a_split_without_a_certificate_are_not_decided_and_those_of_an_unknown_one_are_extra() -> None:
    open_split = compare_splits([end("a", 1)], {"a": HeldSplit(1, 0, 10), "b": HeldSplit(1)}, {"b"})
    unknown = compare_splits([end("a", 1)], {"a": HeldSplit(1, 0, 10), "b": HeldSplit(1)}, ())

    assert open_split.counts == {SplitResult.EQUAL: 1, SplitResult.WITHOUT_END: 1}
    assert (open_split.different, open_split.decided) == (False, False)
    assert unknown.counts == {SplitResult.EQUAL: 1, SplitResult.EXTRA: 1}
    assert unknown.different


@pytest.mark.parametrize(("gone", "expected"), [(3, SplitResult.COMPACTED), (2, SplitResult.MISSING)])
def test_of_a_compacted_topic_as_many_records_can_be_missing_as_are_gone(gone: int, expected: SplitResult) -> None:
    ends = [end("a", 5, number=0, upper="[9]"), end("b", 5, 1, number=1, lower="[9]")]

    result = compare_splits(ends, {"a": HeldSplit(4, 0, 40), "b": HeldSplit(4, 0, 40)}, (), gone=gone)

    assert result.counts == {expected: 2}
    assert result.different == (expected is SplitResult.MISSING)
    assert result.decided == (expected is SplitResult.MISSING)


def test_extra_and_different_rows_of_a_compacted_topic_are_faults() -> None:
    ends = [end("a", 5), end("b", 5)]

    result = compare_splits(ends, {"a": HeldSplit(6, 0, 60), "b": HeldSplit(5, 0, 49)}, (), gone=100)

    assert result.counts == {SplitResult.EXTRA: 1, SplitResult.DIFFERENT: 1}


def test_splits_of_a_former_table_prove_nothing_and_are_no_fault() -> None:
    """Whatever the topic holds of them: readers begin where the table was created."""
    created = Sequence(1, 2, 0, 0, 0)
    now = end("now", 1, high=Sequence(1, 2, 9, 0, 0), run="new")
    former = [end("gone", 7), end("left", 3)]

    result = compare_splits(
        [*former, now], {"left": HeldSplit(3, 0, 30), "now": HeldSplit(1, 0, 10)}, (), created=created
    )

    assert result.counts == {SplitResult.EQUAL: 1}
    assert (result.former, result.decided) == (2, True)
    expired = compare_splits(former, {"left": HeldSplit(1, 0, 10)}, (), created=created)
    assert (expired.different, expired.decided, expired.rows) == (False, False, 0)


def test_a_table_that_began_while_it_was_captured_needs_an_initial_run_since_then() -> None:
    created, high = Sequence(1, 2, 0, 0, 0), Sequence(1, 2, 9, 0, 0)
    whole_before = end("s", 1)
    repair = end("k", 1, high=high, run="k", incremental=True)
    unfinished_before = end("u", 1, run="u", upper="[7]")
    first = end("n", 1, high=high, run="n", upper="[9]", closed=True)
    above = end("m", 0, high=high, run="n", number=-1, lower="[9]", above=True)
    one = HeldSplit(1, 0, 10)

    assert not compare_splits([whole_before], {"s": one}, (), created=created).decided
    # The rows of keys are one split without bounds, as those of a filter are without a key to split on.
    assert not compare_splits([whole_before, repair], {"s": one, "k": one}, (), created=created).decided
    assert not compare_splits([first], {"n": one}, (), created=created).decided
    assert compare_splits([unfinished_before, first, above], {"n": one}, (), created=created).decided


def test_a_split_that_is_lost_with_its_certificate_leaves_keys_without_one() -> None:
    splits = [
        end(str(n), 1, number=n, lower=f"[{n}]" if n else None, upper=f"[{n + 1}]" if n < 2 else None) for n in range(3)
    ]
    held = {each.split: HeldSplit(1, 0, 10) for each in splits}

    assert compare_splits(splits, held, ()).decided
    del splits[1], held["1"]
    result = compare_splits(splits, held, ())
    assert result.counts == {SplitResult.EQUAL: 2}
    assert not result.decided


def test_splits_of_an_incremental_snapshot_need_not_cover_all_keys() -> None:
    part = end("i", 2, incremental=True, lower="[5]", upper="[9]")

    assert compare_splits([part], {"i": HeldSplit(2, 0, 20)}, ()).decided
    assert compare_splits([end("s", 1), part], {"i": HeldSplit(2, 0, 20), "s": HeldSplit(1, 0, 10)}, ()).decided
