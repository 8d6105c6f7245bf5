"""The settings of transforms and routes as they are read without the schemas of the tables."""

from __future__ import annotations

import pytest

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer import config
from tailrace.spark_consumer.transform.rules import Source, UnbalancedTextError, read_rules, split_list

BASE = {
    "bootstrap.servers": "broker:9092",
    "topic.prefix": "shop",
    "checkpointLocation": "/checkpoint",
    "sink": "delta",
    "sink.path": "/tables",
}


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("a, b ,c", ["a", "b", "c"]),
        ("f(a, b), [1,2][0], struct(x, y)", ["f(a, b)", "[1,2][0]", "struct(x, y)"]),
        ("'a,b', \"c,d\", `e,f``,g`", ["'a,b'", '"c,d"', "`e,f``,g`"]),
        (r"'it\'s, one', 'it''s, one', r'\', x", [r"'it\'s, one'", "'it''s, one'", r"r'\'", "x"]),
        ("a -- first, b\n, c /* d, /* e, */ f, */ g", ["a -- first, b", "c /* d, /* e, */ f, */ g"]),
        ("a, ", ["a", ""]),
    ],
)
def test_lists_are_split_at_commas_between_expressions(text: str, parts: list[str]) -> None:
    assert [part.text for part in split_list(Source("s", text))] == parts


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a, 'b", "s, line 1, column 4: the quote ' is not closed\n    a, 'b\n       ^"),
        ("a,\n\tf(b, c", "s, line 2, column 3: ( is not closed\n    \tf(b, c\n    \t ^"),
        ("a), b", "s, line 1, column 2: ) closes nothing\n    a), b\n     ^"),
        ("(a]", "s, line 1, column 3: ] closes nothing\n    (a]\n      ^"),
        ("a /* b", "s, line 1, column 3: the comment is not closed\n    a /* b\n      ^"),
    ],
)
def test_open_quotes_and_parentheses_are_shown(text: str, message: str) -> None:
    with pytest.raises(UnbalancedTextError) as caught:
        split_list(Source("s", text))

    assert str(caught.value) == message


def test_the_first_rule_that_matches_a_table_counts() -> None:
    rules, problems = read_rules(
        "one, two",
        {
            "one.source-table": r"shop\.orders, shop\.p\w{2\,}",
            "one.filter": "a > 1",
            "two.source-table": ".*",
            "two.projection": "a, b",
        },
        "shards",
        {"shards.source-table": r"shop_(\d+)\.(\w+)", "shards.sink-table": "all_$1.$2"},
    )

    assert problems == []
    found = {name: rules.transform_of("shop", name) for name in ("orders", "ORDERS", "people", "p", "orders2")}
    assert {name: rule and rule.name for name, rule in found.items()} == {
        "orders": "one",
        "ORDERS": "one",
        "people": "one",
        "p": "two",
        "orders2": "two",
    }
    assert rules.target_of("shop_07", "orders") == ("all_07", "orders")
    assert rules.target_of("shop", "orders") == ("shop", "orders")


def test_all_problems_of_a_configuration_are_reported_at_once() -> None:
    given = {
        "transforms": "orders, people, orders, b d",
        "transforms.orders.projection": "id, f(a",
        "transforms.people.source-table": "shop\\.people[",
        "transforms.people.filter": "a = 1, b = 2",
        "transforms.people.projektion": "id",
        "transforms.else.filter": "true",
        "routes": "r, s",
        "routes.r.source-table": "shop_(\\d)\\.orders",
        "routes.r.sink-table": "$2.orders",
        "routes.s.source-table": "x\\.y",
    }

    known = [f"transforms.people.{word}" for word in ("source-table", "projection", "filter", "primary-keys")]
    wrong, why = "shop\\.people[", "unterminated character set at position 12"

    with pytest.raises(ConfigError) as caught:
        config.parse({**BASE, **given})

    assert [problem.splitlines()[0] for problem in caught.value.problems] == [
        "transforms: orders is listed twice",
        "transforms: 'b d' is not a name of letters, digits, '_' and '-'",
        "transforms.else.filter belongs to no rule: add else to transforms",
        "transforms.people.projektion is not a known property; there are " + ", ".join(known),
        "transforms.orders.source-table is missing: regular expressions of db.table, separated by commas",
        "transforms.orders.projection, line 1, column 6: ( is not closed",
        f"transforms.people.source-table: {wrong!r} is not a regular expression: {why}",
        "transforms.people.filter, line 1, column 8: a filter is one expression",
        "routes.r.sink-table: $2 is not a group of routes.r.source-table, which has 1",
        "routes.s.sink-table: '' is not a name such as shop.orders or $1.orders",
    ]


def test_rules_are_part_of_the_configuration() -> None:
    given = {"transforms": "t", "transforms.t.source-table": ".*", "transforms.t.filter": "a > '1,2'"}

    found = config.parse({**BASE, **given})

    rule = found.transforms.rules.transform_of("shop", "orders")
    assert rule is not None
    assert rule.filter is not None
    assert rule.filter.text == "a > '1,2'"
    assert config.describe(found)["transforms.t.filter"] == "a > '1,2'"
    assert config.parse(BASE).transforms.rules.transforms == ()
