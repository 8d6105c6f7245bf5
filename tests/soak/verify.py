"""Compares the topics of a round with the source, and their changes with the binlog that another decoder has read.

Of each key a topic must have every change that the binlog has, once and in order. Only a change that an initial
snapshot contains may be missing: one that is in the low watermark of its split. Rows of snapshots must be rows that the
key had at that place of its history. The changes of a table that was dropped before a snapshot read the split of their
key are counted as not captured (docs/guarantees.md).
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from tailrace.schemas.names import watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.soak.audit import BinlogAudit
from tests.soak.gtids import Gtids, in_any
from tests.soak.history import Change, KeyHistory, TableHistory
from tests.soak.tables import FORMER, KEYS, Row
from tests.soak.topic import Entry, Topic, low_sets
from tests.support.topics import read_topic

Source = Mapping[str, Mapping[str, Row]]


class Verdict(NamedTuple):
    """What the topics of a round show."""

    records: int
    changes: int
    """Changes that the binlog has."""
    lost: int
    """Changes of the binlog that a topic lacks, and keys whose last record is not the row of the source."""
    doubled: int
    """Records of changes that a topic has more often than the binlog, or that the binlog does not have."""
    problems: tuple[str, ...]
    """All problems, readable."""
    not_captured: int = 0
    """Changes of tables that were dropped before a snapshot read the splits of their keys."""


def verify(
    bootstrap: str, prefix: str, database: str, source: Source, *, audit: BinlogAudit, first_offset: Gtids
) -> Verdict:
    """Check all tables. ``source`` has the rows of each table by the text of their key.

    ``first_offset``: what was executed where the stream began.
    """
    found = [r for r in read_topic(bootstrap, watermarks_topic(prefix)) if r.value]
    marks = [Watermark.from_json(record.value) for record in found if record.value]
    verdicts: list[Verdict] = []
    names = {table for in_database, table in audit.tables if in_database == database} | source.keys()
    for table in sorted(names):
        topic_name = f"{prefix}.{database}.{table}"
        topic = Topic(table, read_topic(bootstrap, topic_name))
        own = [mark for mark in marks if mark.topic == topic_name]
        history = audit.history(database, table)
        verdicts.append(TableCheck(history, topic, own, first_offset).run(source.get(table, {})))
    return total(verdicts)


def total(verdicts: Sequence[Verdict]) -> Verdict:
    """Return the sums."""
    return Verdict(
        sum(v.records for v in verdicts),
        sum(v.changes for v in verdicts),
        sum(v.lost for v in verdicts),
        sum(v.doubled for v in verdicts),
        tuple(problem for v in verdicts for problem in v.problems),
        sum(v.not_captured for v in verdicts),
    )


class TableCheck:
    """The check of one table."""

    def __init__(self, history: TableHistory, topic: Topic, marks: Sequence[Watermark], first_offset: Gtids) -> None:
        self._history = history
        self._topic = topic
        self._marks = marks
        self._low = low_sets(marks)
        self._lows = {mark.split: mark for mark in marks if mark.kind is WatermarkKind.LOW}
        self._without_split = [first_offset, *self._low.values()]
        # The former table of an online schema change is not read.
        self._former = re.fullmatch(rf"_.*_({FORMER})", history.name) is not None
        self._lost = self._doubled = self._not_captured = 0
        self._found: set[int] = set()
        """The numbers of the changes that the topic has, of a table that was dropped."""
        self._unread: list[tuple[str, int, Change]] = []
        """Changes of a table that was dropped which no low watermark explains."""
        self._problems: list[str] = [*topic.problems, *topic.certificates(marks)]

    def run(self, source: Mapping[str, Row]) -> Verdict:
        """Return the verdict."""
        self._check_truncates()
        for key in self._history.keys.keys() | self._topic.keys.keys():
            self._check_key(key)
        for key, number, change in self._unread:
            self._check_unread(key, number, change)
        if not self._former:  # it has rows if its ALTER was cut off, and nobody read them
            self._check_rows(source)
        changes = sum(len(history.changes) for history in self._history.keys.values())
        problems = tuple(self._problems)
        return Verdict(self._topic.records, changes, self._lost, self._doubled, problems, self._not_captured)

    def _problem(self, text: str) -> None:
        self._problems.append(f"{self._history.name}: {text}")

    def _check_truncates(self) -> None:
        wanted, found = self._history.truncates, self._topic.truncates
        missing = wanted[: len(wanted) - len(found)]
        if wanted[len(missing) :] != found:
            self._problem(f"TRUNCATE: the binlog has {wanted}, the topic {found}")
        elif not all(in_any(gtid, self._without_split) for gtid in missing):
            self._problem(f"TRUNCATE: the topic lacks {missing}")

    def _check_key(self, key: str) -> None:
        entries = self._topic.keys.get(key, [])
        skipped = max(0, len(self._history.truncates) - len(self._topic.truncates))
        history = self._history.keys.get(key, KeyHistory())
        if self._history.left and self._history.name not in KEYS:
            self._check_recreated(key, entries, history)
            return
        at = 0
        for number, changes in enumerate(self._history.segment(key)):
            here = [entry for entry in entries if entry.segment + skipped == number]
            ended_by = self._history.truncates[number] if number < len(self._history.truncates) else None
            if ended_by is not None and in_any(ended_by, self._low.values()):
                # The snapshot began again after this TRUNCATE: what precedes it is a part of the changes.
                self._check_part(key, changes, here)
            else:
                self._check_all(key, changes, here, history, at)
            at += len(changes)

    def _check_part(self, key: str, changes: Sequence[Change], entries: Sequence[Entry]) -> None:
        rest = iter(changes)
        for entry in entries:
            if entry.change is not None and entry.change not in rest:
                self._doubled += 1
                self._problem(f"{key} {entry.where}: not in the binlog, or not in this order: {entry.change}")

    def _check_all(
        self, key: str, changes: Sequence[Change], entries: Sequence[Entry], history: KeyHistory, at: int
    ) -> None:
        found = [entry.change for entry in entries if entry.change is not None]
        dropped = len(changes) - len(found)
        if list(changes[max(dropped, 0) :]) != found:
            self._compare(key, changes, found)
            return
        initial = [entry for entry in entries if entry.change is None and not entry.incremental]
        split = next((entry.split for entry in entries if entry.split and not entry.incremental), None)
        low = [self._low[split]] if split in self._low else self._without_split
        for change in changes[:dropped]:
            if not in_any(change.gtid, low):
                self._lost += 1
                self._problem(f"{key}: the topic lacks {change}, which no low watermark has")
        if split is not None and any(change.gtid in self._low.get(split, Gtids()) for change in changes[dropped:]):
            self._problem(f"{key}: a change before the low watermark of its split {split}")
        if len(initial) > 1:
            self._doubled += len(initial) - 1
            self._problem(f"{key}: {len(initial)} rows of an initial snapshot")
        self._check_snapshot_rows(key, entries, history, at + dropped)

    def _check_recreated(self, key: str, entries: Sequence[Entry], history: KeyHistory) -> None:
        """Check a key of a table that was dropped, and maybe created again while the producer was down.

        Then a snapshot reads it: the changes up to a low watermark may be missing, all of them.
        """
        rest = iter([entry.change for entry in entries if entry.change is not None])
        wanted, missing = next(rest, None), list[tuple[int, Change]]()
        for number, change in zip(history.numbers, history.changes, strict=True):
            if change != wanted:
                missing.append((number, change))
                continue
            self._found.add(number)
            self._check_missing(key, missing, change)
            wanted, missing = next(rest, None), []
        self._check_missing(key, missing, None)
        for surplus in (wanted, *rest) if wanted is not None else ():
            self._doubled += 1
            self._problem(f"{key}: not in the binlog, or not in this order: {surplus}")
        known = [row for states in history.states for row in states]
        for entry in entries:
            if entry.change is None and entry.row not in known:
                self._lost += 1
                self._problem(f"{key} {entry.where}: a snapshot row that the key did not have: {entry.row}")

    def _check_missing(self, key: str, missing: Sequence[tuple[int, Change]], following: Change | None) -> None:
        """Note the missing changes that no low watermark lies behind, before the change that follows them."""
        for number, change in missing:
            if not any(
                change.gtid in low and (following is None or following.gtid not in low) for low in self._without_split
            ):
                self._unread.append((key, number, change))

    def _check_unread(self, key: str, number: int, change: Change) -> None:
        """Accept a missing change of a table that was dropped later, before its initial snapshot read the key's split.

        Such a table waits from its first change on: the topic has no change of that table before this one.
        """
        before = [(count, gtid) for count, gtid in self._history.drops if count <= number]
        dropped = next((gtid for count, gtid in self._history.drops if count > number), None)
        created, former = before[-1] if before else (0, None)
        splits = (low for split, low in self._low.items() if _may_have(self._lows[split], key))
        read = dropped is None or any((former is None or former in low) and dropped not in low for low in splits)
        if read or any(created <= found < number for found in self._found):
            self._lost += 1
            self._problem(f"{key}: the topic lacks {change}; the table was dropped by {dropped}")
        else:
            self._not_captured += 1

    def _check_snapshot_rows(self, key: str, entries: Sequence[Entry], history: KeyHistory, at: int) -> None:
        """Check that each row of a snapshot is one that the key had then; ``at`` changes precede the first entry."""
        seen = at
        for entry in entries:
            if entry.change is not None:
                seen += 1
                continue
            if entry.incremental:
                allowed = history.states[seen:]
            else:
                backfill = sum(1 for e in entries if e.change is not None and e.split == entry.split)
                allowed = history.states[seen : seen + backfill + 1]
            if not any(entry.row in states for states in allowed):
                self._lost += 1
                self._problem(f"{key} {entry.where}: a snapshot row that the key did not have: {entry.row}")

    def _compare(self, key: str, changes: Sequence[Change], found: Sequence[Change]) -> None:
        wanted, have = Counter(map(repr, changes)), Counter(map(repr, found))
        extra = have - wanted
        covered = [repr(c) for c in changes if in_any(c.gtid, self._without_split)]
        missing = wanted - have - Counter(covered)
        self._lost += missing.total()
        self._doubled += extra.total()
        self._problem(
            f"{key}: the changes differ from the binlog; missing {list(missing)}, too many {list(extra)}, "
            f"binlog {list(wanted)}, topic {list(have)}"
        )

    def _check_rows(self, source: Mapping[str, Row]) -> None:
        known = {key: history.row for key, history in self._history.keys.items() if history.row is not None}
        differing = [key for key in known.keys() | source.keys() if known.get(key) != source.get(key)]
        for key in differing[:3]:
            self._problem(f"{key}: the binlog gives {known.get(key)}, the source {source.get(key)}")
        for key in self._topic.rows.keys() | source.keys():
            has, wanted = self._topic.rows.get(key), source.get(key)
            kept = wanted is None and self._history.left and self._history.name not in KEYS
            if has != wanted and not kept and not self._former:
                self._lost += 1
                self._problem(f"{key}: the topic has {has}, the source {wanted}")


def _may_have(split: Watermark, key: str) -> bool:
    """Return whether a key may be one of a split's; True unless the key is an integer outside of its bounds.

    The split of the keys above the greatest one has watermarks as soon as the table is planned, before a row is read.
    """
    values = json.loads(key)
    if len(values) != 1 or type(values[0]) is not int:
        return True
    [value] = values
    above = split.lower is None or (value > split.lower[0] if split.lower_open else value >= split.lower[0])
    below = split.upper is None or (value <= split.upper[0] if split.closed else value < split.upper[0])
    return above and below
