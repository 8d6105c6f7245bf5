"""What the extension decides and emits while tables are under snapshot is what the handlers do, on a real broker."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

import pytest

from tailrace.producer.kafka import native_sender
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import Event
from tailrace.producer.model.split import KeyColumn, Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.mysql.offset import MySqlOffset
from tests.support.emitter_sides import COLUMNS, DEFINITIONS, FORMS, Side, batches
from tests.support.stream import SERVER, START

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

pytestmark = pytest.mark.skipif(
    bool(native_sender.unused_because()), reason=f"the extension sends nothing: {native_sender.unused_because()}"
)

T = TypeVar("T")

SEED: Final = 20_261_125
GREATEST: Final = 80
BOUNDS: Final = (None, 3, 10, 25, 26, 40, 41, 60, GREATEST)
INITIAL: Final = DEFINITIONS["first"].id
INCREMENTAL: Final = DEFINITIONS["second"].id


def _splits(table: TableId) -> list[Split]:
    """Cut the keys up to the greatest one."""
    found = []
    for number, (lower, upper) in enumerate(pairwise(BOUNDS)):
        low, high = None if lower is None else (lower,), (upper,)
        span = Range(low, high, closed=upper == GREATEST)
        found.append(Split(table, "s", number, span, low, high, incremental=table == INCREMENTAL))
    return found


class SnapshotSide(Side):
    """One table under initial, one under incremental snapshot; splits open and are read as random numbers say."""

    waiting: ClassVar = frozenset({"first", "waiting"})

    def __init__(self, broker: KafkaBroker, prefix: str, form: Any, *, native: bool, seed: int) -> None:
        super().__init__(broker, prefix, form, native=native, stored=StoredOffset(START), max_records=100)
        self._pick = random.Random(seed)
        self.decided: Counter[str] = Counter()
        order = KeyOrder([KeyColumn(COLUMNS[0], is_integer=True)], lambda sql: (sql,))
        registry = self.registry
        registry.start_planning(INITIAL)
        registry.set_range(INITIAL, (GREATEST,))
        registry.start_incremental(INCREMENTAL)
        for table in (INITIAL, INCREMENTAL):
            registry.tables[table].compare_by(order)
        self._unread = {table: _splits(table) for table in (INITIAL, INCREMENTAL)}
        self._reading: list[Split] = []
        above = Split(INITIAL, "s", -1, Range((GREATEST,), None, lower_open=True), (GREATEST,), None)
        registry.open(above)
        self._commit(above)
        decide = registry.decide

        def counted(*arguments: Any) -> Any:
            decision = decide(*arguments)
            self.decided[decision[0].value] += 1
            return decision

        registry.decide = counted  # type: ignore[method-assign, assignment]

    def _commit(self, split: Split) -> None:
        """Let the rows of a split be in Kafka: the SELECT has seen some more, and the binlog has grown on."""
        pick, low = self._pick, self.transaction.offset.barrier()
        assert isinstance(low, MySqlOffset)
        number = 1
        while low.gtids.has(f"{SERVER}:{number}"):
            number += 1
        for more in range(pick.choice((0, 0, 1, 5))):
            low = low._replace(gtids=low.gtids.with_gtid(f"{SERVER}:{number + more}"))
        high = low._replace(pos=low.pos + pick.choice((0, 200, 1000, 5000)))
        self.registry.commit(split, low, high, rows=1)
        table = split.table
        if not self._unread[table] and all(other.table != table for other in self._reading):
            self.registry.mark_all_read(table)

    def step(self) -> None:
        """Open a split, or end reading one."""
        for _ in range(self._pick.choice((0, 0, 0, 1))):
            left = [table for table, splits in self._unread.items() if splits]
            if self._reading and (self._pick.randrange(2) or not left):
                self._commit(self._reading.pop(0))
            elif left:
                splits = self._unread[self._pick.choice(left)]
                split = splits.pop(self._pick.randrange(len(splits)))
                self.registry.open(split)
                self._reading.append(split)

    # -- the coordinator ----------------------------------------------------------------------------------------------

    def wait_for(self, ready: Callable[[], T | None], _table: TableId) -> T:
        """Readers commit their splits."""
        while not (decided := ready()):
            self._commit(self._reading.pop(0))
        return decided

    def end_splits(self) -> None:
        """Write a record to its table and to a table that is streamed, for each split that ends."""
        registry = self.registry
        for ending in registry.end_passed(self.transaction.offset.position):
            split = ending.split
            for name in ("skipping", split.split.table.table):
                self.transaction.send(f"{self.prefix}.{name}", b"END", f"{split.id} {split.backfill}".encode())
        for table in registry.finished_tables():
            registry.finish_table(table)
            self.transaction.send(f"{self.prefix}.{table.table}", b"FINISHED", None)
        if self.transaction.full:  # else the emitter finds that before the next event, a handler after it
            self.transaction.commit()

    # -----------------------------------------------------------------------------------------------------------------

    def read(self, batch: Sequence[Event]) -> StoredOffset:
        """Read a batch as the loop of a reader does."""
        found = super().read(batch)
        self.end_splits()
        return found


@pytest.mark.parametrize("form", FORMS, ids=["json", "json-schema", "avro"])
def test_both_decide_the_same(kafka_broker: KafkaBroker, prefix: str, form: Any) -> None:
    """Records with the ENDs between them, offsets, commits and counts, until both snapshots are complete."""
    decided: Counter[str] = Counter()
    for seed in range(SEED, SEED + 3):
        sides = [
            SnapshotSide(kafka_broker, f"{prefix}-{seed}", form, native=native, seed=seed) for native in (True, False)
        ]
        native, python = sides
        try:
            for batch in batches(random.Random(seed), 600, (1, 7, 40)):
                for side in sides:
                    side.step()
                assert native.read(batch) == python.read(batch)
                assert native.registry.waiting_for_end == python.registry.waiting_for_end
            assert native.commits == python.commits
            assert native.counts() == python.counts()
            written = native.records()
            assert written == python.records()
            for table in (INITIAL, INCREMENTAL):
                assert native.registry.tables[table].mode is TableMode.STREAMING
                keys = [key for key, *_ in written[f".{table.table}"]]
                assert keys.count(b"FINISHED") == 1
                assert keys.count(b"END") == len(BOUNDS) - (table != INITIAL)
            assert native.decided.total() < python.decided.total() * 0.8
            decided += python.decided
        finally:
            for side in sides:
                side.producer.close()
    assert min(decided[decision] for decision in ("skip", "hold", "emit", "backfill")) > 20
