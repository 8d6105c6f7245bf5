"""The offset of a connector in the topic of Kafka Connect: every accepted and every rejected form."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from tailrace.producer.errors import TakeoverError
from tailrace.producer.takeover.debezium_offset import ConnectorPartition, read_offset, read_partition

OWNER = ConnectorPartition("inventory", "shop")
UUID = "58e3a85e-e597-11f1-8ae5-02fc00000001"


def value(**changes: Any) -> bytes:
    """Return an offset between transactions with some fields changed."""
    fields = {
        "transaction_id": None,
        "ts_sec": 1700000000,
        "file": "binlog.000003",
        "pos": 1549,
        "gtids": f"{UUID}:1-17",
        "server_id": 1,
        **changes,
    }
    return orjson.dumps(fields)


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        (b'["inventory",{"server":"shop"}]', OWNER),
        (b'["inventory",{"server":"shop","database":"x"}]', OWNER),
        (b'{"schema":null,"payload":["inventory",{"server":"shop"}]}', OWNER),
        (b'["files",{"filename":"a.txt"}]', None),
        (b'["inventory",{"server":7}]', None),
        (b'["inventory"]', None),
        (b'"inventory"', None),
        (b"\xac\xed\x00\x05", None),
        (b"", None),
        (None, None),
    ],
)
def test_keys_of_other_connectors_are_ignored(key: bytes | None, partition: ConnectorPartition | None) -> None:
    assert read_partition(key) == partition


def test_between_transactions() -> None:
    offset = read_offset(OWNER, value())

    assert (offset.file, offset.pos, offset.gtids) == ("binlog.000003", 1549, f"{UUID}:1-17")
    assert (offset.events, offset.rows, offset.ts, offset.in_transaction) == (0, 0, 1700000000, False)
    assert offset.counts == {}


@pytest.mark.parametrize(
    ("events", "rows", "within"), [(0, 0, False), (1, 0, False), (2, 0, True), (3, 2, True), (1, 5, True)]
)
def test_begin_alone_is_not_within_a_transaction(events: int, rows: int, within: bool) -> None:
    offset = read_offset(OWNER, value(event=events, row=rows))

    assert (offset.events, offset.rows, offset.in_transaction) == (events, rows, within)


def test_counts_of_transaction_metadata() -> None:
    counted = {"transaction_data_collection_order_shop.orders": 3, "transaction_data_collection_order_shop.a_b": 1}

    offset = read_offset(OWNER, value(event=4, transaction_id=f"{UUID}:18", **counted))

    assert offset.counts == {"shop.orders": 3, "shop.a_b": 1}


@pytest.mark.parametrize(
    ("written", "read"),
    [
        (None, ""),
        ("", ""),
        (f"{UUID.upper()}:1-3:7-7,\n{UUID[:-1]}2:5", f"{UUID}:1-3:7,{UUID[:-1]}2:5"),
        (f" {UUID}:1-3:4-9 ", f"{UUID}:1-9"),
        (f"{UUID}:1:Tag:2:4-5:b:7", f"{UUID}:1:b:7:tag:2:4-5"),
    ],
)
def test_gtids_in_every_form(written: str | None, read: str) -> None:
    assert read_offset(OWNER, value(gtids=written)).gtids == read


def test_absent_fields_and_numbers_as_text() -> None:
    fields = orjson.dumps({"file": "mysql-bin.1000000", "pos": "4", "snapshot": False, "later": {"unknown": 1}})

    offset = read_offset(OWNER, fields)

    assert (offset.file, offset.pos, offset.gtids, offset.ts) == ("mysql-bin.1000000", 4, "", 0)


def test_value_in_an_envelope() -> None:
    wrapped = b'{"schema":null,"payload":' + value(event=3) + b"}"

    assert read_offset(OWNER, wrapped).events == 3


@pytest.mark.parametrize("snapshot", [True, "true", "INITIAL", "BLOCKING", "INCREMENTAL"])
def test_unfinished_snapshot_is_rejected(snapshot: object) -> None:
    with pytest.raises(TakeoverError, match="before its snapshot was finished") as caught:
        read_offset(OWNER, value(snapshot=snapshot))
    assert "let it finish the snapshot" in caught.value.hint


def test_running_incremental_snapshot_is_rejected() -> None:
    with pytest.raises(TakeoverError, match=r"(?s)incremental snapshot.*hint: start the connector again and let it"):
        read_offset(OWNER, value(incremental_snapshot_primary_key="aced", incremental_snapshot_collections="[]"))


def test_rows_without_events_mean_an_xa_transaction() -> None:
    with pytest.raises(
        TakeoverError, match=r"(?s)XA.*hint: start the connector again, and stop it after a change outside XA"
    ):
        read_offset(OWNER, value(row=2))


@pytest.mark.parametrize("seen", [b"", b"\x00\x01", b'{"file":'])
def test_invalid_json_is_rejected(seen: bytes) -> None:
    with pytest.raises(
        TakeoverError, match=r"(?s)not JSON.*hint: pass the worker.s offset.storage.topic as --offset-topic"
    ):
        read_offset(OWNER, seen)


@pytest.mark.parametrize("seen", [b"null", b"[]", b"7", b'{"lsn":5,"txId":7}', b'{"file":"binlog.000001"}'])
def test_offset_of_another_connector_is_rejected(seen: bytes) -> None:
    with pytest.raises(TakeoverError, match=r"(?s)not belong to a MySQL connector.*hint: pass the name of the"):
        read_offset(OWNER, seen)


@pytest.mark.parametrize(
    ("field", "seen"),
    [
        ("file", ""),
        ("file", None),
        ("file", 3),
        ("file", "binlog"),
        ("pos", None),
        ("pos", -1),
        ("pos", True),
        ("pos", 1.5),
        ("pos", "x"),
        ("pos", "-4"),
        ("pos", "²"),
        ("event", -1),
        ("event", "two"),
        ("row", [1]),
        ("ts_sec", "now"),
        ("gtids", 5),
        ("gtids", "0-1-100"),
        ("gtids", f"{UUID}"),
        ("gtids", f"{UUID}:tag"),
        ("gtids", f"{UUID}:1-"),
        ("transaction_data_collection_order_shop.t", "many"),
    ],
)
def test_damaged_field_is_named_with_its_value(field: str, seen: object) -> None:
    with pytest.raises(TakeoverError, match=f"field {field} ") as caught:
        read_offset(OWNER, value(**{field: seen}))
    assert caught.value.context["connector"] == "inventory"
    assert caught.value.hint.startswith("look at the record in the offset topic; a running connector writes a complete")
