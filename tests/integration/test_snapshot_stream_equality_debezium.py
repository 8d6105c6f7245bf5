"""Rows of every type from the binlog equal those that real Debezium streamed for the same statements."""

from __future__ import annotations

import json
from collections.abc import Mapping
from functools import cache
from typing import Final

import pytest

from tailrace.producer.model.value_options import ValueOptions
from tests.debezium_parity import golden
from tests.debezium_parity.payload import split_schema
from tests.debezium_parity.type_tables import TYPE_TABLES, TypeTable
from tests.debezium_parity.value_exceptions import DECODED_DIFFERENTLY_BY_JAVA
from tests.debezium_parity.variants import VARIANTS, Variant
from tests.support.codec import BothSources
from tests.support.database import Database
from tests.support.values import value_options

_FIRST_ID: Final = 101
"""The ids under which the golden script streams the rows of a family."""

_TYPES: Final = frozenset({"plain", "schemas", "connect", "isostring", "microseconds", "nanoseconds"})
"""The variants that differ in how values are written, and leave no column out."""
_BY_NAME: Final = {variant.name: variant for variant in VARIANTS if variant.name in _TYPES}

_OLD_JAVA = "the Java that ran Debezium does not print the fewest digits"
_DEFAULT = "Debezium puts the column's default for a zero date; the log's own description has no defaults"
_TEXT_TELLS_NOT = (
    "the server's text cannot be told apart, or lacks what Debezium prints; see producer/mysql/types/json.py"
)

_JAVA = "Java reads the character set in another way than the server, or does not have it"
_WIDE: Final = frozenset({"big5", "cp932", "eucjpms", "euckr", "gbk", "sjis", "ujis"})

EXCEPTIONS: Final[Mapping[tuple[str, str], tuple[str, frozenset[int]]]] = {
    **{("floats", name): (_OLD_JAVA, frozenset({14})) for name in ("f", "f24", "fu")},
    ("floats", "f53"): (_OLD_JAVA, frozenset({22})),
    **{("zero_dates", name): (_DEFAULT, frozenset({1, 2, 3})) for name in ("dd", "dtd")},
    **{
        ("charsets", name): ("Debezium loses the five bytes that cp1252 leaves undefined", frozenset({7}))
        for name in ("c_latin1", "t_latin1")
    },
    **{
        ("charsets", name): (
            "Java reads a backslash of two bytes as a wide one, the server as a plain one",
            frozenset({4}),
        )
        for name in ("c_sjis", "t_sjis")
    },
    **{
        ("charset_bytes", f"t_{name}"): (_JAVA, frozenset({1} if name in _WIDE else {1, 2} if name == "swe7" else {2}))
        for name in DECODED_DIFFERENTLY_BY_JAVA
    },
    ("enums", "e"): ("Debezium prints commas and backslashes of labels escaped", frozenset({3, 7})),
    **{
        ("json", name): (_TEXT_TELLS_NOT, frozenset({23, 26, 37, 38, 39, 40, 41, 46, 47, 52, 59, 65}))
        for name in ("j", "jn")
    },
}
"""(family, column) -> why it differs, and in which rows."""


def _settings(variant: Variant) -> ValueOptions:
    modes = variant.shared
    plain = value_options()
    return value_options(
        time_precision_mode=modes.get("time.precision.mode", plain.time_precision_mode),
        decimal_handling_mode=modes.get("decimal.handling.mode", plain.decimal_handling_mode),
        bigint_unsigned_handling_mode=modes.get("bigint.unsigned.handling.mode", "long"),
        binary_handling_mode=modes.get("binary.handling.mode", plain.binary_handling_mode),
        enable_time_adjuster=modes.get("enable.time.adjuster", "true") == "true",
        conversion_failures="warn",
    )


@cache
def _streamed(variant: str) -> Mapping[tuple[str, int], Mapping[str, str]]:
    """Return the members of each inserted row that Debezium streamed, by table and id."""
    rows: dict[tuple[str, int], Mapping[str, str]] = {}
    for record in golden.read(variant, prefix=""):
        if record.value is None:
            continue
        text = record.value.decode()
        if text.startswith('{"schema":'):
            _, text = split_schema(text)
        envelope = json.loads(text)
        if envelope.get("op") == "c" and "id" in envelope["after"]:
            table_and_id = (envelope["source"]["table"], envelope["after"]["id"])
            rows.setdefault(table_and_id, _members(text, text.index(',"after":{') + len(',"after":')))
    return rows


def _members(text: str, at: int = 0) -> Mapping[str, str]:
    """Return the members of the object that starts at ``at``, each as its own text."""
    decoder = json.JSONDecoder()
    members: dict[str, str] = {}
    while text[at] != "}":
        name, at = decoder.raw_decode(text, at + 1)
        _, end = decoder.raw_decode(text, at + 1)
        members[name] = text[at + 1 : end]
        at = end
    return members


@pytest.mark.parametrize("family", TYPE_TABLES, ids=lambda f: f.name)
def test_rows_are_what_debezium_streamed(family: TypeTable, database: Database) -> None:
    """Every column of every row in every mode; each named exception is still one."""
    both = BothSources(database)
    database.execute(family.create())
    for statement in family.inserts(first_id=_FIRST_ID):
        database.execute(statement)
    table = both.table(family.name)
    different: set[tuple[str, str, int]] = set()

    for name, variant in _BY_NAME.items():
        logged = both.logged(table, _settings(variant))
        assert logged == both.selected(table, _settings(variant))
        for _, row in logged:
            ours = _members(row.decode())
            theirs = _streamed(name)[family.name, int(ours["id"])]
            number = int(ours["id"]) - _FIRST_ID + 1
            assert list(ours) == list(theirs)
            different |= {(family.name, column, number) for column in ours if ours[column] != theirs[column]}

    expected = {(f, c, n) for (f, c), (_, rows) in EXCEPTIONS.items() if f == family.name for n in rows}
    assert different == expected
