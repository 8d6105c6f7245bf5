"""Writes the changes of one rows event: all of them, or those that the splits of their table let through."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from tailrace.producer.kafka.transactional_producer import Headers
from tailrace.producer.model.codec import EventRows, KeyChange
from tailrace.producer.model.protocols import SortedKeys
from tailrace.producer.serialization.envelope.headers import NEW_KEY_HEADER, OLD_KEY_HEADER
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.tracked_table import EMIT, SKIP, ChangeDecision, Decision, TrackedTable
from tailrace.producer.streaming.transaction_metadata import AddBlock

_HOLD: Final = ChangeDecision.HOLD  # the class of an enumeration looks its members up slowly


class Destination(NamedTuple):
    """Where the records of a rows event go, and what is added to each."""

    topic: str
    headers: Headers
    add_block: AddBlock | None = None
    """Adds the transaction block to each envelope that is written, and to no other."""


RowDecision = tuple[Decision | None, Decision | None]
"""The decisions on the keys of a row before and after its change."""


class RowDecisions(NamedTuple):
    """What to do with the rows of an event."""

    of_rows: Sequence[RowDecision]
    shared: Decision | None
    """The decision on every key; None: they differ."""

    @property
    def skips_all(self) -> bool:
        return self.shared is SKIP


class ChangeRouter:
    """Decides per key and writes; used by the stream's thread."""

    def __init__(self, context: StreamContext) -> None:
        self._transaction = context.transaction
        self._registry = context.registry
        self._tombstones = context.settings.tombstones

    def emit(self, rows: EventRows, topic: str, headers: Headers) -> None:
        """Write all records; their transaction blocks, if any, are in the envelopes already."""
        records = rows.records
        if not _has_key_change(records):
            self._transaction.send_all(topic, records, headers)  # type: ignore[arg-type]
            return
        to = Destination(topic, headers)
        for record in records:
            if isinstance(record, KeyChange):
                self._write_key_change(record, to, old=EMIT, new=EMIT)
            else:
                self._transaction.send(topic, record[0], record[1], headers)

    def decide(self, keys: SortedKeys, table: TrackedTable) -> RowDecisions | None:
        """Return the decisions on the rows of an event; None: one of them is held, so all of them are."""
        offset, decide = self._transaction.offset, self._registry.decide
        transaction = offset.transaction
        assert transaction is not None, "a rows event outside a transaction"
        found: list[RowDecision] = []
        shared: Decision | None = None
        is_shared = bool(keys)
        for old, new in keys:
            before = after = None
            if new is not None:
                after = decide(table, new, transaction, offset)
            if old is not None:
                before = after if old == new else decide(table, old, transaction, offset)
            for decision in (before, after):
                if decision is None or decision == shared:
                    continue
                if decision[0] is _HOLD:
                    return None
                is_shared = is_shared and shared is None
                shared = decision
            found.append((before, after))
        return RowDecisions(found, shared if is_shared else None)

    def emit_through_splits(self, rows: EventRows, decisions: RowDecisions, to: Destination) -> int:
        """Write the records that the decisions let through; return the number of written records.

        ``rows`` need their keys only if the decisions differ.
        """
        transaction, shared = self._transaction, decisions.shared
        transaction.open()
        sent = transaction.records
        if shared is None:
            rows_of = decisions.of_rows
            self._write_each(zip(rows.records, [rows_of[row] for row in rows.row_index], strict=True), to)
        elif _has_key_change(rows.records):
            self._write_each(((record, (shared, shared)) for record in rows.records), to)
        else:
            self._write(rows.records, to, shared)  # type: ignore[arg-type]
        return transaction.records - sent

    def _write_each(
        self, decided: Iterable[tuple[tuple[bytes, bytes | None] | KeyChange, RowDecision]], to: Destination
    ) -> None:
        for record, (old, new) in decided:
            if isinstance(record, KeyChange):
                assert old is not None
                assert new is not None
                self._write_key_change(record, to, old=old, new=new)
            else:
                decision = old if new is None else new
                assert decision is not None
                self._write([record], to, decision)

    def _write_key_change(self, change: KeyChange, to: Destination, *, old: Decision, new: Decision) -> None:
        """Write a changed key: delete and tombstone by the old key's split, insert by the new key's split."""
        deleted = to._replace(headers=[(NEW_KEY_HEADER, change.new_key_header), *to.headers])
        self._write([(change.old_key, change.delete)], deleted, old)
        if self._tombstones:
            self._write([(change.old_key, None)], deleted, old)
        created = to._replace(headers=[(OLD_KEY_HEADER, change.old_key_header), *to.headers])
        self._write([(change.new_key, change.create)], created, new)

    def _write(self, records: Sequence[tuple[bytes, bytes | None]], to: Destination, decision: Decision) -> None:
        headers = to.headers
        if decision is SKIP:
            return
        split = decision[1]
        if split is not None:  # its backfill: a held change is not written
            headers = [split.header, *headers]
            values = sum(value is not None for _, value in records)
            if values:
                self._registry.count_backfill(split, values)
        if to.add_block is not None:
            add_block = to.add_block
            records = [(key, None if value is None else add_block(value)) for key, value in records]
        self._transaction.send_all(to.topic, records, headers)


def _has_key_change(records: Sequence[object]) -> bool:
    """Return whether a record is a changed key; records of the extension are in one buffer, without any."""
    return isinstance(records, list) and KeyChange in map(type, records)
