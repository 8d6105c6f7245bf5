"""Filters select what they select in Debezium. Expressions that Python reads differently are rejected."""

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
def test_list_is_split_at_commas_that_are_not_escaped(text: str, parts: tuple[str, ...]) -> None:
    """Only the escaped comma loses its backslash."""
    assert split_list(text) == parts


def test_incomplete_escape_is_rejected() -> None:
    """Debezium rejects it too."""
    with pytest.raises(InvalidExpressionError, match="in the middle of an escape"):
        split_list("shop.a\\")


@pytest.mark.parametrize(
    ("expression", "table", "included"),
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
def test_expression_matches_the_whole_name_and_ignores_ascii_case(
    expression: str, table: TableId, included: bool
) -> None:
    """As Java's Matcher.matches with CASE_INSENSITIVE."""
    assert TableFilter(table_include=expression).includes(table) is included


def test_database_and_table_must_both_be_included() -> None:
    """A table list cannot include a table of an excluded database."""
    table_filter = TableFilter(database_include="shop,crm", table_exclude=r".*\.tmp_.*")

    assert table_filter.includes(TableId("shop", "orders"))
    assert not table_filter.includes(TableId("shop", "tmp_1"))
    assert not table_filter.includes(TableId("other", "orders"))
    assert not TableFilter(database_exclude="shop", table_include="shop.orders").includes(TableId("shop", "orders"))


def test_system_databases_are_excluded_by_default() -> None:
    """table.ignore.builtin."""
    user = TableId("mysql", "user")

    assert not TableFilter(table_include="mysql.user").includes(user)
    assert not TableFilter().includes(TableId("Information_Schema", "TABLES"))
    assert TableFilter(table_include="mysql.user", ignore_built_in=False).includes(user)


def test_columns_are_selected_by_their_full_name() -> None:
    """Included or excluded, by db.table.column."""
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
        "a(?#)b",
        "(?#[)(.*)*!(?#])",
        "(a)?(?(1)b|c)",
        "(?-x:a)",
        "(?~a)",
        "(a",
        "*",
        "a{99999999999}",
    ],
)
def test_expressions_that_java_and_python_read_differently_are_rejected(expression: str) -> None:
    """The message shows the expression. Another meaning would select other tables."""
    with pytest.raises(InvalidExpressionError, match=r"not supported|not a regular expression") as caught:
        compile_expression(expression)
    assert repr(expression) in str(caught.value)


@pytest.mark.parametrize(
    "expression", ["(?i)a", "(?:a|b)", "(?i:a)", "(?!a).*", "(?<!a)b", r"\[a\]", "[^a]", "a++", "[a\\]b]"]
)
def test_expressions_that_both_read_alike_are_accepted(expression: str) -> None:
    """Look-around, possessive repetition, groups."""
    compile_expression(expression)


def test_message_keys_keep_their_order() -> None:
    """The table is an expression. Other tables keep their primary key."""
    keys = MessageKeys.parse(r" shop.orders:Number,customer ; (.*).lines:id")

    assert keys.columns(TableId("shop", "orders"), ("customer", "number", "day")) == ("number", "customer")
    assert keys.columns(TableId("crm", "lines"), ("id", "x")) == ("id",)
    assert keys.columns(TableId("shop", "customers"), ("id",)) == ()


@pytest.mark.parametrize("text", ["shop.orders", "shop.orders:", ":id", "shop.orders:a:b", "a.b:c,,d"])
def test_message_keys_with_wrong_syntax_are_rejected(text: str) -> None:
    """Each entry is table:column,column."""
    with pytest.raises(InvalidExpressionError, match="not of the form"):
        MessageKeys.parse(text)
