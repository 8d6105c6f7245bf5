"""Statements logged as text, and names and enum values in their character sets."""

from __future__ import annotations

import pytest

from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.query_event import Query, captured_targets, leading_words, only_target
from tailrace.producer.mysql.text.collation import CHARSETS, canonical, charset_of_collation, decode
from tailrace.producer.mysql.text.sql_tokens import without_literals
from tailrace.runtime.errors import SchemaError


@pytest.mark.parametrize(
    ("sql", "words"),
    [
        ("BEGIN", ("BEGIN", "")),
        ("  /* a */ -- b\n # c\n drop table x", ("DROP", "TABLE")),
        ("/*!40101 SET NAMES utf8 */", ("SET", "NAMES")),
        ("/*M!100401 DROP*/ alter table x", ("ALTER", "TABLE")),
        ("(SELECT 1)", ("SELECT", "")),
        ("XA COMMIT 'x'", ("XA", "COMMIT")),
        ("--no comment", ("", "")),
        ("", ("", "")),
    ],
)
def test_leading_words_after_comments(sql: str, words: tuple[str, str]) -> None:
    """They decide the type of a statement."""
    assert leading_words(sql) == words


@pytest.mark.parametrize(
    ("sql", "expected"),
    [
        ("INSERT INTO `a``b` VALUES (1)", True),
        ("INSERT LOW_PRIORITY IGNORE INTO db.`a``b` SET x = 1", True),
        ("INSERT INTO db . `a``b` VALUES (1)", True),
        ("INSERT INTO other.`a``b` VALUES (1)", False),
        ("INSERT INTO x VALUES ('`a``b`')", False),
        ("UPDATE x JOIN `a``b` SET x.y = 1", True),
        ("UPDATE x SET y = '`a``b`'", False),
        ('DELETE FROM x WHERE y = "it\'s `a``b`"', False),
        ("DELETE `a``b` FROM `a``b`", True),
    ],
)
def test_targets_are_found_among_names(sql: str, expected: bool) -> None:
    """Quoting, qualification, literals."""
    captured = TableId("db", "a`b")
    assert captured_targets(Query(1, "db", sql), lambda table: table == captured) == ((captured,) if expected else ())


def test_messages_show_a_statement_without_its_values() -> None:
    """Literals and comments may be rows and passwords; a long statement is cut."""
    sql = "UPDATE `t` /* mine */ SET a = 'secret', b=0x41, c = 1.5 WHERE d IN (\"x\", 7)" + " OR e = 1" * 1_000
    shown = without_literals(sql)

    assert shown.startswith("UPDATE `t` SET a = ?, b=?, c = ?.? WHERE d IN (?, ?) OR e = ?")
    assert len(shown) <= 200


def test_every_collation_id_has_a_character_set() -> None:
    """The ids of 8.0 that tables can have; an unknown id is rejected with its number."""
    for collation, charset in ((33, "utf8mb3"), (45, "utf8mb4"), (255, "utf8mb4"), (63, "binary"), (8, "latin1")):
        assert charset_of_collation(collation) == charset
    assert charset_of_collation(323) == "utf8mb4"
    assert canonical("utf8") == canonical("utf8mb3") == "utf8mb3"
    assert {charset_of_collation(n) for n in (1, 3, 6, 35, 54, 56, 60, 248)} <= CHARSETS
    with pytest.raises(SchemaError) as caught:
        charset_of_collation(2000)
    assert caught.value.context["collation_id"] == 2000


def test_text_is_decoded_strictly() -> None:
    """latin1 is cp1252 with its five undefined bytes kept; invalid bytes are rejected."""
    assert decode(b"\x80\x81\x8d\xe9", "latin1", what="x") == "€\x81\x8dé"
    assert decode("漢".encode("utf-16-be"), "utf16", what="x") == "漢"
    assert decode(b"[plain]", "swe7", what="x") == "ÄplainÅ"
    assert decode(b"\xd7\xa8\xd0", "dec8", what="x") == "Œ¤?"
    assert decode(b"\xb2\xb3", "armscii8", what="x") == "Աա"
    for text, charset in ((b"\xff", "utf8mb4"), (b"\xa4", "big5"), (b"\xd8\x00", "ucs2")):
        with pytest.raises(SchemaError):
            decode(text, charset, what="x")


@pytest.mark.parametrize(
    ("sql", "only"),
    [
        ("INSERT INTO t (a, b) VALUES (1, NOW()), (2, COALESCE(NULL, 3))", "db.t"),
        ("insert ignore into `other`.`t` select max(1) where 1 in (1, 2)", "other.t"),
        ("REPLACE t SET a = 1", "db.t"),
        ("UPDATE t SET a = 1 WHERE b = 2;", "db.t"),
        ("UPDATE LOW_PRIORITY other.t SET a = (SELECT 1)", "other.t"),
        ("DELETE FROM t", "db.t"),
        ("DELETE FROM t WHERE a = 1 ORDER BY b LIMIT 1", "db.t"),
        ("UPDATE t SET a = f(1)", None),
        ("INSERT INTO t SELECT * FROM v", None),
        ("INSERT INTO t (a) TABLE v", None),
        ("UPDATE t SET a = (SELECT b FROM v)", None),
        ("UPDATE t SET a = `now`(1)", None),
        ("UPDATE t SET a = shop.now(1)", None),
        ("UPDATE t SET a = COUNT (1)", None),
        ("UPDATE t, u SET a = 1", None),
        ("UPDATE t AS u SET a = 1", None),
        ("UPDATE t JOIN u SET a = 1", None),
        ("DELETE t FROM t JOIN u", None),
        ("DELETE FROM t USING t JOIN u", None),
        ("INSERT INTO t PARTITION (p) VALUES (1)", None),
        ("WITH c AS (SELECT 1) DELETE FROM t", None),
        ("LOAD DATA INFILE 'x' INTO TABLE t", None),
        ("SELECT f(1)", None),
        ("CALL p()", None),
        ("INSERT", None),
        ("UPDATE t", None),
        ("", None),
    ],
)
def test_only_target_of_a_statement(sql: str, only: str | None) -> None:
    """What may be a call of a stored function, and any other form, may change further tables."""
    found = only_target(Query(1, "db", sql))
    assert (None if found is None else str(found)) == only
    assert only_target(Query(1, "db", sql, has_replaced=True)) is None
