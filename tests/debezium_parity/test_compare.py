"""The comparison reports every difference that no exception covers."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tests.debezium_parity import document
from tests.debezium_parity.compare import Report, compare
from tests.debezium_parity.exceptions import EXCEPTIONS, QUIET
from tests.debezium_parity.records import data_records, render
from tests.debezium_parity.tokens import member, read_tree
from tests.debezium_parity.topics import KafkaRecord


def _record(
    row: dict[str, Any] | None,
    *,
    op: str = "c",
    pos: int = 100,
    offset: int = 0,
    partition: int = 0,
    key: str | None = '{"id":1}',
    headers: tuple[tuple[str, bytes | None], ...] = (),
) -> KafkaRecord:
    before, after = (row, None) if op == "d" else (None, row)
    source = {"version": "1", "name": "x", "ts_ms": 5, "snapshot": "false", "file": "b.1", "pos": pos, "row": 0}
    value = {"before": before, "after": after, "source": source, "op": op, "ts_ms": 1}
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False)
    return KafkaRecord("p.db.t", partition, offset, key.encode() if key else None, text.encode(), headers)


def _report(expected: list[KafkaRecord], actual: list[KafkaRecord]) -> Report:
    return compare(data_records(expected, prefix="p"), data_records(actual, prefix="p"), EXCEPTIONS, quiet=QUIET)


def _paths(report: Report) -> list[str]:
    return [".".join(each.path) for each in report.different["t"]]


def test_equal_records_are_equal() -> None:
    """The same record on both sides."""
    report = _report([_record({"id": 1})], [_record({"id": 1})])

    assert (report.equal["t"], _paths(report)) == (1, [])


@pytest.mark.parametrize(
    ("changed", "path"),
    [
        (_record({"id": 2}), "value.after.id"),
        (_record({"id": 1.0}), "value.after.id"),
        (_record({"id": "1"}), "value.after.id"),
        (_record({"id": 1, "more": 1}), "value.after.members"),
        (_record({"id": 1}, key='{"id":2}'), "key.id"),
        (_record({"id": 1}, key=None), "key"),
        (_record({"id": 1}, partition=1), "partition"),
        (_record({"id": 1}, headers=(("h", b"1"),)), "headers"),
        (_record({"id": 1}, pos=101), "record"),
    ],
)
def test_every_change_is_reported(changed: KafkaRecord, path: str) -> None:
    """Another text of a number, an additional member, another key, partition, header or position."""
    assert path in _paths(_report([_record({"id": 1})], [changed]))


def test_another_order_of_members_is_reported() -> None:
    """The order of fields is part of the format."""
    expected, actual = _record({"a": 1, "b": 2}), _record({"b": 2, "a": 1})

    assert _paths(_report([expected], [actual])) == ["value.after.members"]


def test_another_escape_is_reported() -> None:
    """An escaped character and the character itself have the same value but not the same bytes."""
    expected = _record({"a": "é"})
    assert expected.value is not None
    escaped = expected._replace(value=expected.value.replace("é".encode(), b"\\u00e9"))

    assert _paths(_report([expected], [escaped])) == ["value.after.a"]


def test_white_space_is_rejected() -> None:
    """A space between tokens changes the bytes."""
    with pytest.raises(ValueError, match="no JSON value"):
        read_tree('{"a": 1}')


def test_a_missing_tombstone_is_reported() -> None:
    """A tombstone belongs to the delete before it."""
    delete = _record({"id": 1}, op="d")
    tombstone = delete._replace(offset=1, value=None)

    assert _paths(_report([delete, tombstone], [delete])) == ["record"]
    assert _report([delete, tombstone], [delete, tombstone]).equal["t"] == 2


def test_another_order_of_the_records_of_a_key_is_reported() -> None:
    """All records exist, but two changes of one key are swapped."""
    first, second = _record({"id": 1}, pos=100), _record({"id": 1}, pos=200, op="u")
    swapped = [second._replace(offset=0), first._replace(offset=1)]

    assert _paths(_report([first, second._replace(offset=1)], swapped)) == ["order"]


def test_a_record_with_quiet_exceptions_is_equal() -> None:
    """Another clock and another prefix do not count."""
    record = _record({"id": 1})
    assert record.value is not None
    other = record._replace(value=record.value.replace(b'"ts_ms":1}', b'"ts_ms":2}').replace(b'"x"', b'"y"'))

    assert _report([record], [other]).equal["t"] == 1


def test_trees_keep_the_text_of_scalars() -> None:
    """The rendered text is the parsed text."""
    text = '{"a":[1.0E10,-0.0,"\\u0007é",null,true],"b":{},"c":[]}'
    tree = read_tree(text)

    assert render(tree) == text
    assert member(tree, "b", "x") is None


def test_the_compatibility_page_is_current() -> None:
    """``python -m tests.debezium_parity.document`` writes the generated parts of docs/compatibility.md."""
    page = document.PAGE.read_text(encoding="utf-8")

    assert document.rendered(page) == page


@pytest.mark.parametrize(
    ("expected", "actual", "covered"),
    [
        ('[123456789,"23:24:25"]', '[123456789.0,"23:24:25.000000"]', True),
        ('{"v":"yv4A"}', '{"v":"base64:type15:yv4A"}', True),
        ('{"v":1}', '{"v":2}', False),
        ('{"v":1}', '{"v":"1"}', False),
        ('{"v":"a"}', '{"v":"b"}', False),
        ('{"v":1,"w":2}', '{"w":2,"v":1}', False),
        ("[1,2]", "[1]", False),
        ("9223372036854775807", "9223372036854775806", False),
        ("1e3", "1000.0", True),
        ("null", "false", False),
    ],
)
def test_documents_may_differ_only_in_the_text_of_scalars(expected: str, actual: str, covered: bool) -> None:
    """The exception for JSON covers no other change."""
    sides = [record._replace(topic="p.db.json") for record in (_record({"j": text}) for text in (expected, actual))]
    report = _report(sides[:1], sides[1:])

    assert (not report.different["json"]) is covered
