"""The list of rows per target key, against a slow reference and in every arrival order."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark_consumer.streams.state_rows import KeptRow, KeptRows, RowEntry
from tests.support.changelogs import ARRIVALS, cuts, last_row

Entries = Sequence[RowEntry]


def run(batches: Sequence[Entries], *, keyed: bool = True, ignore_late: bool = False) -> list[str | None]:
    """Return the last row after each micro-batch. The list is stored and read back between them."""
    stored: list[tuple[object, ...]] = []
    last = []
    for batch in batches:
        kept = KeptRows((KeptRow(*row) for row in stored), keyed=keyed, ignore_late=ignore_late)  # type: ignore[arg-type]
        kept.apply(batch)
        stored = [tuple(row) for row in kept.rows]
        last.append(kept.last)
    return last


def entry(order: int, kind: str, upsert_key: str, row: str) -> RowEntry:
    return RowEntry([order], kind in {"+I", "+U"}, upsert_key, row)


@pytest.mark.parametrize("arrival", ARRIVALS)
def test_a_changed_join_key_ends_with_the_new_row_in_every_arrival_order(arrival: str) -> None:
    entries = [
        entry(at, kind, f"{row_id},{level}", f"{row_id},{level},{text}")
        for at, (kind, row_id, level, text) in enumerate(ARRIVALS[arrival])
    ]
    for batches in cuts(entries):
        assert run(batches)[-1] == "1,20,b1", batches
        without_key = [[each._replace(upsert_key="") for each in batch] for batch in batches]
        assert run(without_key, keyed=False)[-1] == "1,20,b1", batches


def test_the_order_column_decides_within_a_micro_batch() -> None:
    batch = [entry(3, "+U", "a", "new"), entry(1, "+I", "a", "old"), entry(3, "-U", "a", "old")]
    for one, two in combinations(range(3), 2):
        batch[one], batch[two] = batch[two], batch[one]
        assert run([batch]) == ["new"]


def test_a_retract_without_a_matching_row_is_counted_and_dropped() -> None:
    kept = KeptRows([KeptRow([1], "a", "x")], keyed=True)
    kept.apply([entry(2, "-D", "b", "y"), entry(3, "-U", "c", "z")])

    assert (kept.last, kept.unmatched) == ("x", 2)


def test_without_an_upsert_key_equal_rows_are_counted() -> None:
    added = [entry(1, "+I", "", "x"), entry(2, "+I", "", "x")]

    assert run([added, [entry(3, "-D", "", "x")], [entry(4, "-D", "", "x")]], keyed=False) == ["x", "x", None]


def test_an_updated_row_becomes_the_last_one() -> None:
    batches = [[entry(1, "+I", "a", "a1"), entry(2, "+I", "b", "b1")], [entry(3, "+U", "a", "a2")]]

    assert run([*batches, [entry(4, "-D", "a", "a2")]]) == ["b1", "a2", "b1"]


def test_late_versions_are_ignored_on_request() -> None:
    """A row that a snapshot reads can arrive after a later change of it."""
    batches = [[entry(5, "+U", "a", "new")], [entry(2, "+I", "a", "read")], [entry(5, "-U", "a", "old")]]

    assert run(batches, ignore_late=True) == ["new", "new", "new"]
    assert run(batches) == ["new", "read", None]


@st.composite
def changelogs(draw: st.DrawFn) -> list[list[RowEntry]]:
    """Return micro-batches of entries of one target key: adds and retracts of a few rows, also unmatched ones."""
    picks = draw(st.lists(st.tuples(st.sampled_from(["+I", "+U", "-U", "-D"]), st.sampled_from("abc"))))
    entries = [entry(at, kind, key, f"{key}{at % 2}") for at, (kind, key) in enumerate(picks)]
    return [*draw(st.sampled_from(list(cuts(entries[:8])))), entries[8:]]


@given(changelogs(), st.booleans())
def test_equal_to_the_slow_reference(batches: list[list[RowEntry]], keyed: bool) -> None:
    found = run(batches, keyed=keyed)
    done: list[tuple[bool, str, str]] = []
    for batch, last in zip(batches, found, strict=True):
        done += [(each.is_add, each.upsert_key if keyed else each.row, each.row) for each in batch]
        assert last == last_row(done)
