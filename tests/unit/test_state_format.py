"""The format of the state: records of the first version open, unknown fields are ignored, a newer format is refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import orjson
import pytest

from tailrace.producer.errors import StateDamagedError
from tailrace.producer.kafka.generation import Generation
from tailrace.producer.kafka.state_store import FORMAT, FORMAT_KEY, State, decode, format_value
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.serialization.key_memory import KnownKey
from tailrace.producer.signals.queue import IncrementalSnapshotQueue
from tailrace.runtime.stored_format import NewerFormatError
from tailrace.runtime.versions import program_version

_POSITION = (
    b'{"kind":"mysql","epoch":0,"file":"binlog.000002","pos":157,'
    b'"gtids":"3e11fa47-71ca-11e1-9e33-c80aa9429562:1-9","server_uuid":"3e11fa47-71ca-11e1-9e33-c80aa9429562"}'
)
FIRST: Mapping[bytes, bytes] = {
    b"offset": b'{"position":' + _POSITION + b',"transactions":[{"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:10",'
    b'"number":2,"pos":900,"rows":0,"table_rows":{"shop.t":3},"uncounted":"t","relocated":false,"records":{}}]}',
    b"generation": b'{"number":3,"run_id":"5f0c","host":"host","pid":17,"started":"2026-11-25T10:00:00Z"}',
    b"readers": b'{"count":4}',
    b"table/shop.t": b'{"mode":"snapshot","snapshot":"r1","greatest":[100],"key":["id"],"key_order":["int"]}',
    b"key/shop.t": b'{"unique":["id"],"versions":[[{"name":"id","data_type":"int","nullable":false,"unsigned":false,'
    b'"length":0,"precision":0,"scale":0,"fsp":0,"charset":"","enum_values":[],"catalog":{"column_type":"int",'
    b'"collation":null,"default":null,"default_is_expression":false,"generated":false,"auto_increment":true,'
    b'"comment":"","extra":"","default_value":"01"}}]]}',
    b"split/shop.t:r1:1": b'{"database":"shop","table":"t","snapshot":"r1","number":1,"lower":[5],"upper":[9],'
    b'"closed":false,"low":' + _POSITION + b',"high":' + _POSITION + b',"rows":3,"checksum":"0000000000000005",'
    b'"schema":"f00d","lower_open":false}',
    b"backfill/shop.t:r1:1": b'{"count":4}',
    b"range/shop.t:r1:0": b'{"database":"shop","table":"t","snapshot":"r1","number":0,"next_number":1,"lower":null,'
    b'"upper":[5],"closed":false,"splits":1,"rows":3}',
    b"structure": b"{}",
    b"structure/shop.t": b"{}",
    b"prepared/X'61',X'',1": b'{"xid":"X\'61\',X\'\',1","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:4",'
    b'"file":"binlog.000002","pos":200,"captured":true,"end":400}',
    b"signals": b'{"queue":1,"paused":false,"correlation_id":"","kafka":-1,"file":"","source":["",0]}',
    b"request/1": b'{"database":"shop","table":"t","condition":"","stopped":false}',
}
"""One record of each kind, as the first version writes them: without a format."""
ADDED: Mapping[bytes, bytes] = {
    b"offset": b'{"position":' + _POSITION + b',"transactions":[],"last":{'
    b'"gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:9",'
    b'"file":"binlog.000002","end":157,"ts":1}}',
    b"table/shop.u": b'{"mode":"error","fault":{"reason":"no key","at":{"pos":"4"},"defined":true,"settings":"f"}}',
    b"prepared/X'62',X'',1": b'{"xid":"X\'62\',X\'\',1","gtid":"3e11fa47-71ca-11e1-9e33-c80aa9429562:5",'
    b'"file":"binlog.000002","pos":200,"captured":true,"end":400,"tables":[["shop","t"]]}',
    b"former/shop.t": b"{}",
    b"moved": b'{"position":' + _POSITION + b',"origin":' + _POSITION + b"}",
    b"replay": b'{"until":' + _POSITION + b',"tables":["shop.t"]}',
}
"""Records and fields that have been added to the format."""


def _opened(records: Mapping[bytes, bytes]) -> tuple[State, list[object]]:
    state = decode(records, MySqlOffset.from_json)
    generation = Generation.from_json(records[b"generation"])
    keys = [KnownKey.from_json(body) for body in state.keys.values()]
    return state, [generation, keys, IncrementalSnapshotQueue.from_state(state).requests]


def _with_more(value: Any) -> Any:
    """Return JSON with one more field in each of its records; objects that are maps by name have no fields."""
    if isinstance(value, list):
        return [_with_more(each) for each in value]
    if not isinstance(value, dict):
        return value
    maps = {"table_rows", "records", "at"}
    return {name: each if name in maps else _with_more(each) for name, each in value.items()} | {"later": [1]}


def test_state_without_a_format_opens() -> None:
    state, _ = _opened(FIRST)

    assert state.offset is not None
    assert state.offset.transactions[0].table_rows == {"shop.t": 3}
    assert (state.readers, state.generation, state.structure) == (4, 3, frozenset({"shop.t"}))
    assert state.tables["shop.t"].mode is TableMode.SNAPSHOT
    assert [len(stored.splits) + len(stored.ranges) for stored in state.splits.values()] == [2]
    assert state.prepared["X'61',X'',1"].end == 400


def test_fields_and_records_of_a_later_program_are_ignored() -> None:
    """So an operator can go back to the program of yesterday."""
    records = {key: orjson.dumps(_with_more(orjson.loads(value))) for key, value in FIRST.items()}
    records |= {b"later/shop.t": b'{"x":1}', b"later": b"{}", FORMAT_KEY: format_value()}
    known, kept = _opened(FIRST)
    state, found = _opened(records)

    known.signals = state.signals
    known.keys, known.requests = state.keys, state.requests
    assert state == known
    assert found == kept


def test_later_fields_of_added_records_are_ignored() -> None:
    known, _ = _opened({**FIRST, **ADDED})
    state, _ = _opened(
        {**FIRST, **{key: orjson.dumps(_with_more(orjson.loads(value))) for key, value in ADDED.items()}}
    )

    assert state == known
    assert state.moved is not None
    assert state.moved.position == state.moved.origin
    assert state.replay is not None
    assert (state.replay.tables, state.former) == (("shop.t",), {"shop.t"})
    assert state.tables["shop.u"].fault is not None
    assert state.tables["shop.u"].fault.reason == "no key"
    assert state.offset is not None
    assert state.offset.last is not None


def test_newer_format_is_refused_with_both_programs() -> None:
    """Before all else: what has changed may look damaged."""
    newer = orjson.dumps({"format": FORMAT + 1, "program": "9.8.7"})
    with pytest.raises(NewerFormatError) as caught:
        decode({b"offset": b"[]", b"table/a.b": b'{"mode":"of the future"}', FORMAT_KEY: newer}, MySqlOffset.from_json)

    assert f"format {FORMAT + 1}, written by Tailrace 9.8.7" in caught.value.message
    assert f"this is Tailrace {program_version()}" in caught.value.message
    assert caught.value.hint == "run the version that wrote it, or a later one"


@pytest.mark.parametrize("value", [b'{"format":"1"}', b'{"format":0}', b'{"format":true}', b"[]"])
def test_format_that_is_no_number_is_damage(value: bytes) -> None:
    with pytest.raises(StateDamagedError):
        decode({FORMAT_KEY: value}, MySqlOffset.from_json)
