"""Requests of the binlog: what the driver sends is byte for byte what mysql-replication sends."""

from __future__ import annotations

import struct
from types import SimpleNamespace
from typing import Any

import pytest
from pymysql.connections import Connection
from pymysqlreplication import BinLogStreamReader

from tailrace.producer.errors import BinlogError
from tailrace.producer.mysql.binlog.packets import dump_from_file, dump_from_gtids
from tailrace.producer.mysql.gtid import GtidSet

A, B = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee"


def request_of_the_library(**position: Any) -> bytes:
    """Return what mysql-replication writes to a connection after its statements."""
    sent: list[bytes] = []
    cursor = SimpleNamespace(execute=lambda *_: None, fetchone=lambda: None, close=lambda: None)
    connection = SimpleNamespace(cursor=lambda: cursor, _write_bytes=sent.append)
    reader = BinLogStreamReader({}, 7001, blocking=True, pymysql_wrapper=lambda **_: connection, **position)
    reader._BinLogStreamReader__connect_to_stream()
    return b"".join(sent)


def sent_by_the_driver(request: tuple[int, bytes]) -> bytes:
    """Return what a connection writes for a command."""
    sent: list[bytes] = []
    connection: Any = Connection(defer_connect=True)
    connection._sock, connection._write_bytes = object(), sent.append
    connection._execute_command(*request)
    connection._sock = None
    return b"".join(sent)


@pytest.mark.parametrize("gtids", [f"{A}:1", f"{A}:1-5:7:9-20,{B}:3-9"])
def test_a_request_by_gtids_is_that_of_the_library(gtids: str) -> None:
    request = dump_from_gtids(GtidSet.parse(gtids), 7001)
    assert sent_by_the_driver(request) == request_of_the_library(auto_position=gtids)


def test_a_request_of_all_transactions_has_an_empty_set() -> None:
    """The library would ask for a file."""
    command, with_one = dump_from_gtids(GtidSet.parse(f"{A}:1"), 7001)
    same, empty = dump_from_gtids(GtidSet({}), 7001)
    assert (same, empty[:17]) == (command, with_one[:17])
    assert empty[17:] == b"\0\0\0\0" + (8).to_bytes(4, "little") + bytes(8)


def test_tags_are_sent_in_the_form_in_which_the_server_logs_them() -> None:
    """In the Previous_gtids event of MySQL 9.7.4; the library knows no tags."""
    server = "01e6eca6e98c11f19be702fc00000001"
    logged = bytes.fromhex(
        f"0104000000000001 {server} 00 0100000000000000 0100000000000000 0400000000000000"
        f"{server} 0262 0100000000000000 0100000000000000 0200000000000000"
        f"{server} 0e7461675f6f6e65 0100000000000000 0100000000000000 0300000000000000"
        "11111111111111111111ffffffffffff 027a 0100000000000000 feffffffffffff7f ffffffffffffff7f"
    )
    uuid = "01e6eca6-e98c-11f1-9be7-02fc00000001"
    gtids = GtidSet.parse(f"{uuid}:1-3:b:1:tag_one:1-2,11111111-1111-1111-1111-ffffffffffff:z:{2**63 - 2}")

    _, request = dump_from_gtids(gtids, 7001)

    assert request.endswith(struct.pack("<QI", 4, len(logged)) + logged)


def test_a_request_of_a_file_is_that_of_the_library() -> None:
    of_the_library = request_of_the_library(log_file="binlog.000017", log_pos=4, resume_stream=True)
    assert sent_by_the_driver(dump_from_file("binlog.000017", 7001)) == of_the_library


def test_a_request_has_32_bits_for_a_position() -> None:
    _, request = dump_from_file("binlog.000017", 7001, (1 << 32) - 1)
    assert request.startswith(b"\xff\xff\xff\xff")
    with pytest.raises(BinlogError, match="above 4 GB"):
        dump_from_file("binlog.000017", 7001, 1 << 32)
