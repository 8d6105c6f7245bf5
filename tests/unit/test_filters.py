"""Filters mean what they mean in Debezium, and what Python would read otherwise is refused."""

from __future__ import annotations

import pytest

from tailrace.producer.config.filters import (
    ColumnFilter,
    InvalidExpressionError,
    MessageKeys,
    TableFilter,
    compile_expression,
    split_list,
)
from tailrace.producer.model.table import TableId


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("", ()),
        (" shop.orders , shop.customers ", ("shop.orders", "shop.customers")),
        (r"shop\.a,shop\.b{1\,2}", (r"shop\.a", r"shop\.b{1,2}")),
        (r"a\\,b", (r"a\\", "b")),
        (",a,,", ("a",)),
    ],
)
def test_a_list_is_cut_at_commas_that_are_not_escaped(text: str, parts: tuple[str, ...]) -> None:
    """Only the escaped comma loses its backslash."""
    assert split_list(text) == parts


def test_an_escape_at_the_end_is_a_fault() -> None:
    """Debezium's tokenizer refuses it too."""
    with pytest.raises(InvalidExpressionError, match="in the middle of an escape"):
        split_list("shop.a\\")


@pytest.mark.parametrize(
    ("expression", "table", "wanted"),
    [
        ("shop.orders", TableId("shop", "orders"), True),
        ("shop.orders", TableId("SHOP", "Orders"), True),
        ("shop.orders", TableId("shop", "orders_old"), False),
        ("shop.orders", TableId("my_shop", "orders"), False),
        ("orders", TableId("shop", "orders"), False),
        (r"shop\.(orders|lines)", TableId("shop", "lines"), True),
        (r"shop\.[^_].*", TableId("shop", "_tmp"), False),
        ("shop[.].*", TableId("shop", "größe"), True),
        (r"shop\.\w+", TableId("shop", "größe"), False),
        ("shop.É", TableId("shop", "é"), False),
        ("shop.a|shop.b", TableId("shop", "b"), True),
    ],
)
def test_an_expression_must_match_the_whole_name_without_ascii_case(
    expression: str, table: TableId, wanted: bool
) -> None:
    """As Java's Matcher.matches with CASE_INSENSITIVE."""
    assert TableFilter(table_include=expression).includes(table) is wanted


def test_databases_and_tables_must_both_be_wanted() -> None:
    """A table list does not bring back a database that is left out."""
    chosen = TableFilter(database_include="shop,crm", table_exclude=r".*\.tmp_.*")

    assert chosen.includes(TableId("shop", "orders"))
    assert not chosen.includes(TableId("shop", "tmp_1"))
    assert not chosen.includes(TableId("other", "orders"))
    assert not TableFilter(database_exclude="shop", table_include="shop.orders").includes(TableId("shop", "orders"))


def test_the_servers_own_databases_are_left_out_unless_asked_for() -> None:
    """table.ignore.builtin."""
    user = TableId("mysql", "user")

    assert not TableFilter(table_include="mysql.user").includes(user)
    assert not TableFilter().includes(TableId("Information_Schema", "TABLES"))
    assert TableFilter(table_include="mysql.user", ignore_built_in=False).includes(user)


def test_columns_are_chosen_by_their_whole_name() -> None:
    """Include or exclude, by db.table.column."""
    table = TableId("shop", "customers")

    assert not ColumnFilter(exclude="shop.customers.(email|phone)").includes(table, "Email")
    assert ColumnFilter(exclude="shop.customers.(email|phone)").includes(table, "name")
    assert not ColumnFilter(include="shop.customers.id").includes(table, "name")
    assert ColumnFilter().trivial
    assert not ColumnFilter(include="a.b.c").trivial


@pytest.mark.parametrize(
    "expression",
    [
        r"\p{Lu}.*",
        r"\Qshop.a\E",
        r"a\h",
        r"a\z",
        r"a\R",
        r"\x{61}",
        "[a-z&&[^b]]",
        "[a[bc]]",
        "[]a]",
        "[^]a]",
        "(?<name>a)",
        "(?P<name>a)",
        "(?x) a b",
        "a(?i)b",
        "(a",
        "*",
        "a{99999999999}",
    ],
)
def test_what_java_and_python_read_differently_is_refused(expression: str) -> None:
    """With the expression in the text; a wrong guess would capture other tables."""
    with pytest.raises(InvalidExpressionError, match=r"not supported|not a regular expression") as caught:
        compile_expression(expression)
    assert repr(expression) in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["(?i)a", "(?:a|b)", "(?i:a)", "(?!a).*", "(?<!a)b", r"\[a\]", "[^a]", "a++", "[a\\]b]"]
)
def test_what_both_read_alike_is_taken(expression: str) -> None:
    """Look-around, possessive repetition, groups."""
    compile_expression(expression)


def test_message_keys_follow_the_order_given() -> None:
    """Entries by ';', columns by ','; the table part is an expression; other tables keep their key."""
    keys = MessageKeys.parse(r" shop.orders:Number,customer ; (.*).lines:id")

    assert keys.columns(TableId("shop", "orders"), ("customer", "number", "day")) == ("number", "customer")
    assert keys.columns(TableId("crm", "lines"), ("id", "x")) == ("id",)
    assert keys.columns(TableId("shop", "customers"), ("id",)) == ()


@pytest.mark.parametrize("text", ["shop.orders", "shop.orders:", ":id", "shop.orders:a:b", "a.b:c,,d"])
def test_message_keys_of_another_form_are_a_fault(text: str) -> None:
    """Each entry is table:column,column."""
    with pytest.raises(InvalidExpressionError, match="not of the form"):
        MessageKeys.parse(text)
