"""The records of a comparison, and how the rows of buckets that differ are divided and shown."""

from __future__ import annotations

import sys
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any, Final, cast

import pytest
from pyspark.sql import types as tp

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
from tailrace.spark_consumer import config
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.base import TargetRows
from tailrace.spark_consumer.sink.ledger import LEAVE_OUT
from tailrace.spark_consumer.verify.command import (
    SourceChecksums,
    SourceFailedError,
    _require_equal_shape,
    sample_size,
    shown_difference,
)
from tailrace.spark_consumer.verify.compare import Difference, TableComparison, with_reports
from tests.spark.records import table_schema

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


_SOURCE: Final = """
import sys
for line in sys.argv[1:-2]:
    print(line, flush=True)
    sys.stdin.readline()
sys.exit("the account cannot read shop.t")
"""


def source(*records: Record) -> SourceChecksums:
    """Return the source whose command answers each request with one record, and then fails."""
    return SourceChecksums(
        [sys.executable, "-c", _SOURCE, *(to_line(each).decode().strip() for each in records)], "p.t"
    )


def test_a_source_that_cannot_be_compared_names_a_way_on() -> None:
    with source() as failing, pytest.raises(SourceFailedError, match=r"^the source could not be read") as caught:
        failing.plan()
    assert (caught.value.hint, caught.value.context["answer"]) == (
        "run the command by hand; or leave the table out with --tables",
        "the account cannot read shop.t",
    )
    assert str(caught.value.context["command"]).endswith("--topic p.t")
    twice = ComparedRow("1", "a" * 32), ComparedRow("1", "b" * 32)
    with (
        source(*twice) as failing,
        pytest.raises(SourceFailedError, match="two rows of the source have one key") as caught,
    ):
        failing.rows(["id"], Keys.of_texts(["1"]), texts=False)
    assert caught.value.hint.startswith(
        "name columns in message.key.columns whose values are unique; or leave the table"
    )


class Target:
    """A target without columns, and with what it has applied at each call."""

    def __init__(self, *applied: int) -> None:
        self._applied = iter(applied)

    def read_target(self, *_: object) -> TargetRows:
        """Return the rows."""
        rows = SimpleNamespace(schema=tp.StructType())
        return TargetRows(cast("Any", rows), {0: next(self._applied)}, lambda: {0: next(self._applied)})


def comparison(target: Target, read: SourceChecksums, wait_s: float = 0) -> TableComparison:
    """Return the comparison of a table."""
    return TableComparison(cast("Any", None), read, target, cast("Any", TABLE), cast("Any", None), wait_s=wait_s)


def test_a_target_that_cannot_be_compared_names_a_way_on() -> None:
    with (
        source(TABLE) as read,
        pytest.raises(SinkError, match=r"^the table cannot be compared: key column id: ") as caught,
    ):
        comparison(Target(0), read).run(lambda *_: None)
    assert caught.value.hint == "load the table again, so that it has the key of the source"
    window = Window({0: 5}, {0: 9})
    with pytest.raises(SinkError, match=r"^the target has not applied what the source shows") as caught:
        comparison(Target(7, 7), source())._target(window)
    assert caught.value.hint == "start the query of the target, look into its status, or raise --wait"
    assert (caught.value.context["applied"], caught.value.context["wanted"]) == ({0: 7}, {0: 9})
    comparing = comparison(Target(7, 9, 8), source(), wait_s=60)
    found = comparing._target(window)
    with pytest.raises(SinkError, match=r"^the target went back while it was compared") as caught:
        comparing._changed(cast("Any", None), window, found, Keys.of_texts(["1"]))
    assert caught.value.hint == "run the command again"
    given = {"bootstrap.servers": "b:1", "topic.prefix": "p", "checkpointLocation": "/c", "sink": "console"}
    routed = config.parse({**given, "routes": "r", "routes.r.source-table": r"shop\.t", "routes.r.sink-table": "all.t"})
    with pytest.raises(SinkError, match="tables with a transform or a route are not compared yet") as caught:
        _require_equal_shape(routed.transforms.rules, table_schema("p", "t"))
    assert (caught.value.hint, caught.value.context["topic"]) == (LEAVE_OUT, "p.shop.t")
    _require_equal_shape(routed.transforms.rules, table_schema("p", "u"))


@pytest.mark.parametrize(
    ("text", "buckets"), [("1%", 41), ("0.01%", 1), ("50%", 2048), ("99.99%", 4096), ("100%", 4096)]
)
def test_a_sample_is_some_of_the_buckets(text: str, buckets: int) -> None:
    assert sample_size(text) == buckets


@pytest.mark.parametrize("text", ["", "1", "0%", "101%", "-1%", "1e1%", "% ", "nan%"])
def test_a_sample_that_is_no_percentage_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="--sample"):
        sample_size(text)
