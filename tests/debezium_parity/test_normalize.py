"""Tokens and the stored form of the golden records."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from tests.debezium_parity import golden
from tests.debezium_parity.normalize import normalized
from tests.debezium_parity.patch import difference, edited, edits, patched
from tests.debezium_parity.records import render
from tests.debezium_parity.tokens import Tree, read_tree
from tests.debezium_parity.topics import KafkaRecord

_SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
_OTHER_SERVER = "00000000-71ca-11e1-9e33-c80aa9429562"


def _record(
    table: str = "t",
    *,
    gtid: int = 10,
    pos: int = 500,
    ms: int = 1_700_000_000_000,
    server: str = _SERVER,
    offset: int = 0,
    source: dict[str, Any] | None = None,
) -> KafkaRecord:
    """Return an insert that Debezium wrote."""
    block: dict[str, Any] = {
        "version": "3.6.1",
        "name": "dbz_x",
        "ts_ms": ms,
        "snapshot": "false",
        "ts_us": ms * 1000 + 7,
    }
    block |= {"ts_ns": (ms * 1000 + 7) * 1000, "table": table, "server_id": 1, "gtid": f"{server}:{gtid}"}
    block |= {"file": "binlog.000001", "pos": pos, "row": 0, "thread": 8} | (source or {})
    value: dict[str, Any] = {"before": None, "after": {"id": gtid}, "source": block}
    value |= {"transaction": {"id": f"{server}:{gtid}", "total_order": 1}, "op": "c"}
    value |= {"ts_ms": ms + 5, "ts_us": (ms + 5) * 1000, "ts_ns": (ms + 5) * 1_000_000}
    headers = (("__debezium.context.runId", b"018c"),)
    text = json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
    return KafkaRecord(f"dbz_x.db.{table}", 0, offset, b'{"id":1}', text, headers)


def _source(record: KafkaRecord) -> dict[str, Any]:
    return dict(json.loads(record.value or b"")["source"])


def _normalized(*records: KafkaRecord) -> list[KafkaRecord]:
    return normalized(records, prefix="dbz_x")


def test_two_runs_of_the_same_statements_have_the_same_tokens() -> None:
    """Another server, another binlog position, another time, another thread, another run."""
    first = _normalized(_record(), _record(gtid=11, pos=800, offset=1))
    second = _normalized(
        _record(gtid=70, pos=9000, ms=1_800_000_000_000, server=_OTHER_SERVER, source={"thread": 12})._replace(
            headers=()
        ),
        _record(gtid=75, pos=9999, ms=1_800_000_000_009, server=_OTHER_SERVER, offset=1, source={"thread": 12}),
    )

    assert [_source(each) for each in first] == [_source(each) for each in second]
    assert _source(first[1]) == {
        "version": "<version>",
        "name": "dbz_x",
        "ts_ms": 2,
        "snapshot": "false",
        "ts_us": 2000,
        "ts_ns": 2_000_000,
        "table": "t",
        "server_id": 1,
        "gtid": "<server>:t.2",
        "file": "<binlog>",
        "pos": 2,
        "row": 0,
        "thread": 1,
    }
    assert json.loads(first[1].value or b"")["transaction"] == {"id": "<server>:t.2", "total_order": 1}
    assert first[1].headers == (("__debezium.context.runId", b"<run>"),)


def test_a_transaction_has_one_token_in_all_tables() -> None:
    """The name comes from the table of its first event; positions are counted per table."""
    a, b = _normalized(_record("a", gtid=10, pos=500), _record("b", gtid=10, pos=600))

    assert (_source(a)["gtid"], _source(b)["gtid"]) == ("<server>:a.1", "<server>:a.1")
    assert (_source(a)["pos"], _source(b)["pos"]) == (1, 1)


def test_a_statement_for_one_table_changes_no_token_of_another() -> None:
    """An insert into ``a`` comes first."""
    [alone] = _normalized(_record("b", gtid=11, pos=600))
    _, later = _normalized(_record("a", gtid=10, pos=500), _record("b", gtid=11, pos=600))

    assert alone == later


@pytest.mark.parametrize(
    ("changed", "kept"),
    [
        ({"ts_us": 1_700_000_000_001_000}, {"ts_ms": 1_700_000_000_000, "ts_us": 1_700_000_000_001_000}),
        ({"ts_ms": "1700000000000"}, {"ts_ms": "1700000000000"}),
        ({"gtid": None}, {"gtid": None, "pos": 500, "file": "binlog.000001"}),
        ({"gtid": "10"}, {"gtid": "10", "pos": 500}),
        ({"pos": "500"}, {"pos": "500", "file": "binlog.000001"}),
        ({"thread": None}, {"thread": None}),
        ({"thread": "8"}, {"thread": "8"}),
        ({"version": None}, {"version": None}),
        ({"ts_ms": 1_700_000_000_009, "ts_us": 1_700_000_000_009_007, "ts_ns": 1_700_000_000_009_007_000}, {}),
    ],
)
def test_a_wrong_value_does_not_become_the_token_of_the_right_one(
    changed: dict[str, Any], kept: dict[str, Any]
) -> None:
    """Another type, null, or a contradiction to another field stays visible."""
    right, wrong = _normalized(_record(), _record(offset=1, source=changed))

    assert _source(right) == _source(_normalized(_record())[0])
    assert _source(wrong) != _source(right)
    assert _source(wrong) | kept == _source(wrong)


def test_a_record_of_another_transaction_is_seen() -> None:
    """Two records swap their GTIDs."""
    rows = _record(), _record(gtid=11, pos=800, offset=1)
    swapped = _record(gtid=11), _record(gtid=10, pos=800, offset=1)

    assert [_source(each)["gtid"] for each in _normalized(*rows)] == ["<server>:t.1", "<server>:t.2"]
    assert [_source(each) for each in _normalized(*swapped)] != [_source(each) for each in _normalized(*rows)]


def test_tokens_are_final() -> None:
    """Normalized records stay as they are."""
    once = _normalized(_record("a", pos=100), _record("b", gtid=11, pos=50), _record("a", gtid=12, pos=300, offset=1))

    assert normalized(once, prefix="dbz_x") == once


def test_an_arbitrary_partition_becomes_0() -> None:
    """Records without key go to any partition; the partition of an Avro key depends on the id of its schema."""
    delete = _record()._replace(key=None, value=(_record().value or b"").replace(b'"op":"c"', b'"op":"d"'))
    later = _record(gtid=11, pos=800, ms=1_700_000_000_900)._replace(key=None, partition=1)
    later = later._replace(value=(later.value or b"").replace(b'"op":"c"', b'"op":"d"'))
    tombstones = [KafkaRecord("dbz_x.db.t", 1, 1, None, None, ()), KafkaRecord("dbz_x.db.t", 2, 0, None, None, ())]
    avro = _record("u")._replace(key=b'{"schema":{"type":"record","name":"Key"},"payload":{"id":1}}', partition=2)

    found = _normalized(later, *tombstones[:1], delete, tombstones[1], avro)

    assert [(each.topic[-1], each.partition, each.offset) for each in found] == [
        ("t", 0, 0),
        ("t", 0, 1),
        ("t", 0, 2),
        ("t", 0, 3),
        ("u", 0, 0),
    ]
    assert [_source(each)["gtid"] if each.value else None for each in found] == [
        "<server>:t.1",
        None,
        "<server>:t.2",
        None,
        "<server>:t.1",
    ]
    assert normalized(found, prefix="dbz_x") == found


def _stored(folder: Path, name: str) -> list[KafkaRecord]:
    return list(golden.read(name, prefix="dbz_x", folder=folder))


def test_the_stored_form_gives_back_all_bytes(tmp_path: Path) -> None:
    """Records with and without schemas, tombstones, null keys, and headers of all kinds."""
    plain = KafkaRecord("dbz_x.db.t", 0, 0, b'{"id":1}', '{"a":"q\\" é \u2028","b":1.0E10}'.encode(), ())
    schema = plain._replace(offset=1, key=b'{"schema":{"name":"dbz_x.Key"},"payload":{"id":1}}')
    headers = plain._replace(partition=1, headers=(("h", b"\xc3\xa9"), ("n", None), ("p", b"dbz_x")))
    records = [plain, schema, schema._replace(offset=2, value=None), plain._replace(offset=3), headers]
    records.append(KafkaRecord("dbz_x.db.u", 0, 0, None, None, ()))
    other = [schema._replace(offset=0), plain._replace(offset=1, value=b'{"a":2}'), headers._replace(headers=())]

    golden.write(
        {golden.BASE: records, "other": other}, prefixes={golden.BASE: "dbz_x", "other": "dbz_x"}, folder=tmp_path
    )

    assert _stored(tmp_path, golden.BASE) == records
    assert _stored(tmp_path, "other") == other
    golden.write({golden.BASE: other}, prefixes={golden.BASE: "dbz_x"}, folder=tmp_path)
    assert _stored(tmp_path, golden.BASE) == _stored(tmp_path, "other") == other


def test_the_stored_form_refuses_its_own_tokens(tmp_path: Path) -> None:
    """A record that contains the token of the prefix could not be restored."""
    record = KafkaRecord("dbz_x.db.t", 0, 0, None, b'{"a":"<prefix>"}', ())

    with pytest.raises(ValueError, match="token"):
        golden.write({golden.BASE: [record]}, prefixes={golden.BASE: "dbz_x"}, folder=tmp_path)


@pytest.mark.parametrize(
    ("old", "new", "patch"),
    [
        ('{"a":1,"b":2}', '{"a":1,"b":3}', '{"b":["3"]}'.replace('"3"', "3")),
        ('{"a":{"b":[1,2]}}', '{"a":{"b":[1,3]}}', '{"a":{"b":{"1":[3]}}}'),
        ('{"a":1}', '{"b":1}', '[{"b":1}]'),
        ('{"a":1,"b":1}', '{"b":1,"a":1}', '[{"b":1,"a":1}]'),
        ("[1]", "[1,2]", "[[1,2]]"),
        ("1", "1.0", "[1.0]"),
        ("null", "{}", "[{}]"),
        ('{"a":1}', '{"a":1}', "{}"),
    ],
)
def test_patches(old: str, new: str, patch: str) -> None:
    """A patch turns the old value into the new one, text by text."""
    assert render(difference(read_tree(old), read_tree(new))) == patch
    assert render(patched(read_tree(old), read_tree(patch))) == new


@pytest.mark.parametrize(
    ("old", "new", "expected"),
    [
        ("abc", "abc", "3"),
        ("abc", "ac", "1 -1 1"),
        ("ac", "abc", '1 ["b"] 1'),
        ("abc", "", "-3"),
        ("", "ab", '["a"] ["b"]'),
    ],
)
def test_edits(old: str, new: str, expected: str) -> None:
    """Edits turn the old list into the new one."""

    def items(text: str) -> list[Tree]:
        return [[f'"{each}"'] for each in text]

    found = list(edits(items(old), items(new), label=render))

    assert " ".join(map(render, found)) == expected
    assert edited(items(old), found) == items(new)


@pytest.mark.parametrize("text", ["[2]", "[4]", "[-4]", "[]"])
def test_edits_of_another_list_are_refused(text: str) -> None:
    """Too few or too many items."""
    found = read_tree(text)
    assert isinstance(found, list)
    with pytest.raises(ValueError, match="edits"):
        edited([["1"], ["2"], ["3"]], found)
