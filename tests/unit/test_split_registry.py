"""The one-pass rules against a slow, simple reference: random writers, delayed visibility, readers, crashes."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, NamedTuple

import pytest

from tailrace.producer.model.binlog_events import PositionAdvanced, QueryEvent, TransactionBegin, TransactionCommit
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import EndedRange, KeyColumn, Range, SortKey, Split
from tailrace.producer.model.table import Column, TableId
from tailrace.producer.model.table_mode import IllegalTransitionError, TableMode
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.key_order import KeyOrder
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.native import loader
from tailrace.producer.streaming.change_emitter import DECLINED, SKIPPED, WRITTEN, cover_of
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.tracked_table import WITH_SPLITS, ChangeDecision, TrackedSplit, TrackedTable

TABLE = TableId("db", "t")
SOURCE = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
FILE = "binlog.000001"
RUNS = 1500
CODES = {
    ChangeDecision.EMIT: WRITTEN,
    ChangeDecision.SKIP: SKIPPED,
    ChangeDecision.HOLD: DECLINED,
    ChangeDecision.BACKFILL: DECLINED,
}


Written = tuple[str, int, int | None, int | None]
"""What the capture wrote: (r, b, e or END; split number, for e the binlog's index; key; value, for END the count)."""


@dataclass
class Change:
    """One logged transaction that changes one key; ``after`` None deletes."""

    key: int
    after: int | None


@dataclass
class Server:
    """A source whose binlog is ahead of what a SELECT sees."""

    start: dict[int, int]
    binlog: list[Change] = field(default_factory=list)
    visible: int = 0

    def rows(self, upto: int) -> dict[int, int]:
        rows = dict(self.start)
        for change in self.binlog[:upto]:
            if change.after is None:
                rows.pop(change.key, None)
            else:
                rows[change.key] = change.after
        return rows


@dataclass
class Reading:
    """A split being read."""

    split: Split
    barrier: int
    low: int | None = None
    rows: dict[int, int] | None = None
    high: int | None = None


@dataclass
class Planning:
    """The greatest key being read, as a split without rows above it."""

    barrier: int
    low: int | None = None
    keys: list[int] | None = None


class CountingOffset(NamedTuple):
    """The offset of a source that numbers its transactions: the split rules need no more than that."""

    number: int
    epoch: int = 1

    def contains(self, transaction: TransactionBegin) -> bool:
        return transaction.pos < self.number

    def before(self, other: CountingOffset) -> bool:
        return self.number < other.number

    def reached_by(self, event: TransactionCommit | QueryEvent) -> bool:
        return event.end >= self.number

    def reaches(self, target: CountingOffset) -> bool:
        return self.number >= target.number

    def same_server(self, _other: CountingOffset) -> bool:
        return True

    def to_json(self) -> dict[str, Any]:
        return {"kind": "counting", "number": self.number}

    def at_begin(self, transaction: TransactionBegin) -> CountingOffset:
        return CountingOffset(transaction.pos)

    def after(self, *events: TransactionCommit | QueryEvent) -> CountingOffset:
        return CountingOffset(events[-1].end)

    def advanced_to(self, event: PositionAdvanced) -> CountingOffset:
        return CountingOffset(event.end)

    def including(self, _transaction_id: str) -> CountingOffset:
        return self


class StreamAt(NamedTuple):
    """The stream in a transaction that begins here."""

    position: Offset


def low_mark(count: int) -> Offset:
    """Return the LW of a SELECT that sees the first ``count`` transactions; its coordinates claim nothing."""
    return MySqlOffset(1, FILE, 0, GtidSet({SOURCE: [(1, count)]} if count else {}), SOURCE)


def high_mark(count: int) -> Offset:
    """Transaction n (from 0) begins at offset n, so a binlog of n transactions ends at n."""
    return MySqlOffset(1, FILE, count, GtidSet({}), SOURCE)


def transaction(number: int) -> TransactionBegin:
    """Return transaction n (from 0)."""
    return TransactionBegin(f"{SOURCE}:{number + 1}", FILE, number, number + 1, 0, 0, None, 1)


def holds(split: Split, key: SortKey) -> bool:
    """Return whether a key lies in a split."""
    span, lower, upper = split.range, split.lower_order, split.upper_order
    if lower is not None and (key < lower or (span.lower_open and key == lower)):
        return False
    return upper is None or key < upper or (span.closed and key == upper)


def cuts(keys: list[int], rnd: random.Random) -> list[Split]:
    """Cut a table at up to four of its keys."""
    inner = sorted(rnd.sample(keys, min(len(keys), 4)))
    found = []
    for number, (lower, upper) in enumerate(pairwise([None, *dict.fromkeys(inner), None])):
        last = upper is None
        top = (keys[-1] if keys else None) if last else upper
        low, high = (lower,) if lower is not None else None, (top,) if top is not None else None
        found.append(Split(TABLE, "s", number, Range(low, high, closed=last), low, high))
    return found


def _no_server(sql: str) -> tuple[Any, ...]:
    raise AssertionError(sql)


class Rules(NamedTuple):
    """What a capture obeys; a test removes one to show that it is needed."""

    barrier: bool = True
    low_by_position: bool = False
    window: bool = True
    """Keys above the greatest planned one are a split of their own."""
    keep_ranges: bool = True
    """A restart knows the ranges of ended splits."""


ALL_RULES = Rules()


class Capture:
    """The real registry driven by a small single-threaded capture; what it writes is a list of records."""

    low_mark: Callable[[int], Offset] = staticmethod(low_mark)
    high_mark: Callable[[int], Offset] = staticmethod(high_mark)

    def __init__(self, server: Server, rnd: random.Random, obey: Rules) -> None:
        self.server = server
        self.rnd = rnd
        self.obey = obey
        self.max_waiting = rnd.randint(1, 4)
        self.most_waiting = 0
        self.out: list[Written] = []
        self.position = 0
        self.committed: dict[int, tuple[Split, int, int, int]] = {}
        self.ended: set[int] = set()
        self.ranges: dict[int, EndedRange] = {}
        """The stored ranges of ended splits, by number."""
        self.greatest: int | None = None
        self.planned = False
        self.cuts: list[Split] = []
        self.finished = False
        self.boot()

    def boot(self) -> None:
        """Start, or restart from what was stored."""
        self.registry = SplitRegistry()
        self.reading: dict[int, Reading] = {}
        self.planning: Planning | None = None
        self.registry.track(TABLE, TableMode.STREAMING if self.finished else TableMode.WAITING)
        if self.finished or not self.planned:
            return
        self.registry.start_planning(TABLE)
        self.registry.set_range(TABLE, None if self.greatest is None else (self.greatest,))
        self.restore()

    def restore(self) -> None:
        """Tell the registry what was stored of the splits."""
        for number, (split, low, high, backfill) in self.committed.items():
            if number not in self.ended:
                self.registry.open(split)
                self.registry.commit(split, self.low_mark(low), self.high_mark(high), backfill=backfill)
        for ended in self.ranges.values() if self.obey.keep_ranges else ():
            self.registry.restore_ended(ended)

    def plan(self) -> None:
        if self.planning or self.planned or self.finished:
            return
        self.registry.start_planning(TABLE)
        self.planning = Planning(self.position)

    def range(self) -> None:
        """Take one step of reading the greatest key: LW, the key, HW."""
        planning = self.planning
        if planning is None:
            return
        if planning.low is None:
            if not self.obey.barrier or self.server.visible >= planning.barrier:
                planning.low = len(self.server.binlog) if self.obey.low_by_position else self.server.visible
        elif planning.keys is None:
            planning.keys = sorted(self.server.rows(self.server.visible))
        else:
            self.greatest = planning.keys[-1] if planning.keys else None
            self.cuts = cuts(planning.keys, self.rnd)
            self.registry.set_range(TABLE, None if self.greatest is None else (self.greatest,))
            if self.greatest is not None and self.obey.window:
                above = Split(TABLE, "s", -1, Range((self.greatest,), None, lower_open=True), (self.greatest,), None)
                self.registry.open(above)
                self.commit(above, planning.low, len(self.server.binlog))
            self.planning, self.planned = None, True

    def commit(self, split: Split, low: int, high: int) -> None:
        """A split is stored."""
        self.committed[split.number] = (split, low, high, 0)
        self.registry.commit(split, self.low_mark(low), self.high_mark(high))
        self.most_waiting = max(self.most_waiting, self.registry.waiting_for_end)

    def open(self) -> None:
        todo = [s for s in self.cuts if s.number not in self.committed and s.number not in self.reading]
        if self.planned and todo and self.registry.waiting_for_end + len(self.reading) < self.max_waiting:
            split = self.rnd.choice(todo)
            self.registry.open(split)
            self.reading[split.number] = Reading(split, self.position)

    def step_reader(self) -> None:
        if not self.reading:
            return
        reading = self.rnd.choice(list(self.reading.values()))
        if reading.low is None:
            if not self.obey.barrier or self.server.visible >= reading.barrier:
                reading.low = len(self.server.binlog) if self.obey.low_by_position else self.server.visible
        elif reading.rows is None:
            reading.rows = {
                k: v for k, v in self.server.rows(self.server.visible).items() if holds(reading.split, (k,))
            }
        elif reading.high is None:
            reading.high = len(self.server.binlog)
        else:
            number = reading.split.number
            self.out += [("r", number, key, value) for key, value in reading.rows.items()]
            del self.reading[number]
            self.commit(reading.split, reading.low, reading.high)

    def give_up(self) -> None:
        """Give up the plan, or a split that is being read: nothing of it is in Kafka, and it is tried again."""
        if self.planning is not None:
            self.planning = None
            self.registry.stop_planning(TABLE)
        elif self.reading:
            _, reading = self.reading.popitem()
            tracked = self.registry.tables[TABLE].opened[reading.split.id]
            self.registry.close(reading.split)
            assert not tracked.being_read, "a TRUNCATE event would wait for it for ever"

    def step_stream(self) -> None:
        self.end()
        if self.position == len(self.server.binlog):
            return
        change = self.server.binlog[self.position]
        table = self.registry.tables[TABLE]
        begin = transaction(self.position)
        decision, tracked = self.registry.decide(table, (change.key,), begin, StreamAt(self.high_mark(self.position)))
        assert self.covered(change.key, begin) in {CODES[decision], None}, f"the cover of {change.key}"
        if decision is ChangeDecision.HOLD:
            return
        if decision is ChangeDecision.EMIT:
            self.out.append(("e", self.position, change.key, change.after))
        elif decision is ChangeDecision.BACKFILL:
            assert tracked is not None
            self.registry.count_backfill(tracked)
            split, low, high, _ = self.committed[tracked.split.number]
            self.committed[tracked.split.number] = (split, low, high, tracked.backfill)
            self.out.append(("b", tracked.split.number, change.key, change.after))
        self.position += 1
        self.end()

    def covered(self, key: int, begin: TransactionBegin) -> int | None:
        """Return what the cover of the table decides; None: it has none. A cover is kept until the table changes."""
        table = self.registry.tables[TABLE]
        if table.mode in WITH_SPLITS and table.order is None:
            table.compare_by(KeyOrder([KeyColumn(Column("id", "int", nullable=False), is_integer=True)], _no_server))
        cover = cover_of(table, lambda: self.high_mark(0)) if loader.is_used() else None
        return None if cover is None else cover.decision(key, begin)

    def end(self) -> None:
        for tracked, merged, absorbed in self.registry.end_passed(self.high_mark(self.position)):
            number = tracked.split.number
            self.ended.add(number)
            self.out.append(("END", number, None, tracked.backfill))
            if merged is not None:
                self.ranges[merged.number] = merged
            if absorbed is not None:
                del self.ranges[absorbed.number]
        if self.planned and self.committed.keys() >= {s.number for s in self.cuts} and not self.finished:
            self.registry.mark_all_read(TABLE)
            for table in self.registry.finished_tables():
                self.check_merged()
                self.registry.finish_table(table)
                self.finished = True

    def check_merged(self) -> None:
        """All splits are one range, in memory and in the state; it counts every split."""
        [ended] = self.registry.tables[TABLE].ended_ranges
        assert self.ranges == {ended.number: ended}
        assert (ended.splits, ended.next_number) == (len(self.cuts), len(self.cuts))
        assert (ended.range.lower, ended.range.upper) == (self.cuts[0].range.lower, self.cuts[-1].range.upper)


class CountingCapture(Capture):
    """A capture of a source that knows no GTIDs and no binlog files."""

    low_mark: Callable[[int], Offset] = CountingOffset
    high_mark: Callable[[int], Offset] = CountingOffset


class IncrementalCapture(Capture):
    """A capture that has emitted the binlog from its beginning, and runs an incremental snapshot."""

    rules = TableMode.INCREMENTAL

    def boot(self) -> None:
        """Start or restart: a table that is not planned, or whose snapshot is complete, only streams."""
        self.registry = SplitRegistry()
        self.reading = {}
        self.planning = None
        self.registry.track(TABLE, TableMode.STREAMING)
        if self.planned and not self.finished:
            self.start()
            self.restore()

    def start(self) -> None:
        """Enter the mode; with the rules of an initial snapshot the table is tracked as for one."""
        if self.rules is TableMode.INCREMENTAL:
            self.registry.start_incremental(TABLE)
        else:
            self.registry.track(TABLE, TableMode.WAITING)
            self.registry.start_planning(TABLE)
            self.registry.set_range(TABLE, None if self.greatest is None else (self.greatest,))

    def plan(self) -> None:
        """Plan the current content."""
        if self.planned or self.finished:
            return
        keys = sorted(self.server.rows(self.server.visible))
        self.greatest = keys[-1] if keys else None
        self.cuts = cuts(keys, self.rnd)
        self.planned = True
        self.start()

    def range(self) -> None:
        """The greatest key needs no barrier."""


def write(server: Server, rnd: random.Random, keys: int) -> None:
    locked = {change.key for change in server.binlog[server.visible :]}
    free = [key for key in range(keys) if key not in locked]
    if not free:
        return
    key = rnd.choice(free)
    here = server.rows(len(server.binlog))
    after = None if key in here and rnd.random() < 0.3 else 10 + len(server.binlog)
    server.binlog.append(Change(key, after))


def simulate(seed: int, obey: Rules = ALL_RULES, make: type[Capture] = Capture) -> str | None:
    """Run one random interleaving; return what is wrong, or None."""
    rnd = random.Random(seed)
    keys = rnd.randint(1, 8)
    server = Server({key: rnd.randint(1, 9) for key in range(keys) if rnd.random() < 0.6})
    capture = make(server, rnd, obey)
    try:
        return "no progress" if not drive(server, capture, rnd, keys) else wrong(server, capture)
    except AssertionError as error:
        return f"assertion failed: {error}"


def drive(server: Server, capture: Capture, rnd: random.Random, keys: int) -> bool:
    """Run one random interleaving to its end."""
    budget = rnd.randint(5, 40)
    for _ in range(4000):
        actions = ["show", "plan", "range", "open", "reader", "reader", "stream", "stream"]
        if len(server.binlog) < budget:
            actions += ["write"] * 3
        action = rnd.choice(("crash", "give up")) if rnd.random() < 0.04 else rnd.choice(actions)
        if action == "write":
            write(server, rnd, keys)
        elif action == "show":
            server.visible = min(server.visible + 1, len(server.binlog))
        elif action == "crash":
            capture.boot()
        elif action == "give up":
            capture.give_up()
        else:
            {
                "plan": capture.plan,
                "range": capture.range,
                "open": capture.open,
                "reader": capture.step_reader,
                "stream": capture.step_stream,
            }[action]()
        # So that a later decision meets a cover that should have been removed.
        capture.covered(0, transaction(capture.position))
        if capture.finished and len(server.binlog) >= budget and capture.position == len(server.binlog):
            return True
    return False


def wrong(server: Server, capture: Capture) -> str | None:
    """Compare what was written with the source: last record per key, each split at its HW, changes after it."""
    last = {key: value for kind, _, key, value in capture.out if kind != "END"}
    state = {key: value for key, value in last.items() if value is not None}
    final = server.rows(len(server.binlog))
    if state != final:
        return f"last record per key {state}, source {final}"
    if capture.most_waiting > capture.max_waiting:
        return f"{capture.most_waiting} splits waited for END"
    found = (wrong_split(server, capture.out, *committed) for committed in capture.committed.values())
    return next(filter(None, found), None) or wrong_changelog(server, capture.out)


def wrong_changelog(server: Server, out: list[Written]) -> str | None:
    """Read the output as an exact changelog: a split's rows are inserted at its END, other changes as they come."""
    pending: dict[int, dict[int, int | None]] = {}
    current: set[int] = set()
    for kind, owner, key, value in out:
        if kind == "END":
            added = {key for key, value in pending.pop(owner, {}).items() if value is not None}
            if added & current:
                return f"rows {added} of split {owner} were inserted before"
            current |= added
        elif kind in "rb":
            assert key is not None
            pending.setdefault(owner, {})[key] = value
        else:
            assert key is not None
            existed = key in server.rows(owner)
            if existed is not (key in current):
                return (
                    f"change {owner} of key {key}: it {'existed' if existed else 'did not exist'}, {current} is known"
                )
            current = current - {key} if value is None else current | {key}
    return None


def wrong_split(server: Server, out: list[Written], split: Split, _low: int, high: int, backfill: int) -> str | None:
    """Check one split: its rows and backfill give the state at HW, END counts them and comes before plain changes."""
    mine = [(at, kind, key, value) for at, (kind, owner, key, value) in enumerate(out) if owner == split.number]
    ends = [(at, value) for at, kind, _, value in mine if kind == "END"]
    tagged = [(at, kind, key, value) for at, kind, key, value in mine if kind in "rb"]
    plain = [(at, owner) for at, (kind, owner, key, _) in enumerate(out) if kind == "e" and holds(split, (key,))]
    changes = sum(kind == "b" for _, kind, _, _ in tagged)
    if ends != [(ends[0][0] if ends else -1, changes)] or backfill != changes:
        return f"split {split.number} has END records {ends} for {changes} backfill records"
    end = ends[0][0]
    if any(at > end for at, *_ in tagged) or any(at < end for at, _ in plain):
        return f"END of split {split.number} stands at {end}, its records at {tagged}, plain changes at {plain}"
    rows = {key: value for _, _, key, value in tagged}
    state = {key: value for key, value in rows.items() if value is not None}
    want = {key: value for key, value in server.rows(high).items() if holds(split, (key,))}
    if state != want:
        return f"split {split.number} at HW: {state}, source {want}"
    expected = [n for n, c in enumerate(server.binlog) if n >= high and holds(split, (c.key,))]
    if [owner for _, owner in plain] != expected:
        return f"changes after HW of split {split.number}: {plain}, expected {expected}"
    return None


def test_random_interleavings_lose_and_repeat_nothing() -> None:
    """Every interleaving ends with each key right, each split right at its HW, and each change after it once."""
    assert [(seed, found) for seed in range(RUNS) if (found := simulate(seed))] == []


def test_model_detects_spans_that_outlive_their_splits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Spans that an opened split does not remove skip changes that must be held."""
    add = TrackedTable.add

    def keep_spans(self: TrackedTable, split: Split) -> TrackedSplit:
        spans, tracked = self._spans, add(self, split)
        self._spans = spans
        return tracked

    monkeypatch.setattr(TrackedTable, "add", keep_spans)
    assert any(simulate(seed) for seed in range(RUNS))


def test_rules_hold_for_a_source_without_gtids_and_binlog_files() -> None:
    """The rules ask an offset for ``contains`` and ``before``, whatever it is made of."""
    assert [(seed, found) for seed in range(300) if (found := simulate(seed, make=CountingCapture))] == []


@pytest.mark.parametrize(
    "broken", [Rules(barrier=False), Rules(low_by_position=True), Rules(window=False), Rules(keep_ranges=False)]
)
def test_model_detects_a_missing_rule(broken: Rules) -> None:
    """Without one of the rules changes are lost or have no row before them: the test above can fail."""
    assert any(simulate(seed, broken) for seed in range(RUNS))


def test_model_detects_rows_above_the_greatest_key_that_were_never_inserted() -> None:
    """Without a window above the greatest key, changes of rows that no split had are in the changelog."""
    found = [simulate(seed, Rules(window=False)) for seed in range(RUNS)]
    assert any(what is not None and what.startswith("change ") for what in found)


def test_model_detects_ranges_that_are_joined_over_a_gap(monkeypatch: pytest.MonkeyPatch) -> None:
    """A split between two ended ones is not ended."""
    monkeypatch.setattr(EndedRange, "touches", lambda _self, _above: True)
    assert any(simulate(seed) for seed in range(RUNS))


def simulate_incremental(seed: int, *, barrier: bool = True, rules: TableMode = TableMode.INCREMENTAL) -> str | None:
    """Run an incremental snapshot of a table whose consumer has lost some rows; return what is wrong then, or None."""
    rnd = random.Random(seed)
    keys = rnd.randint(1, 8)
    server = Server({key: rnd.randint(1, 9) for key in range(keys) if rnd.random() < 0.6})
    known = {key: rnd.choice([value, 0]) for key, value in server.start.items() if rnd.random() < 0.7}
    capture = IncrementalCapture(server, rnd, Rules(barrier=barrier))
    capture.rules = rules
    try:
        if not drive(server, capture, rnd, keys):
            return "no progress"
    except (AssertionError, IllegalTransitionError) as error:
        return str(error)
    return wrong_incremental(server, capture, known)


def wrong_incremental(server: Server, capture: Capture, known: dict[int, int]) -> str | None:
    """Compare: every change once and in order, each split at its HW, and readers that had lost rows have them now."""
    for key in {change.key for change in server.binlog}:
        found = [value for kind, _, at, value in capture.out if kind in "eb" and at == key]
        expected = [change.after for change in server.binlog if change.key == key]
        if found != expected:
            return f"changes of key {key}: {found}, the binlog has {expected}"
    state: dict[int, int | None] = dict(known)
    state |= {key: value for kind, _, key, value in capture.out if kind != "END" and key is not None}
    final = server.rows(len(server.binlog))
    if {key: value for key, value in state.items() if value is not None} != final:
        return f"last record per key {state}, source {final}"
    for number, (split, _, high, backfill) in capture.committed.items():
        mine = [(kind, key, value) for kind, owner, key, value in capture.out if kind in "rb" and owner == number]
        if backfill != sum(kind == "b" for kind, *_ in mine):
            return f"split {number} counts {backfill} changes: {mine}"
        rows = {key: value for _, key, value in mine}
        found_at_high = {key: value for key, value in rows.items() if value is not None}
        want = {key: value for key, value in server.rows(high).items() if holds(split, (key,))}
        if found_at_high != want:
            return f"split {number} at HW: {found_at_high}, source {want}"
        first_row = next(
            (at for at, (kind, owner, *_) in enumerate(capture.out) if kind in "rb" and owner == number), 0
        )
        late = [o for kind, o, key, _ in capture.out[first_row:] if kind == "e" and holds(split, (key,)) and o < high]
        if late and mine:
            return f"changes {late} at or before HW {high} of split {number} come after its rows without its mark"
    return None


def test_incremental_snapshot_loses_no_change_and_repairs_every_row() -> None:
    """Every change is emitted once, in order, and no row ends up older than the source."""
    assert [(seed, found) for seed in range(RUNS) if (found := simulate_incremental(seed))] == []


def test_model_detects_an_incremental_snapshot_with_the_rules_of_an_initial_one() -> None:
    """Those skip changes of splits that are not read yet: the test above can fail."""
    found = [simulate_incremental(seed, rules=TableMode.SNAPSHOT) for seed in range(200)]
    assert any(what is not None and what.startswith("changes of key") for what in found)


def test_model_detects_a_missing_barrier_in_an_incremental_snapshot() -> None:
    """Without it a split may contain less than was written before it."""
    assert any(simulate_incremental(seed, barrier=False) for seed in range(RUNS))
