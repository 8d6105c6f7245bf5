"""The comparison of a soak finds what it is there to find: each kind of damage to a topic that was right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any
from zlib import crc32

import orjson
import pytest

from tailrace.schemas.names import EVENT_HEADER, SPLIT_HEADER
from tailrace.schemas.watermark import BinlogPosition, Watermark, WatermarkKind
from tests.soak.gtids import Gtids
from tests.soak.history import TableHistory
from tests.soak.moving import differing, surplus
from tests.soak.tables import Row
from tests.soak.topic import Topic
from tests.soak.verify import TableCheck, Verdict
from tests.support.topics import Read

SPLIT = "d.by_integer:run:0"


def _row(v: str) -> Row:
    return {"id": 1, "v": v}


def _gtid(number: int) -> str:
    return f"server:{number}"


def _history() -> TableHistory:
    """Insert 1 and update 2 precede the snapshot, update 3 is backfill, update 4 and delete 5 follow, insert 6."""
    history = TableHistory("by_integer")
    history.add(_gtid(1), None, _row("a"))
    history.add(_gtid(2), _row("a"), _row("b"))
    history.add(_gtid(3), _row("b"), _row("c"))
    history.add(_gtid(4), _row("c"), _row("d"))
    history.add(_gtid(5), _row("d"), None)
    history.add(_gtid(6), None, _row("e"))
    return history


def _record(op: str, gtid: str, before: Row | None, after: Row | None, split: str = "") -> Read:
    value = orjson.dumps({"op": op, "before": before, "after": after, "source": {"gtid": gtid}})
    headers = {SPLIT_HEADER: split.encode()} if split else {}
    return Read("p.d.by_integer", 0, 0, b'{"id":1}', value, headers)


def _records() -> list[Read]:
    return [
        _record("r", "", None, _row("b"), SPLIT),
        _record("u", _gtid(3), _row("b"), _row("c"), SPLIT),
        _record("u", _gtid(4), _row("c"), _row("d")),
        _record("d", _gtid(5), _row("d"), None),
        Read("p.d.by_integer", 0, 0, b'{"id":1}', None, {}),
        _record("c", _gtid(6), None, _row("e")),
    ]


def _mark(kind: WatermarkKind, rows: int, backfill: int, checksum: int) -> Watermark:
    position = BinlogPosition(1, "f", 4, "server:1-2", "server")
    return Watermark(
        kind=kind,
        split=SPLIT,
        snapshot="run",
        topic="p.d.by_integer",
        database="d",
        table="by_integer",
        number=0,
        lower=None,
        upper=None,
        closed=True,
        position=position,
        rows=rows,
        checksum=checksum,
        backfill=backfill,
        schema="f",
        ts_us=0,
    )


def _marks() -> list[Watermark]:
    checksum = crc32(orjson.dumps(_row("b")))
    return [
        _mark(WatermarkKind.LOW, 0, 0, 0),
        _mark(WatermarkKind.HIGH, 1, 0, checksum),
        _mark(WatermarkKind.END, 1, 1, checksum),
    ]


def _verdict(records: list[Read], marks: list[Watermark], source: dict[str, Row] | None = None) -> Verdict:
    rows = {"[1]": _row("e")} if source is None else source
    return TableCheck(_history(), Topic("by_integer", records), marks, Gtids()).run(rows)


def test_a_right_topic_has_no_problem() -> None:
    assert _verdict(_records(), _marks()) == Verdict(6, 6, 0, 0, ())


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_lost_change_is_found(number: int) -> None:
    records = _records()
    del records[number]

    assert _verdict(records, _marks()).lost


@pytest.mark.parametrize("number", [1, 2, 5])
def test_a_doubled_change_is_found(number: int) -> None:
    records = _records()
    records.insert(number, records[number])

    assert _verdict(records, _marks()).doubled == 1


def _swap(records: list[Read]) -> None:
    records[1], records[2] = records[2], records[1]


def _old_row(records: list[Read]) -> None:
    records[0] = _record("r", "", None, _row("a"), SPLIT)


def _future_row(records: list[Read]) -> None:
    records[0] = _record("r", "", None, _row("d"), SPLIT)


def _second_row(records: list[Read]) -> None:
    records.insert(1, records[0])


def _no_tombstone(records: list[Read]) -> None:
    del records[4]


def _other_value(records: list[Read]) -> None:
    records[2] = _record("u", _gtid(4), _row("c"), _row("x"))


def _before_low(records: list[Read]) -> None:
    records.insert(1, _record("u", _gtid(2), _row("a"), _row("b"), SPLIT))


@pytest.mark.parametrize(
    "damage", [_swap, _old_row, _future_row, _second_row, _no_tombstone, _other_value, _before_low]
)
def test_damage_is_found(damage: Callable[[list[Read]], None]) -> None:
    records = _records()
    damage(records)

    assert _verdict(records, _marks()).problems


@pytest.mark.parametrize("changes", [{"rows": 2}, {"backfill": 0}, {"checksum": 1}])
def test_a_wrong_certificate_is_found(changes: dict[str, Any]) -> None:
    marks = _marks()
    end = marks[2]
    counts = {"rows": end.rows, "backfill": end.backfill, "checksum": end.checksum, **changes}
    marks[2] = _mark(WatermarkKind.END, **counts)

    [problem] = _verdict(_records(), marks).problems
    assert "END" in problem


def test_a_missing_certificate_is_found() -> None:
    [problem] = _verdict(_records(), _marks()[:2]).problems
    assert "0 END records" in problem


def test_another_row_in_the_source_is_found() -> None:
    assert _verdict(_records(), _marks(), {"[1]": _row("f")}).lost == 1


def _created(number: int, row: Row) -> Read:
    return _record("c", _gtid(number), None, row)._replace(key=orjson.dumps(row))


def _dropped_tables(*found: int, low: str = "", drops: int = 2, **bounds: Any) -> Verdict:
    """Two tables of one name: inserts 1 and 2 and DROP 3, inserts 4 and 5 and DROP 6; the topic has ``found``.

    ``bounds`` are those of the split with the low watermark ``low``.
    """
    history = TableHistory("created")
    rows: dict[int, Row] = {1: {"id": 1}, 2: {"id": 2}, 4: {"id": 1}, 5: {"id": 3}}
    for number in range(1, 7):
        if number in rows:
            history.add(_gtid(number), None, rows[number])
        elif number == 3 or drops == 2:
            history.leave(_gtid(number))
    records = [_created(number, rows[number]) for number in found]
    position = BinlogPosition(1, "f", 4, low, "server")
    marks = [replace(_mark(WatermarkKind.LOW, 0, 0, 0), position=position, **bounds)] if low else []
    source: dict[str, Row] = {} if drops == 2 else {"[1]": rows[4], "[3]": rows[5]}
    return TableCheck(history, Topic("created", records), marks, Gtids()).run(source)


@pytest.mark.parametrize("found", [(), (2,), (4, 5), (5,), (2, 5), (1, 2, 4, 5)])
def test_first_changes_of_a_table_that_was_dropped_unread_are_not_captured(found: tuple[int, ...]) -> None:
    verdict = _dropped_tables(*found)
    assert (verdict.lost, verdict.doubled, verdict.problems) == (0, 0, ())
    assert verdict.not_captured == 4 - len(found)


@pytest.mark.parametrize("found", [(1,), (4,), (1, 5), (1, 2, 4)])
def test_a_lost_change_of_a_table_that_was_captured_is_found(found: tuple[int, ...]) -> None:
    """The topic has a change of the table before the missing one, though of another key: the table did not wait."""
    assert _dropped_tables(*found).lost


def test_a_lost_change_of_a_table_that_is_there_is_found() -> None:
    verdict = _dropped_tables(1, 2, 5, drops=1)
    assert (verdict.lost, verdict.not_captured) == (1, 0)


@pytest.mark.parametrize(("low", "lost"), [("server:1-3", 2), ("server:1-4", 1), ("server:1-5", 0), ("server:1-2", 0)])
def test_a_lost_change_after_a_low_watermark_is_found(low: str, lost: int) -> None:
    """A snapshot has begun to read the second table, or only the first one, so it had to have the later changes."""
    verdict = _dropped_tables(*([1, 2] if low != "server:1-2" else []), low=low)
    assert verdict.lost == lost


@pytest.mark.parametrize(
    ("bounds", "lost"),
    [
        ({"lower": [3], "lower_open": True}, 0),  # has watermarks before a row is read
        ({"lower": [2], "lower_open": True}, 1),
        ({"lower": [2], "upper": [4], "closed": False}, 1),
        ({"lower": None, "upper": [3], "closed": False}, 1),
        ({"lower": None, "upper": [3], "closed": True}, 2),
    ],
)
def test_a_low_watermark_tells_of_the_keys_of_its_split(bounds: dict[str, Any], lost: int) -> None:
    verdict = _dropped_tables(1, 2, low="server:1-3", **bounds)
    assert (verdict.lost, verdict.not_captured) == (lost, 2 - lost)


def test_a_key_that_an_added_partition_took_over_has_its_changes_in_the_order_of_the_log() -> None:
    records = []
    for number, (record, partition) in enumerate(zip(_records(), (1, 1, 1, 0, 0, 0), strict=True)):
        value = record.value and orjson.dumps(
            {**record.json, "source": {**record.json["source"], "file": "f.000001", "pos": number, "row": 0}}
        )
        headers = {**record.headers, EVENT_HEADER: b"1.0"}
        records.append(record._replace(value=value, headers=headers, partition=partition, offset=number))
    records.sort(key=lambda record: record.partition)

    assert not _verdict(records, _marks()).problems
    assert _verdict(records[1:], _marks()).lost


def test_a_table_that_goes_and_comes_back_is_compared_by_its_rows() -> None:
    rows = {1: {"id": 1, "v": "a"}}
    assert differing(rows, {1: {"id": 1, "v": "a", "w": 5}}) == []
    for source in ({}, {1: {"id": 1, "v": "b"}}, rows | {2: {"id": 2, "v": "a"}}):
        assert len(differing(rows, source)) == 1
    assert surplus(_history(), Topic("by_integer", _records()))[0].total() == 0
    assert surplus(_history(), Topic("by_integer", [*_records(), _records()[-1]]))[0].total() == 1
