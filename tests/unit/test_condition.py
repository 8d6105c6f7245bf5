"""Conditions of incremental snapshots: which texts are predicates that stay within their parentheses."""

from __future__ import annotations

import pytest

from tailrace.producer.mysql.condition import condition_problem


@pytest.mark.parametrize(
    "sql",
    [
        "id > 100",
        "id BETWEEN 1 AND 5 OR (v LIKE 'a%' AND NOT (w IN (1, 2, 3)))",
        "name = 'it''s (a) ;-- no comment /* */ #' AND `order` = \"x)\"",
        r"name = '\') UNION SELECT'",
        "created >= NOW() - INTERVAL 1 DAY AND LOWER(t.name) = 'ü'",
        "CAST(v AS DECIMAL(10,2)) < .5 AND doc->>'$.a' = 1 AND flags & ~4 <> 0",
        "CASE WHEN a IS NULL THEN 1 ELSE COALESCE(b, 0) END = 1",
        "`odd``name` = x'00ff'",
        "",
    ],
)
def test_predicates(sql: str) -> None:
    assert condition_problem(sql) == ""


@pytest.mark.parametrize(
    ("sql", "problem"),
    [
        ("1=0) UNION ALL SELECT user FROM mysql.user -- ", "closes a parenthesis"),
        ("1=1) FOR SHARE -- ", "closes a parenthesis"),
        ("(1=1", "leaves a parenthesis open"),
        ("1=1 -- x", "comment"),
        ("1=1 # x", "comment"),
        ("1=1 /*! OR 1 */", "comment"),
        ("1=1; DROP TABLE t", "';'"),
        ("id IN (SELECT id FROM other)", "SELECT begins"),
        ("id IN (TABLE other)", "TABLE begins"),
        ("EXISTS (VALUES ROW(1))", "EXISTS begins"),
        ("SLEEP(10)", "SLEEP is not allowed"),
        ("sleep (10)", "SLEEP is not allowed"),
        ("BENCHMARK(1000000000, MD5(1))", "BENCHMARK is not allowed"),
        ("GET_LOCK('a', 100)", "GET_LOCK is not allowed"),
        ("LOAD_FILE('/etc/passwd') = ''", "LOAD_FILE is not allowed"),
        ("db.lower(id)", "LOWER is not allowed"),
        ("`db`.`f`(id)", "is not allowed"),
        ("@a := id", "'@'"),
        ("name = 'x", "not closed"),
        ("`a = 1", "not closed"),
        ("1=1 FOR UPDATE", "FOR begins"),
        ("1 LIMIT 5", "LIMIT begins"),
        ("a\0b", "not allowed"),
        ("1 OR " * 5000, "characters"),
    ],
)
def test_what_is_refused(sql: str, problem: str) -> None:
    assert problem in condition_problem(sql)


def test_long_texts_are_read_in_linear_time() -> None:
    """Quotes and comments that never end."""
    for text in ("'\\" * 4000, "/* " * 3000, "\"'" * 4000, "(" * 9000, "a " * 4999):
        condition_problem(text)
