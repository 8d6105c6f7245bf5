"""Offsets of a MySQL source: their order, their transactions, and the form that watermark and state records have."""

from __future__ import annotations

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import (
    PositionAdvanced,
    TransactionBegin,
    TransactionCommit,
    anonymous_name,
    begin_of,
    gtid_of,
)
from tailrace.producer.mysql.file_offset import FileOffset
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


# -- without GTIDs ---------------------------------------------------------------------------------------------------

POSITION = FileOffset.at(2, "binlog.999999", 500, SERVER)


@pytest.mark.parametrize(
    ("file", "pos", "contained"),
    [("binlog.999999", 400, True), ("binlog.999999", 500, False), ("binlog.1000000", 4, False)],
)
def test_a_position_contains_what_begins_before_it(file: str, pos: int, contained: bool) -> None:
    begin = TransactionBegin(anonymous_name(file, pos + 70), file, pos, pos + 140, 0, 0, None, 1)

    assert POSITION.contains(begin) is contained
    assert POSITION.including(begin.gtid).contains(begin)
    assert (POSITION.including(begin.gtid) == POSITION) is contained
    assert POSITION.at_begin(begin).coordinates == (int(file.rpartition(".")[2]), pos)


def test_a_position_moves_to_the_end_of_a_transaction() -> None:
    later = POSITION.after(TransactionCommit(anonymous_name("binlog.1000000", 74), "binlog.1000000", 300, 0))

    assert later == FileOffset.at(2, "binlog.1000000", 300, SERVER)
    assert isinstance(later, FileOffset)
    assert isinstance(later.advanced_to(PositionAdvanced("binlog.1000000", 400, 0)), FileOffset)
    assert later.including(f"{SERVER}:8").coordinates == (1_000_000, 301)


def test_both_forms_are_distinguished() -> None:
    assert FileOffset.from_json(POSITION.to_json()) == POSITION
    assert POSITION.to_json()["gtids"] is None
    with pytest.raises(ValueError, match="without GTIDs"):
        MySqlOffset.from_json(POSITION.to_json())
    with pytest.raises(ValueError, match="with GTIDs"):
        FileOffset.from_json(AT.to_json())


def test_names_are_no_gtids() -> None:
    name = anonymous_name("a,pos=b.000001", 74)

    assert (gtid_of(name), begin_of(name)) == (None, ("a,pos=b.000001", 74))
    assert (gtid_of(f"{SERVER}:1"), begin_of(f"{SERVER}:1")) == (f"{SERVER}:1", None)
    assert gtid_of("") is None
