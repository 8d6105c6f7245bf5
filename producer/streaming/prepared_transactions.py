"""Prepared XA transactions in the state: those whose XA COMMIT or XA ROLLBACK was not read yet.

A restart needs them: their rows precede the stored offset, but are written when they are committed.
"""

from __future__ import annotations

from collections.abc import Iterable

from tailrace.producer.kafka.state_store import prepared_key, prepared_to_json
from tailrace.producer.model.binlog_events import PreparedTransactionEnded, TransactionPrepared
from tailrace.producer.streaming.stream_transaction import StreamTransaction


class PreparedTransactions:
    """Follows prepared transactions; used by the stream's thread.

    Changes are written with the offset behind them, at the next commit: most transactions end before that.
    """

    def __init__(
        self, transaction: StreamTransaction, stored: Iterable[TransactionPrepared], *, settings: str = ""
    ) -> None:
        """``settings``: fingerprint of the configuration."""
        self._transaction = transaction
        self._settings = settings
        self._stored = {prepared.xid for prepared in stored}
        self._changed: dict[str, TransactionPrepared | None] = {}
        transaction.before_commit.append(self._write)

    def on_prepared(self, event: TransactionPrepared) -> None:
        """A transaction was prepared."""
        self._changed[event.xid] = event

    def on_ended(self, event: PreparedTransactionEnded) -> None:
        """A prepared transaction was committed or rolled back."""
        self._changed[event.xid] = None

    def _write(self) -> None:
        for xid, prepared in self._changed.items():
            if prepared is not None:
                self._transaction.store(prepared_key(xid), prepared_to_json(prepared._replace(settings=self._settings)))
                self._stored.add(xid)
            elif xid in self._stored:
                self._transaction.store(prepared_key(xid), None)
                self._stored.discard(xid)
        self._changed.clear()
