"""GTID positions of MariaDB: what a position includes, per domain."""

from __future__ import annotations

import pytest

from tailrace.producer.errors import BinlogError
from tailrace.producer.mariadb.gtid import GtidPosition, GtidState
from tailrace.producer.mariadb.offset import MariaDbOffset
from tailrace.producer.model.binlog_events import TransactionBegin, TransactionCommit
from tailrace.producer.mysql.offset import MySqlOffset


def begin(gtid: str) -> TransactionBegin:
    """Return the begin of a transaction."""
    return TransactionBegin(gtid, "binlog.000001", 4, 40, 1, 0, None, 1)


OFFSET = MariaDbOffset(2, "binlog.000007", 99, GtidPosition.parse("0-1-42,3-2-7"), "1-abc")


def test_position_includes_what_precedes_its_last_gtids() -> None:
    """Whatever server it comes from; another domain is not included."""
    included = ("0-1-42", "0-9-1", "3-1-7")
    assert all(OFFSET.contains(begin(gtid)) for gtid in included)
    assert not any(OFFSET.contains(begin(gtid)) for gtid in ("0-1-43", "3-2-8", "1-1-1"))


def test_position_moves_forward_only() -> None:
    """The last GTID of each domain counts, in whatever order they come."""
    moved = OFFSET.after(TransactionCommit("0-5-44", "binlog.000007", 120, 1), TransactionCommit("4-1-1", "b.8", 9, 1))
    assert str(moved.gtids) == "0-5-44,3-2-7,4-1-1"
    assert (moved.file, moved.pos) == ("b.8", 9)
    assert OFFSET.including("0-1-41") == OFFSET


def test_positions_compare_by_domain() -> None:
    """One that lacks a domain does not contain one that has it."""
    position, other = GtidPosition.parse("0-1-42,3-2-7"), GtidPosition.parse("0-2-50")
    assert not position.contains(other)
    assert not other.contains(position)
    assert position.union(other) == GtidPosition.parse("0-2-50,3-2-7")
    assert str(position.minus(other)) == "3-2-7"
    assert position.contains(GtidPosition.parse(""))


def test_state_tells_another_history() -> None:
    """A server that has another transaction in the place of one does not have it."""
    state = GtidState("0-1-41,0-2-45,3-2-7")
    assert state.contains(GtidPosition.parse("0-1-41"))
    assert state.contains(GtidPosition.parse("0-2-44,3-2-7"))
    assert not state.contains(GtidPosition.parse("0-1-42"))
    assert state.shares_server(GtidPosition.parse("0-7-1"))
    assert not state.shares_server(GtidPosition.parse("9-1-1"))


def test_stored_position() -> None:
    """It has a kind of its own, and is not one of MySQL."""
    body = OFFSET.to_json()
    assert body["kind"] == "mariadb"
    assert MariaDbOffset.from_json(body) == OFFSET
    with pytest.raises(ValueError, match="kind 'mariadb'"):
        MySqlOffset.from_json(body)
    with pytest.raises(ValueError, match="kind 'mysql'"):
        MariaDbOffset.from_json({**body, "kind": "mysql"})
    with pytest.raises(BinlogError, match=r"(?s)unknown form.*hint: capture MariaDB under another topic.prefix"):
        MariaDbOffset.from_json({**body, "gtids": "3e11fa47-71ca-11e1-9e33-c80aa9429562:1-5"})
