"""Requests of the binlog: what the driver sends is byte for byte what mysql-replication sends."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pymysql.connections import Connection
from pymysqlreplication import BinLogStreamReader

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


def test_a_request_of_a_file_is_that_of_the_library() -> None:
    of_the_library = request_of_the_library(log_file="binlog.000017", log_pos=4, resume_stream=True)
    assert sent_by_the_driver(dump_from_file("binlog.000017", 7001)) == of_the_library
