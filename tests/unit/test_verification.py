"""The records of a comparison, and how the rows of buckets that differ are divided and shown."""

from __future__ import annotations

import pytest

from tailrace.schemas.verification import (
    BucketSum,
    ComparedColumn,
    ComparedTable,
    Keys,
    Record,
    Request,
    RowChecksum,
    TextForm,
    Window,
    from_line,
    to_line,
)
from tailrace.spark_consumer.verify.command import shown_key

TABLE = ComparedTable(
    "p.shop.t",
    "shop",
    "t",
    (
        ComparedColumn("id", TextForm.INTEGER),
        ComparedColumn("name", TextForm.BYTES),
        ComparedColumn("day", TextForm.DATE),
    ),
    ("id", "name", "day"),
    {"doc": "JSON"},
)


@pytest.mark.parametrize(
    "record",
    [
        TABLE,
        BucketSum(4095, 3, "0" * 31 + "f"),
        RowChecksum("1,C3BC", "a" * 32),
        Window({0: 0, 1: 17}, {0: 2**40, 1: 17}),
        Request(("a", "b c")),
        Request(("a",), Keys.of_texts(["1,C3BC", "N"])),
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


def test_a_key_is_shown_with_its_values() -> None:
    assert shown_key(TABLE, "-7,C3BC20,2024-02-29") == {"id": -7, "name": "ü ", "day": "2024-02-29"}
    assert shown_key(TABLE, "N,N,N") == {"id": None, "name": None, "day": None}
    assert shown_key(TABLE, "-7,FF,2024-02-29")["name"] == {"hex": "FF"}
