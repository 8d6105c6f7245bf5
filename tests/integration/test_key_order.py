"""Sort keys of text: Python orders keys as the server compares them, in every collation that a key can have."""

from __future__ import annotations

import random
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from itertools import pairwise
from typing import Any, Final

import pytest

from tailrace.producer.model.split import KeyColumn
from tailrace.producer.model.table import Column
from tailrace.producer.mysql.connection import connect, query
from tailrace.producer.mysql.key_order import NOT_SORTABLE, KeyOrder, literal
from tailrace.producer.mysql.text.collation import CHARSETS, canonical
from tests.embedded.mysql import MySqlServer
from tests.support.binlog import settings_of

_SETS: Final = (
    "ab AB",
    "aä eé oöœ uü sß ss SS ae AE Ä Æ æ ø ñ ç þ đ ł",
    "a\t b\n \x00 \x01 \x1f !~ -.,'\"",
    "a\u00ad\u200b\u200d\ufeff b\u0300\u0301 c\u0308",
    "ch CH Ch cs dz DZ dzs gy ll LL lj nj ny rr sz ty zs ź ž",
    "ш щ ъ ы Ж ж ё Ё ї",
    "中 文 日 本 가 한 ア ｱ ァ ー か が",
    "กา เก แก ไทย ๆ ฯ",
    "א ב שׁ ا ب ة",
    "😀 𝒳 ﬁ Ⅷ ½ ™ ㌔ ﷺ",
)
"""Letters that expand, contract, are ignored, or sort below the blank."""
_MAX_CHARS: Final = 12
_STRINGS: Final = 160
_PAIRS_PER_QUERY: Final = 80
_TIED: Final = (
    "",
    " ",
    "  ",
    "a",
    "a ",
    "a  ",
    "a\t",
    "a\x00",
    " a",
    "ß",
    "ss",
    "s",
    "a\u00ad",
    "\u00ad",
    "\u200b",
    "aa",
)


def _texts(seed: int) -> list[str]:
    """Return texts of a few letters each, many of which differ in blanks, case or accents only."""
    source = random.Random(seed)
    found = set(_TIED)
    while len(found) < _STRINGS:
        letters = source.choice(_SETS)
        if source.random() < 0.3:
            letters += source.choice(_SETS)
        text = "".join(source.choices(letters, k=source.randrange(1, 6)))
        found.update({text, text + source.choice((" ", "  ", "\t", "\u00ad", "a", "\x00"))})
    return sorted(each[:_MAX_CHARS] for each in found)


def _in_charset(session: Any, texts: Sequence[str], charset: str) -> list[bytes]:
    """Return the bytes of texts in a character set, each once; letters that the set lacks become other ones."""
    expressions = (f"HEX(CONVERT(_utf8mb4 x'{each.encode().hex()}' USING {charset}))" for each in texts)
    (row,) = query(session, "SELECT " + ", ".join(expressions))
    return list(dict.fromkeys(bytes.fromhex(each) for each in row))


def _collations(session: Any) -> Iterator[tuple[str, str, bool]]:
    for collation, charset, *_, last in sorted(query(session, "SHOW COLLATION")):
        if canonical(charset) in CHARSETS and charset != "binary":
            yield collation, charset, last != "NO PAD"  # MySQL 5.7 does not say it


def _differences(session: Any, collation: str, charset: str, *, pads: bool, seed: int) -> list[str]:
    """Return the neighbors in Python's order that the server compares otherwise."""
    column = KeyColumn(Column("k", "varchar", nullable=False, charset=charset), collation, pads)
    order = KeyOrder([column], lambda sql: query(session, sql)[0])
    values = _in_charset(session, _texts(seed), charset)
    ranked = sorted(zip(order.sort_keys([(value,) for value in values]), values, strict=True))
    pairs = [*pairwise(ranked)]
    differences = []
    for at in range(0, len(pairs), _PAIRS_PER_QUERY):
        batch = pairs[at : at + _PAIRS_PER_QUERY]
        sql = partial(literal, column.column, collation)
        expressions = (f"STRCMP({sql(left[1])}, {sql(right[1])})" for left, right in batch)
        (found,) = query(session, "SELECT " + ", ".join(expressions))
        for (left, right), judged in zip(batch, found, strict=True):
            if int(judged) != (-1 if left[0] < right[0] else 0):
                differences.append(f"{left[1].hex(' ')} | {right[1].hex(' ')}: the server says {judged}")
    return differences


def _compare_all(server: MySqlServer, *, seed: int) -> None:
    with closing(connect(settings_of(server))) as session:
        collations = [each for each in _collations(session) if each[0] not in NOT_SORTABLE]
        found = {
            collation: _differences(session, collation, charset, pads=pads, seed=seed)
            for collation, charset, pads in collations
        }
    assert len(collations) > 200
    lines = [f"{collation}: {len(each)}, such as {each[0]}" for collation, each in found.items() if each]
    assert not lines, "\n".join(lines)


def test_sort_keys_compare_as_the_server_does(mysql_server: MySqlServer) -> None:
    """Random texts in all collations of the server: with padding, expansions, contractions and ignored letters."""
    _compare_all(mysql_server, seed=1)


def test_other_collations_have_no_sort_keys(mysql_server: MySqlServer) -> None:
    """Their weights do not compare as the server does, so that keys are not split on such columns."""
    with closing(connect(settings_of(mysql_server))) as session:
        found = {
            collation: _differences(session, collation, charset, pads=pads, seed=1)
            for collation, charset, pads in _collations(session)
            if collation in NOT_SORTABLE
        }
    assert {collation for collation, differences in found.items() if differences} == NOT_SORTABLE


@pytest.mark.long
@pytest.mark.parametrize("seed", range(2, 8))
def test_sort_keys_compare_as_the_server_for_other_texts(seed: int, mysql_server: MySqlServer) -> None:
    """More random texts."""
    _compare_all(mysql_server, seed=seed)
