"""The join of two changelogs for one join key, against the join of the two tables."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

from hypothesis import given
from hypothesis import strategies as st

from tailrace.spark_consumer.streams.state_rows import JoinChange, JoinedRows, SideEntry, SideRow


class Stored:
    """The state store of one side."""

    def __init__(self) -> None:
        self.rows: dict[str, SideRow] = {}

    def get(self, key: str) -> SideRow | None:
        return self.rows.get(key)

    def items(self) -> Iterable[tuple[str, SideRow]]:
        return self.rows.items()

    def put(self, key: str, row: SideRow) -> None:
        self.rows[key] = row

    def remove(self, key: str) -> None:
        self.rows.pop(key, None)


def entry(order: int, kind: str, side: str, key: str, row: str, *, ignore_late: bool = False) -> SideEntry:
    return SideEntry([order], kind in {"+I", "+U"}, side == "left", key, ignore_late, kind, row)


def apply(target: Counter[tuple[str, str]], changes: Iterable[JoinChange]) -> None:
    """Apply a changelog to a table; a retract of a row that is not there is an error."""
    for change in changes:
        pair = change.left, change.right
        target[pair] += 1 if change.kind in {"+I", "+U"} else -1
        assert target[pair] >= 0, change


@st.composite
def batches(draw: st.DrawFn) -> list[list[SideEntry]]:
    """Return micro-batches with the changes of two tables: inserts, updates, deletes."""
    tables: dict[tuple[str, str], str] = {}
    made: list[list[SideEntry]] = [[]]
    changes = st.tuples(st.sampled_from(["left", "right"]), st.sampled_from("xyz"), st.booleans(), st.booleans())
    for at, (side, key, delete, cut) in enumerate(draw(st.lists(changes, max_size=20))):
        old, new = tables.get((side, key)), None if delete else f"{key}{at % 3}"
        if old is not None:
            made[-1].append(entry(at, "-D" if new is None else "-U", side, key, old))
            del tables[side, key]
        if new is not None:
            made[-1].append(entry(at, "+I" if old is None else "+U", side, key, new))
            tables[side, key] = new
        if cut:
            made.append([])
    return made


@given(batches(), st.randoms())
def test_equal_to_the_join_of_the_tables(made: list[list[SideEntry]], random: object) -> None:
    left, right = Stored(), Stored()
    target: Counter[tuple[str, str]] = Counter()
    tables: dict[bool, dict[str, str]] = {True: {}, False: {}}
    for batch in made:
        for each in batch:
            tables[each.is_left].pop(each.key, None)
            if each.is_add:
                tables[each.is_left][each.key] = each.row
        shuffled = list(batch)
        random.shuffle(shuffled)  # type: ignore[attr-defined]
        apply(target, JoinedRows(left, right).apply(shuffled))
        assert +target == Counter((one, other) for one in tables[True].values() for other in tables[False].values())
        assert (len(left.rows), len(right.rows)) == (len(tables[True]), len(tables[False]))


def test_late_versions_are_ignored_on_request() -> None:
    left, right = Stored(), Stored()
    target: Counter[tuple[str, str]] = Counter()
    apply(target, JoinedRows(left, right).apply([entry(5, "+U", "left", "x", "new", ignore_late=True)]))
    apply(target, JoinedRows(left, right).apply([entry(9, "+I", "right", "y", "other")]))
    apply(target, JoinedRows(left, right).apply([entry(2, "+I", "left", "x", "read", ignore_late=True)]))

    assert +target == Counter([("new", "other")])


def test_an_add_without_retract_replaces_the_row() -> None:
    left, right = Stored(), Stored()
    made = [entry(1, "+I", "left", "x", "old"), entry(2, "+I", "right", "y", "r"), entry(3, "+I", "left", "x", "new")]

    changes = [(change.kind, change.left) for change in JoinedRows(left, right).apply(made)]

    assert changes == [("+I", "old"), ("-U", "old"), ("+I", "new")]


def test_a_retract_without_a_matching_row_is_counted() -> None:
    joined = JoinedRows(Stored(), Stored())

    assert list(joined.apply([entry(1, "-D", "left", "x", "old")])) == []
    assert joined.unmatched == 1
