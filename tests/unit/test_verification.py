"""The records of a comparison, and how the rows of buckets that differ are divided and shown."""

from __future__ import annotations

from collections.abc import Collection, Iterator

import pytest

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.verification import (
    BucketSum,
    ChosenKeys,
    ComparedColumn,
    ComparedRow,
    ComparedTable,
    Keys,
    Record,
    RepairRequest,
    Request,
    TextForm,
    Window,
    from_line,
    to_line,
)
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.verify.command import sample_size, shown_difference
from tailrace.spark_consumer.verify.compare import Difference, with_reports

TABLE = ComparedTable(
    "p.shop.t",
    "shop",
    "t",
    (
        ComparedColumn("id", TextForm.INTEGER),
        ComparedColumn("name", TextForm.BYTES),
        ComparedColumn("day", TextForm.DATE),
        ComparedColumn("score", TextForm.DOUBLE),
        ComparedColumn("note", TextForm.DIGEST),
        ComparedColumn("lost", TextForm.INTEGER),
    ),
    ("id", "name", "day"),
    {"doc": "JSON"},
)


@pytest.mark.parametrize(
    "record",
    [
        TABLE,
        BucketSum(4095, 3, "0" * 31 + "f"),
        ComparedRow("1,C3BC", "a" * 32),
        Window({0: 0, 1: 17}, {0: 2**40, 1: 17}),
        Request(("a", "b c")),
        Request(("a",), Keys.of_texts(["1,C3BC", "N"])),
        Request(("a",), Keys.of_texts(["1,C3BC", "N"]), texts=True),
        Request(("a",), sample=41),
        RepairRequest(ChosenKeys(("a", "b c"), ("1,C3BC", "N,2"))),
    ],
)
def test_a_record_is_read_as_it_was_written(record: Record) -> None:
    line = to_line(record)

    assert line.count(b"\n") == 1
    assert from_line(line) == record


@pytest.mark.parametrize("line", [b"", b"{}", b"null", b'{"kind":"else"}', b'{"kind":"row","key":"1"}', b"error: x"])
def test_another_line_is_refused(line: bytes) -> None:
    with pytest.raises(ValueError, match="not a record of a comparison"):
        from_line(line)


COLUMNS = {"id", "name", "day", "score", "note"}


def test_a_key_is_shown_with_its_values() -> None:
    def shown_key(text: str) -> dict[str, object]:
        line = shown_difference(TABLE, COLUMNS, Difference(text, "missing"))
        assert line.keys() == {"topic", "difference", "key"}
        return dict(line["key"])

    assert shown_key("-7,C3BC20,2024-02-29") == {"id": -7, "name": "ü ", "day": "2024-02-29"}
    assert shown_key("N,N,N") == {"id": None, "name": None, "day": None}
    assert shown_key("-7,FF,2024-02-29")["name"] == {"hex": "FF"}


def test_the_rows_are_shown_without_their_key_and_what_is_equal() -> None:
    key, row = "-7,C3BC,2024-02-29", "-7,C3BC,2024-02-29,BFE0000000000000,ab"

    def rows(kind: str, source: str | None, *target: str) -> tuple[object, object]:
        line = shown_difference(TABLE, COLUMNS, Difference(key, kind, (source, list(target))))
        return line.get("source"), line.get("target")

    assert rows("missing", row) == ({"score": -0.5, "note": {"sha256": "ab"}}, None)
    assert rows("extra", None, row) == (None, {"score": -0.5, "note": {"sha256": "ab"}})
    assert rows("different", row, f"{key},N,ab") == ({"score": -0.5}, {"score": None})
    assert rows("twice", row, row, f"{key},N,ab") == ({"score": -0.5}, [{"score": -0.5}, {"score": None}])
    assert rows("twice", row, row, row) == ({}, [{}, {}])


def test_differences_are_reported_also_if_a_later_part_cannot_be_compared() -> None:
    known = [Difference("1", "missing"), Difference("2", "extra")]
    reported: list[Difference] = []

    def differing() -> Iterator[Difference]:
        yield from known
        raise SinkError("the target went back")

    with pytest.raises(SinkError):
        list(with_reports(differing(), lambda _: {}, reported.append))
    assert reported == known

    def with_rows(keys: Collection[str]) -> dict[str, Difference]:
        if fails:
            raise SinkError("the target went back")
        return {key: Difference(key, "missing", ("1,a", [])) for key in keys if key == "1"}

    fails, reported = True, []
    with pytest.raises(SinkError):
        list(with_reports(known, with_rows, reported.append))
    assert reported == known
    fails, reported = False, []
    assert list(with_reports(known, with_rows, reported.append)) == known
    assert reported == [Difference("1", "missing", ("1,a", [])), known[1]]


@pytest.mark.parametrize(
    ("text", "buckets"), [("1%", 41), ("0.01%", 1), ("50%", 2048), ("99.99%", 4096), ("100%", 4096)]
)
def test_a_sample_is_some_of_the_buckets(text: str, buckets: int) -> None:
    assert sample_size(text) == buckets


@pytest.mark.parametrize("text", ["", "1", "0%", "101%", "-1%", "1e1%", "% ", "nan%"])
def test_a_sample_that_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--sample"):
        sample_size(text)
