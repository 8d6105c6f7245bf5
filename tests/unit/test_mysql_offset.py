"""Offsets of a MySQL source: their order, their transactions, and the form that watermark and state records have."""

from __future__ import annotations

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import PositionAdvanced, TransactionBegin, TransactionCommit
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.schemas.sequence import file_number
from tailrace.schemas.watermark import read_position

SERVER = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
AT = MySqlOffset(2, "binlog.999999", 500, GtidSet({SERVER: [(1, 7)]}), SERVER)


def transaction(number: int) -> TransactionBegin:
    return TransactionBegin(f"{SERVER}:{number}", "binlog.1000000", 4, 90, 0, 0, None, 1)


def test_coordinates_order_offsets() -> None:
    later = AT._replace(pos=501)
    next_file = AT._replace(file="binlog.1000000", pos=4)

    assert AT.before(later)
    assert later.before(next_file)
    assert not AT.before(AT)
    assert not next_file.before(AT)


@pytest.mark.parametrize("end", [499, 500, 501])
@pytest.mark.parametrize("file", ["binlog.999998", "binlog.999999", "binlog.1000000"])
def test_an_offset_is_reached_as_the_end_of_the_transaction_says(file: str, end: int) -> None:
    commit = TransactionCommit(f"{SERVER}:8", file, end, 0)

    assert AT.reached_by(commit) is not AT.after(commit).before(AT)


def test_gtid_set_says_which_transactions_an_offset_contains() -> None:
    assert AT.contains(transaction(7))
    assert not AT.contains(transaction(8))
    assert AT.including(f"{SERVER}:8").contains(transaction(8))


def test_offset_follows_the_stream() -> None:
    begun = AT.at_begin(transaction(8))
    done = begun.after(TransactionCommit(f"{SERVER}:8", "binlog.1000000", 300, 0))

    assert (begun.file, begun.pos, begun.gtids) == ("binlog.1000000", 4, AT.gtids)
    assert (done.pos, str(done.gtids)) == (300, f"{SERVER}:1-8")
    assert done.advanced_to(PositionAdvanced("binlog.1000001", 4, 0)) == done._replace(file="binlog.1000001", pos=4)


def test_position_states_its_kind() -> None:
    body = AT.to_json()

    assert body == {
        "kind": "mysql",
        "epoch": 2,
        "file": "binlog.999999",
        "pos": 500,
        "gtids": f"{SERVER}:1-7",
        "server_uuid": SERVER,
    }
    assert MySqlOffset.from_json(body) == AT
    with pytest.raises(ValueError, match="'postgresql'"):
        read_position({**body, "kind": "postgresql"})


def test_file_names_order_by_their_number() -> None:
    assert file_number("binlog.999999") < file_number("binlog.1000000")
    assert file_number("") == 0
    with pytest.raises(BinlogError, match="numeric suffix"):
        AT.before(AT._replace(file="binlog.index"))
