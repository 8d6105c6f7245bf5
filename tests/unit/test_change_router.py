"""Changes of a table under snapshot: each record is written as the split of its key says, alone or with others."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any, cast

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.codec import EventRows, KeyChange
from tailrace.producer.model.split import Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.streaming.change_router import ChangeRouter, Destination
from tailrace.producer.streaming.tracked_table import EMIT, SKIP, ChangeDecision, Decision, TrackedSplit, TrackedTable
from tailrace.schemas.names import SPLIT_HEADER
from tests.support.stream import FILE, SERVER, FakeProducer, stream_transaction

TABLE = TableId("db", "t")
HEADERS: list[tuple[str, str | bytes | None]] = [("h", b"v")]
SPLITS = [TrackedSplit(Split(TABLE, "s", n, Range((n,), (n + 1,)), (n,), (n + 1,)), f"db.t:s:{n}") for n in range(2)]
DECISIONS: list[Decision] = [
    EMIT,
    SKIP,
    *((ChangeDecision.BACKFILL, split) for split in SPLITS),
]


class Registry:
    """Decides by the key, which is an index of ``DECISIONS``; counts what is written as backfill."""

    def __init__(self) -> None:
        self.counts: dict[str, int] = {}

    def decide(self, _table: object, key: tuple[int, ...], *_: object) -> Decision:
        """Return the decision for a key."""
        return DECISIONS[key[0]]

    def count_backfill(self, split: TrackedSplit, records: int = 1) -> None:
        """Count."""
        self.counts[split.id] = self.counts.get(split.id, 0) + records


class Producer(FakeProducer):
    """Keeps the headers too."""

    def send(self, topic: str, key: bytes | None, value: bytes | None, *headers: Any, partition: int = -1) -> None:
        """Keep a record with its headers in the place of the topic."""
        super().send(repr((topic, headers[0])), key, value, partition=partition)

    def send_all(self, topic: str, records: Any, headers: Any) -> None:
        """Keep many records."""
        for key, value in records:
            self.send(topic, key, value, headers)


def random_rows(choose: random.Random) -> EventRows:
    """Return an event of up to four rows: inserts, deletes with tombstones or changed keys; often with one decision."""
    alike = choose.random() < 0.5
    one = choose.randrange(len(DECISIONS))
    kind = choose.choice(("insert", "delete", "key change"))
    records: list[Any] = []
    index: list[int] = []
    keys: list[Any] = []
    for row in range(choose.randint(0, 4)):
        key = (one if alike else choose.randrange(len(DECISIONS)),)
        name = b"%d" % row
        if kind == "key change" and choose.random() < 0.5:
            records.append(KeyChange(b"old" + name, b"new" + name, b"d" + name, b"c" + name, b"nk", b"ok"))
            index.append(row)
            keys.append((key, (choose.randrange(len(DECISIONS)),)))
            continue
        records.append((name, b"value" + name))
        index.append(row)
        if kind == "delete":
            records.append((name, None))
            index.append(row)
        keys.append((key, None) if kind == "delete" else (None, key))
    return EventRows(records, index, keys, len(keys))


def reference(rows: EventRows, add_block: Any) -> tuple[list[tuple[Any, ...]], dict[str, int]]:
    """Return the records that must be written and the backfill counts: record by record."""
    written: list[tuple[Any, ...]] = []
    counts: dict[str, int] = {}

    def write(key: bytes, value: bytes | None, decision: Decision, extra: list[Any]) -> None:
        action, split = decision
        if action is ChangeDecision.SKIP:
            return
        headers = [*extra, *HEADERS]
        if split is not None:
            headers = [(SPLIT_HEADER, split.id.encode()), *headers]
            if value is not None:
                counts[split.id] = counts.get(split.id, 0) + 1
        if value is not None and add_block is not None:
            value = add_block(value)
        written.append((repr(("topic", headers)), key, value))

    for record, row in zip(rows.records, rows.row_index, strict=True):
        old, new = rows.keys[row]
        if isinstance(record, KeyChange):
            assert old is not None
            assert new is not None
            before, after = DECISIONS[int(str(old[0]))], DECISIONS[int(str(new[0]))]
            write(record.old_key, record.delete, before, [("__debezium.newkey", record.new_key_header)])
            write(record.old_key, None, before, [("__debezium.newkey", record.new_key_header)])
            write(record.new_key, record.create, after, [("__debezium.oldkey", record.old_key_header)])
        else:
            key = new if new is not None else old
            assert key is not None
            write(record[0], record[1], DECISIONS[int(str(key[0]))], [])
    return written, counts


def test_records_are_written_as_one_by_one() -> None:
    """Several rows of an event may have one decision, and then go out together."""
    together = 0
    for number in range(500):
        choose = random.Random(number)
        rows = random_rows(choose)
        keys = rows.keys
        add_block = choose.choice((None, lambda value: value + b" in a transaction"))
        expected, counts = reference(rows, add_block)
        producer, registry = Producer(), Registry()
        transaction = stream_transaction(producer)
        transaction.offset.begin(TransactionBegin(f"{SERVER}:5", FILE, 100, 180, 7, 0, 1, 1))
        context = SimpleNamespace(transaction=transaction, registry=registry, settings=SimpleNamespace(tombstones=True))
        router = ChangeRouter(cast("Any", context))
        table = TrackedTable(TABLE, TableMode.SNAPSHOT)

        decisions = router.decide(rows.keys, table)
        assert decisions is not None
        if decisions.shared is not None and choose.random() < 0.5:
            rows = rows._replace(row_index=(), keys=())  # as they are encoded once the decision is known
        written = router.emit_through_splits(rows, decisions, Destination("topic", HEADERS, add_block))

        assert (producer.open, registry.counts, written) == (expected, counts, len(expected)), f"event {number}"
        together += len(expected) > 1 and len({key for pair in keys for key in pair if key is not None}) == 1
    assert together > 50
