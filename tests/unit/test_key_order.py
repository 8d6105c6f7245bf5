"""Sort keys of padded text: bytes that compare as weights with endless blanks behind them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.model.codec import KeyTuple
from tailrace.producer.model.split import KeyColumn
from tailrace.producer.model.table import CatalogTable, Collation, Column, Table, TableId
from tailrace.producer.mysql.key_order import NOT_SORTABLE, KeyOrder, padded_order, splitting_columns
from tailrace.producer.serialization.types_reference import page

_BLANK = b"\x02\x09"
_UNITS = st.lists(st.sampled_from([_BLANK, b"\x02\x05", b"\x00\x00", b"\x0e\x33", b"\xff\xff"]), max_size=6)


@given(_UNITS, _UNITS)
def test_padded_keys_compare_as_weights_with_blanks(left: list[bytes], right: list[bytes]) -> None:
    """Below, equal, and above, whatever the lengths."""
    size = max(len(left), len(right))
    padded = [b"".join(units + [_BLANK] * (size - len(units))) for units in (left, right)]
    keys = [padded_order(b"".join(units), _BLANK) for units in (left, right)]

    assert (keys[0] < keys[1], keys[0] == keys[1]) == (padded[0] < padded[1], padded[0] == padded[1])


def test_the_reference_names_the_collations_that_are_not_split_on() -> None:
    """docs/types.md is generated from this page."""
    assert all(f"`{collation}`" in page() for collation in NOT_SORTABLE)


def test_a_column_whose_weights_are_not_its_order_ends_the_splitting_columns() -> None:
    """The columns before it remain."""
    number, text = Column("n", "int", nullable=False), Column("s", "varchar", nullable=False, charset="big5")
    for collation in ("big5_bin", *NOT_SORTABLE):
        table = Table(TableId("d", "t"), (number, text), ("n", "s"))
        found = CatalogTable(
            table=table,
            primary_key=table.key,
            unique_key=(),
            prefix_columns=frozenset(),
            collations={"s": Collation(collation, pads=True)},
        )
        expected = [KeyColumn(number, is_integer=True)]
        if collation not in NOT_SORTABLE:
            expected.append(KeyColumn(text, collation, pads=True))
        assert list(splitting_columns(found, table.key)) == expected


@pytest.mark.parametrize(
    ("key", "names"),
    [("ab", "ab"), ("a", "a"), ("ba", ""), ("b", ""), ("c", "c"), ("cb", "cb"), ("ca", ""), ("abc", ""), ("", "")],
)
def test_a_chosen_key_is_cut_if_an_index_begins_with_it(key: str, names: str) -> None:
    columns = tuple(Column(name, "int", nullable=False) for name in "abc")
    table = Table(TableId("d", "t"), columns, ("a", "b"))
    found = CatalogTable(table, ("a", "b"), ("b", "c"), frozenset(), {}, unique_keys=(("c", "b", "a"),))
    assert "".join(each.column.name for each in splitting_columns(found, tuple(key))) == names


@given(st.lists(st.tuples(*[st.none() | st.tuples(st.integers(0, 3), st.integers(0, 3))] * 2), max_size=4))
def test_rows_are_sorted_as_their_keys(rows: list[tuple[KeyTuple | None, KeyTuple | None]]) -> None:
    """By numbers alone, by a prefix of the key, and by a column whose values are converted."""
    numbers = [KeyColumn(Column(name, "int", nullable=False), is_integer=True) for name in ("a", "b")]
    day = KeyColumn(Column("a", "date", nullable=False))
    for columns in (numbers, numbers[:1], [day]):
        order = KeyOrder(columns, lambda sql: (sql,))
        keys = [key for pair in rows for key in pair if key is not None]
        expected = dict(zip(keys, order.sort_keys(keys), strict=True))

        sorted_rows = order.sort_rows(rows)

        # Keys of a whole splitting key are left as they are.
        assert list(sorted_rows) == [tuple(None if key is None else expected[key] for key in pair) for pair in rows]
