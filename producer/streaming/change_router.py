"""Router: decides for the rows of one event what becomes of each, while their table is under snapshot."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from tailrace.producer.kafka.transactional_producer import Headers, TransactionalProducer
from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.codec import EventRows, KeyChange, KeyTuple
from tailrace.producer.model.protocols import Offset
from tailrace.producer.mysql.key_order import KeyOrder, SortKey
from tailrace.producer.serialization.envelope.headers import NEW_KEY_HEADER, OLD_KEY_HEADER
from tailrace.producer.snapshot.split_registry import (
    ChangeDecision,
    SplitRegistry,
    TrackedSplit,
    TrackedTable,
)
from tailrace.producer.streaming.transaction_metadata import Number
from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER

Judgement = tuple[ChangeDecision, TrackedSplit | None]


class ChangeRouter:
    """Judges keys and writes what the verdicts let through."""

    def __init__(self, registry: SplitRegistry, publisher: TransactionalProducer, *, tombstones: bool) -> None:
        self._registry = registry
        self._publisher = publisher
        self._tombstones = tombstones

    def route(
        self,
        rows: EventRows,
        table: TrackedTable,
        order: KeyOrder,
        *,
        topic: str,
        headers: Headers,
        transaction: TransactionBegin,
        begin: Offset,
        wait: Callable[[], None],
        number: Number | None = None,
    ) -> int:
        """Write the event's records as their keys' splits demand; return how many were written.

        ``wait`` blocks until some split moved on, and may commit what was written before. ``number`` is put to each
        envelope that is written, and to no other.

        All keys are decided on before anything is written: a held key holds the whole event.
        """
        before, after = _placed(rows.keys, order)
        while True:
            olds = [None if k is None else self._registry.decide(table, k, transaction, begin) for k in before]
            news = [None if k is None else self._registry.decide(table, k, transaction, begin) for k in after]
            if not any(j is not None and j[0] is ChangeDecision.HOLD for j in (*olds, *news)):
                break
            wait()
        sent = self._publisher.sent
        for record, owner in zip(rows.records, rows.row_index, strict=True):
            old, new = olds[owner], news[owner]
            if isinstance(record, KeyChange):
                assert old is not None
                assert new is not None
                self.write_key_change(topic, record, headers, old=old, new=new, number=number)
            else:
                judged = new if new is not None else old
                assert judged is not None
                self._write(topic, record, headers, judged, number)
        return self._publisher.sent - sent

    def write_key_change(
        self,
        topic: str,
        change: KeyChange,
        headers: Headers,
        *,
        old: Judgement,
        new: Judgement,
        number: Number | None = None,
    ) -> None:
        """Write a changed key: delete and tombstone by the old key's split, insert by the new key's."""
        gone: Headers = [(NEW_KEY_HEADER, change.new_key_header), *headers]
        self._write(topic, (change.old_key, change.delete), gone, old, number)
        if self._tombstones:
            self._write(topic, (change.old_key, None), gone, old, None)
        came: Headers = [(OLD_KEY_HEADER, change.old_key_header), *headers]
        self._write(topic, (change.new_key, change.create), came, new, number)

    def _write(
        self,
        topic: str,
        record: tuple[bytes, bytes | None],
        headers: Headers,
        judged: Judgement,
        number: Number | None,
    ) -> None:
        key, value = record
        verdict, split = judged
        if verdict is ChangeDecision.DROP:
            return
        if verdict is ChangeDecision.BACKFILL:
            assert split is not None
            headers = [
                (INCREMENTAL_HEADER if split.split.incremental else SPLIT_HEADER, split.split.id.encode()),
                *headers,
            ]
            if value is not None:
                split.backfill += 1
        if number is not None and value is not None:
            value = number(value)
        self._publisher.send(topic, key, value, headers)


def _placed(
    keys: Sequence[tuple[KeyTuple | None, KeyTuple | None]], order: KeyOrder
) -> tuple[list[SortKey | None], list[SortKey | None]]:
    """Return the order of the keys before and after; both in one question to the server."""
    flat = [key for pair in keys for key in pair if key is not None]
    placed = iter(order.place(flat))
    before: list[SortKey | None] = []
    after: list[SortKey | None] = []
    for old, new in keys:
        before.append(None if old is None else next(placed))
        after.append(None if new is None else next(placed))
    return before, after
