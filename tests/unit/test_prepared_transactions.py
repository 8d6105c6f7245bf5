"""Prepared transactions in the state: written with the offset behind them, and removed at their end."""

from __future__ import annotations

from tailrace.producer.app.startup import leave_binlog
from tailrace.producer.kafka.state_store import OFFSET_KEY, State, StoredOffset, decode, prepared_key
from tailrace.producer.model.binlog_events import (
    PreparedTransactionEnded,
    TransactionBegin,
    TransactionCommit,
    TransactionPrepared,
)
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.streaming.stream_transaction import PreparedTransactions, StreamTransaction
from tests.support.stream import FILE, SERVER, START, FakeProducer, stream_transaction


def prepared(number: int) -> TransactionPrepared:
    """Return a prepared transaction."""
    xid, gtid = f"X'{number:02x}',X'',1", f"{SERVER}:{number}"
    return TransactionPrepared(xid, gtid, FILE, 100 * number, True, 200 * number, (("db", "t"),), "configured")


def ended(number: int) -> PreparedTransactionEnded:
    """Return its end."""
    return PreparedTransactionEnded(prepared(number).xid, True, FILE, 900, 950, 1, 1)


def read_transaction(transaction: StreamTransaction, number: int) -> None:
    """Read a transaction without rows, so that the offset moves."""
    begin = TransactionBegin(f"{SERVER}:{number}", FILE, 100 * number, 110 * number, 1, 1, 1, 1)
    transaction.offset.begin(begin)
    transaction.offset.commit(TransactionCommit(begin.gtid, FILE, 200 * number, 1))


def test_state_has_what_is_prepared_at_each_offset() -> None:
    """A transaction that ends before the next commit needs no record."""
    producer = FakeProducer()
    transaction = stream_transaction(producer)
    followed = PreparedTransactions(transaction, [prepared(1)], settings="configured")
    followed.on_prepared(prepared(2))
    followed.on_prepared(prepared(3))
    followed.on_ended(ended(3))
    read_transaction(transaction, 3)
    assert producer.open == [], "nothing is written before the offset"
    transaction.commit()
    followed.on_ended(ended(1))
    followed.on_ended(ended(2))
    read_transaction(transaction, 4)
    transaction.commit()

    first, second = ({key: value for _, key, value in sent} for sent in producer.committed)
    assert first.keys() == {prepared_key(prepared(2).xid), OFFSET_KEY}
    assert decode({k: v for k, v in first.items() if k and v}, MySqlOffset.from_json).prepared == {
        prepared(2).xid: prepared(2)
    }
    assert {key for key, value in second.items() if value is None} == {
        prepared_key(prepared(1).xid),
        prepared_key(prepared(2).xid),
    }


def test_lost_binlog_leaves_no_prepared_transaction() -> None:
    """Its end may have been in the binlog that is lost."""
    producer = FakeProducer()
    state = State(StoredOffset(START), prepared={prepared(1).xid: prepared(1)})

    leave_binlog(stream_transaction(producer), state, captured=[], topic_of=str, reads=True)

    assert state.prepared == {}
    assert (prepared_key(prepared(1).xid), None) in [(key, value) for _, key, value in producer.open]
