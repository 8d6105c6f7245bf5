"""Modes of a table: which steps are legal, and what the registry decides in each."""

from __future__ import annotations

from itertools import product

import pytest

from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.split import Range, Split
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import (
    INITIAL_MODES,
    TRANSITIONS,
    IllegalTransitionError,
    TableMode,
    TablePresence,
)
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.tracked_table import ChangeDecision, TrackedTable

TABLE = TableId("db", "t")
UUID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"
OFFSET = MySqlOffset(1, "f.000001", 300, GtidSet({}), UUID)
BEGIN = TransactionBegin(f"{UUID}:1", OFFSET.file, OFFSET.pos, 350, 0, 0, None, 1)
STREAM = StreamOffset(StoredOffset(OFFSET, ()))


@pytest.mark.parametrize(("before", "after"), list(product(TableMode, TableMode)))
def test_only_the_transitions_of_the_table_are_legal(before: TableMode, after: TableMode) -> None:
    """Every other step raises and names the table and both modes."""
    table = TrackedTable(TABLE, before)
    if after in TRANSITIONS[before]:
        table.move_to(after)
        assert table.mode is after
        return
    with pytest.raises(IllegalTransitionError, match=rf"db\.t: {before} cannot be followed by {after}"):
        table.move_to(after)
    assert table.mode is before


@pytest.mark.parametrize("mode", TableMode)
def test_a_table_starts_as_waiting_or_streaming(mode: TableMode) -> None:
    registry = SplitRegistry()
    if mode in INITIAL_MODES:
        assert registry.track(TABLE, mode).mode is mode
        return
    with pytest.raises(IllegalTransitionError, match=rf"db\.t: no mode cannot be followed by {mode}"):
        registry.track(TABLE, mode)


def test_every_mode_is_reachable() -> None:
    reached = set(INITIAL_MODES)
    while (grown := reached.union(*(TRANSITIONS[mode] for mode in reached))) != reached:
        reached = grown

    assert reached == set(TableMode)


def in_snapshot(registry: SplitRegistry) -> TrackedTable:
    """Track the table in its initial snapshot, with keys up to 100."""
    table = registry.track(TABLE, TableMode.WAITING)
    registry.start_planning(TABLE)
    registry.set_range(TABLE, (100,))
    return table


def test_the_registry_cannot_skip_a_step() -> None:
    registry = SplitRegistry()
    registry.track(TABLE, TableMode.WAITING)
    for step in (registry.start_incremental, registry.finish_table, registry.restart):
        with pytest.raises(IllegalTransitionError):
            step(TABLE)
    with pytest.raises(IllegalTransitionError):
        registry.set_range(TABLE, None)


def split(number: int, lower: int, upper: int) -> Split:
    return Split(TABLE, "s", number, Range((lower,), (upper,), False), (lower,), (upper,))


def test_each_mode_decides_on_a_change_before_any_split_is_open() -> None:
    registry = SplitRegistry()
    found = {}
    for mode in (TableMode.WAITING, TableMode.STREAMING):
        table = registry.track(TABLE, mode)
        found[table.mode] = registry.decide(table, (5,), BEGIN, STREAM)[0]
    registry.start_incremental(TABLE)
    found[table.mode] = registry.decide(table, (5,), BEGIN, STREAM)[0]
    table = registry.track(TABLE, TableMode.WAITING)
    registry.start_planning(TABLE)
    found[table.mode] = registry.decide(table, (5,), BEGIN, STREAM)[0]
    registry.set_range(TABLE, (100,))
    found[table.mode] = registry.decide(table, (5,), BEGIN, STREAM)[0]
    registry.restart(TABLE)
    found[table.mode] = registry.decide(table, (5,), BEGIN, STREAM)[0]

    assert found == {
        TableMode.WAITING: ChangeDecision.SKIP,
        TableMode.PLANNING: ChangeDecision.HOLD,
        TableMode.SNAPSHOT: ChangeDecision.SKIP,
        TableMode.RESTARTING: ChangeDecision.SKIP,
        TableMode.STREAMING: ChangeDecision.EMIT,
        TableMode.INCREMENTAL: ChangeDecision.EMIT,
    }


def test_abandoned_splits_of_a_missing_table_hold_nothing() -> None:
    registry = SplitRegistry()
    table = in_snapshot(registry)
    first, second = split(0, 0, 10), split(1, 10, 20)
    registry.open(first)
    registry.open(second)
    registry.commit(first, OFFSET, OFFSET._replace(pos=500))
    assert registry.decide(table, (15,), BEGIN, STREAM)[0] is ChangeDecision.HOLD
    registry.abandon_split(second)
    assert registry.decide(table, (15,), BEGIN, STREAM)[0] is ChangeDecision.SKIP
    assert registry.decide(table, (5,), BEGIN, STREAM)[0] is ChangeDecision.BACKFILL
    registry.abandon(TABLE)
    assert [tracked.split.number for tracked in registry.forget(TABLE)] == [0]
    assert TABLE not in registry.tables
    assert not registry.waiting_for_end


def test_a_restarting_table_is_never_finished() -> None:
    registry = SplitRegistry()
    in_snapshot(registry)
    registry.mark_all_read(TABLE)
    assert registry.finished_tables() == [TABLE]
    registry.restart(TABLE)
    assert registry.finished_tables() == []


def test_a_table_that_is_missing_during_planning_holds_nothing() -> None:
    registry = SplitRegistry()
    table = registry.track(TABLE, TableMode.WAITING)
    registry.start_planning(TABLE)
    assert registry.decide(table, (5,), BEGIN, STREAM)[0] is ChangeDecision.HOLD
    registry.abandon(TABLE)
    assert registry.decide(table, (5,), BEGIN, STREAM)[0] is ChangeDecision.SKIP


@pytest.mark.parametrize(
    ("steps", "expected"),
    [
        ("", TablePresence.PRESENT),
        ("create", TablePresence.PRESENT),
        ("drop", TablePresence.DROPPED),
        ("drop create", TablePresence.RECREATED),
        ("drop create missing", TablePresence.RECREATED),
        ("drop create drop", TablePresence.DROPPED),
        ("drop missing", TablePresence.GONE),
        ("missing", TablePresence.MISSING),
        ("missing missing", TablePresence.MISSING),
        ("missing drop", TablePresence.GONE),
        ("missing create", TablePresence.GONE),
        ("missing drop create", TablePresence.GONE),
    ],
)
def test_presence_follows_binlog_and_readers(steps: str, expected: TablePresence) -> None:
    """A table is gone when both the binlog and the readers say so, in any order."""
    presence = TablePresence.PRESENT
    for step in steps.split():
        presence = {
            "drop": presence.after_drop,
            "create": presence.after_create,
            "missing": presence.after_not_found,
        }[step]()

    assert presence is expected
