"""Writes the changes of one rows event: all of them, or those that the splits of their table let through."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.codec import EventRows, KeyChange, KeyTuple
from tailrace.producer.model.protocols import KeyOrdering
from tailrace.producer.model.split import SortKey
from tailrace.producer.serialization.envelope.headers import NEW_KEY_HEADER, OLD_KEY_HEADER
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.snapshot_coordinator import SnapshotCoordinator
from tailrace.producer.streaming.split_registry import ChangeDecision
from tailrace.producer.streaming.tracked_table import TrackedSplit, TrackedTable
from tailrace.producer.streaming.transaction_metadata import AddBlock
from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER

Decision = tuple[ChangeDecision, TrackedSplit | None]
_EMIT: Decision = (ChangeDecision.EMIT, None)


class Destination(NamedTuple):
    """Where the records of a rows event go, and what is added to each."""

    topic: str
    headers: Headers
    add_block: AddBlock | None = None
    """Adds the transaction block to each envelope that is written, and to no other."""


class ChangeRouter:
    """Decides per key and writes; used by the stream's thread."""

    def __init__(self, context: StreamContext, coordinator: SnapshotCoordinator) -> None:
        self._transaction = context.transaction
        self._registry = context.registry
        self._tombstones = context.settings.tombstones
        self._coordinator = coordinator

    def emit(self, rows: EventRows, topic: str, headers: Headers) -> None:
        """Write all records; their transaction blocks, if any, are in the envelopes already."""
        records = rows.records
        if not _has_key_change(records):
            self._transaction.send_all(topic, records, headers)  # type: ignore[arg-type]
            return
        to = Destination(topic, headers)
        for record in records:
            if isinstance(record, KeyChange):
                self._write_key_change(record, to, old=_EMIT, new=_EMIT)
            else:
                self._transaction.send(topic, record[0], record[1], headers)

    def emit_through_splits(self, rows: EventRows, table: TrackedTable, to: Destination) -> int:
        """Write the records that the splits of their keys let through; return the number of written records.

        One held key holds the whole event: all keys are decided before anything is written.
        """
        assert table.order is not None, f"{table.id} has no key order"
        before, after = _sort_keys(rows.keys, table.order)
        while True:
            olds = [self._decide(table, key) for key in before]
            news = [self._decide(table, key) for key in after]
            if not any(d is not None and d[0] is ChangeDecision.HOLD for d in (*olds, *news)):
                break
            self._coordinator.wait()
        transaction = self._transaction
        transaction.open()
        sent = transaction.records
        decisions = [old if new is None else new for old, new in zip(olds, news, strict=True)]
        distinct = set(decisions)
        if len(distinct) == 1 and not _has_key_change(rows.records):
            decision = distinct.pop()
            assert decision is not None
            self._write(rows.records, to, decision, values=len(set(rows.row_index)))  # type: ignore[arg-type]
            return transaction.records - sent
        for record, row in zip(rows.records, rows.row_index, strict=True):
            if isinstance(record, KeyChange):
                old, new = olds[row], news[row]
                assert old is not None
                assert new is not None
                self._write_key_change(record, to, old=old, new=new)
            else:
                decision = decisions[row]
                assert decision is not None
                self._write_one(record, to, decision)
        return transaction.records - sent

    def _decide(self, table: TrackedTable, key: SortKey | None) -> Decision | None:
        if key is None:
            return None
        offset = self._transaction.offset
        assert offset.transaction is not None, "a rows event outside a transaction"
        return self._registry.decide(table, key, offset.transaction, offset.position)

    def _write_key_change(self, change: KeyChange, to: Destination, *, old: Decision, new: Decision) -> None:
        """Write a changed key: delete and tombstone by the old key's split, insert by the new key's split."""
        deleted = to._replace(headers=[(NEW_KEY_HEADER, change.new_key_header), *to.headers])
        self._write_one((change.old_key, change.delete), deleted, old)
        if self._tombstones:
            self._write_one((change.old_key, None), deleted, old)
        created = to._replace(headers=[(OLD_KEY_HEADER, change.old_key_header), *to.headers])
        self._write_one((change.new_key, change.create), created, new)

    def _write_one(self, record: tuple[bytes, bytes | None], to: Destination, decision: Decision) -> None:
        self._write([record], to, decision, values=0 if record[1] is None else 1)

    def _write(
        self, records: Sequence[tuple[bytes, bytes | None]], to: Destination, decision: Decision, *, values: int
    ) -> None:
        """Write records with one decision; ``values`` of them are no tombstones."""
        headers = to.headers
        action, split = decision
        if action is ChangeDecision.SKIP:
            return
        if action is ChangeDecision.BACKFILL:
            assert split is not None
            header = INCREMENTAL_HEADER if split.split.incremental else SPLIT_HEADER
            headers = [(header, split.split.id.encode()), *headers]
            if values:
                self._registry.count_backfill(split, values)
        if to.add_block is not None:
            add_block = to.add_block
            records = [(key, None if value is None else add_block(value)) for key, value in records]
        self._transaction.send_all(to.topic, records, headers)


def _has_key_change(records: Sequence[object]) -> bool:
    """Return whether a record is a changed key; records of the extension are in one buffer, without any."""
    return isinstance(records, list) and KeyChange in map(type, records)


def _sort_keys(
    keys: Sequence[tuple[KeyTuple | None, KeyTuple | None]], order: KeyOrdering
) -> tuple[list[SortKey | None], list[SortKey | None]]:
    """Return the sort keys before and after; both in one request to the server."""
    flat = [key for pair in keys for key in pair if key is not None]
    found = iter(order.sort_keys(flat))
    before: list[SortKey | None] = []
    after: list[SortKey | None] = []
    for old, new in keys:
        before.append(None if old is None else next(found))
        after.append(None if new is None else next(found))
    return before, after
