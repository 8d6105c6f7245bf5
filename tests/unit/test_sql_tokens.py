"""Tokens of statements: as the server reads them, lazily, in linear time for any text."""

from __future__ import annotations

import time
import tracemalloc

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.producer.model.ddl import Change
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.query_event import Query, captured_targets, leading_words
from tailrace.producer.mysql.text.ddl import ddl_effects
from tailrace.producer.mysql.text.sql_tokens import SqlDialect, tokens

ANSI_QUOTES, NO_BACKSLASH_ESCAPES = SqlDialect(1 << 2), SqlDialect(1 << 20)
MYSQL_8 = SqlDialect(server_version=80033)
MARIADB_10 = SqlDialect(server_version=101106, mariadb=True)

UNCLOSED = {
    "comments": "/* " * 300_000,
    "comments after a backslash": "CREATE VIEW v AS SELECT '\\' AS a, '" + "/* " * 300_000,
    "version comments": "/*!99999 " * 100_000,
    "quotes": "'\\\"" * 300_000,
    "pairs of quotes": "''" * 300_000 + "'",
    "names": "`" * 600_001,
    "double quotes": '"\\' * 300_000,
    "backslashes": "'" + "\\" * 600_001,
    "stars": "/*" + "*" * 600_000,
    "comments of MariaDB": "/*M!999999 " * 100_000,
}


@pytest.mark.parametrize("dialect", [SqlDialect(), ANSI_QUOTES, NO_BACKSLASH_ESCAPES, MYSQL_8, MARIADB_10])
@pytest.mark.parametrize("name", UNCLOSED)
def test_what_is_not_closed_costs_linear_time(name: str, dialect: SqlDialect) -> None:
    """Quadratic time would be hours for these texts."""
    began = time.process_time()
    assert sum(1 for _ in tokens(UNCLOSED[name], dialect)) <= len(UNCLOSED[name])
    ddl_effects("ALTER TABLE t RENAME TO u, " + UNCLOSED[name], "d", dialect)
    captured_targets(Query(1, "d", "UPDATE t SET a = " + UNCLOSED[name]), lambda _: False, dialect)
    assert time.process_time() - began < 20


@pytest.mark.parametrize(
    "head",
    ["CREATE DEFINER=`a`@`b` PROCEDURE p() BEGIN ", "GRANT SELECT ON a.b TO u, ", "ALTER TABLE t ADD COLUMN a INT, "],
)
def test_long_statements_are_read_as_far_as_needed(head: str) -> None:
    """Statements that rename nothing need no more than their first words."""
    text = head + "SET @a = 1, b = 2; " * 500_000
    tracemalloc.start()
    try:
        ddl_effects(text, "d")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    ("sql", "dialect", "renamed"),
    [
        ("ALTER TABLE a ADD b INT /*!99999 , RENAME TO evil */", MYSQL_8, None),
        ("ALTER TABLE a ADD b INT /*!100100 , RENAME TO evil */", MYSQL_8, None),
        ("ALTER TABLE a ADD b INT /*!80033 , RENAME TO c */", MYSQL_8, "c"),
        ("ALTER TABLE a ADD b INT /*!080033 , RENAME TO c */", MYSQL_8, "c"),
        ("ALTER TABLE a ADD b INT /*! , RENAME TO c */", MYSQL_8, "c"),
        ("ALTER TABLE a /*!99999 x /* y */ z */ RENAME TO c", MYSQL_8, "c"),
        ("ALTER TABLE a /*!99999 x /* y */ RENAME TO evil", MYSQL_8, None),
        ("ALTER TABLE a ADD b INT /*M! , RENAME TO evil */", MYSQL_8, None),
        ("ALTER TABLE a ADD b INT /*M! , RENAME TO c */", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*! , RENAME TO c */", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*!50699 , RENAME TO c */", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*!50700 , RENAME TO evil */", MARIADB_10, None),
        ("ALTER TABLE a ADD b INT /*!99999 , RENAME TO evil */", MARIADB_10, None),
        ("ALTER TABLE a ADD b INT /*M!50700 , RENAME TO c */", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*!100100 , RENAME TO c */", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*!101107 , RENAME TO evil */", MARIADB_10, None),
        ("ALTER TABLE a ADD b INT /*M!101107 , RENAME TO evil */", MARIADB_10, None),
        ("ALTER TABLE a /*M!110000 x /* y */ z */ RENAME TO c", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*M!!101107 , RENAME TO c */", MARIADB_10, "c"),
        ("ALTER TABLE a ADD b INT /*!!100100 , RENAME TO evil */", MARIADB_10, None),
        ("ALTER TABLE a ADD b INT /* !, M!, RENAME TO evil */", MARIADB_10, None),
        ("ALTER TABLE a COMMENT '\\', RENAME TO evil -- '", SqlDialect(), None),
        ("ALTER TABLE a COMMENT '\\', RENAME TO c -- '", NO_BACKSLASH_ESCAPES, "c"),
        ("ALTER TABLE a COMMENT '\\\\', RENAME TO c", SqlDialect(), "c"),
        ('ALTER TABLE a RENAME TO "c"', ANSI_QUOTES, "c"),
        ('ALTER TABLE a RENAME TO "c""\\"', ANSI_QUOTES, 'c"\\'),
        ('ALTER TABLE a COMMENT "x, RENAME TO evil"', SqlDialect(), None),
    ],
)
def test_statements_are_read_as_the_server_reads_them(sql: str, dialect: SqlDialect, renamed: str | None) -> None:
    """Version comments, sql_mode."""
    [effect] = ddl_effects(sql, "d", dialect)
    assert (effect.change, effect.table) == (
        (Change.ALTER, TableId("d", "a")) if renamed is None else (Change.RENAME, TableId("d", renamed))
    )


def test_version_comments_in_a_list_of_tables() -> None:
    assert [e.table.table for e in ddl_effects("DROP TABLE a /*!99999 , b */", "d", MYSQL_8)] == ["a"]
    assert [e.table.table for e in ddl_effects("DROP TABLE a /*!50000 , b */", "d", MYSQL_8)] == ["a", "b"]
    assert leading_words("/*!99999 DROP */ CREATE TABLE x", MYSQL_8) == ("CREATE", "TABLE")


@given(
    st.text(alphabet="ab`'\"\\/*M!9#- \n;(.,", max_size=40),
    st.sampled_from([0, 4, 1 << 20]),
    st.booleans(),
    st.booleans(),
)
def test_tokens_cover_any_text_in_order(sql: str, mode: int, versioned: bool, mariadb: bool) -> None:
    """No text makes the reader fail or repeat itself."""
    end = 0
    for token in tokens(sql, SqlDialect(mode, 80033 if versioned else 0, mariadb=mariadb)):
        assert end <= token.start < token.stop <= len(sql)
        end = token.stop
