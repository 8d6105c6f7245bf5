"""A random run of a snapshot with concurrent changes, and a simple reference of the result.

A writer changes a table. Snapshot readers read its splits, each with a LOW watermark, a SELECT and a HIGH watermark.
The binlog reader follows. The messages are in an order in which a producer could write them, in transactions.
"""

from __future__ import annotations

import random
from collections import defaultdict
from dataclasses import dataclass, field
from itertools import pairwise

import orjson

from tailrace.schemas.names import SPLIT_HEADER
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.spark.records import Message, Row, Table

FIRST_POS = 1000
STEP = 10


@dataclass
class Split:
    """One split: its keys, and the numbers of the binlog events that follow its watermarks and its SELECT."""

    number: int
    keys: range
    low: int
    select: int
    high: int
    rows: list[Row] = field(default_factory=list)
    committed: bool = False
    ended: bool = False
    backfill: int = 0


@dataclass(frozen=True)
class Event:
    """One change in the binlog; a key change is two changes at one position."""

    op: str
    before: Row | None
    after: Row | None
    row: int = 0

    @property
    def key(self) -> int:
        """The key of the changed row."""
        image = self.after if self.after is not None else self.before
        assert image is not None
        return int(image["id"])


def position(event: int) -> int:
    """Return the binlog position of an event."""
    return FIRST_POS + STEP * event


class Run:
    """The history of one table: ``transactions`` of messages, and the rows at the end."""

    def __init__(
        self, table: Table, prefix: str, seed: int, *, keys: int = 24, events: int = 60, splits: int = 4
    ) -> None:
        self.random = random.Random(seed)
        self.table, self.prefix = table, prefix
        self.rows: dict[int, Row] = {k: self._row(k) for k in range(keys) if self.random.random() < 0.7}
        self.binlog: list[tuple[Event, ...]] = []
        self.splits = self._splits(keys, events, splits)
        for number in range(events + 1):
            for split in self.splits:
                if split.select == number:
                    split.rows = [self.rows[k] for k in split.keys if k in self.rows]
            if number < events:
                self.binlog.append(self._change(keys + 8))
        self.transactions: list[list[Message]] = []
        self._write()

    def _row(self, key: int) -> Row:
        return {
            "id": key,
            "name": self.random.choice([None, "", "a", 'q"uote', "\u00e9\U0001f600"]),
            "n": self.random.randrange(1000),
        }

    def _splits(self, keys: int, events: int, count: int) -> list[Split]:
        bounds = sorted({0, keys, *(self.random.randrange(keys) for _ in range(count - 1))})
        made = []
        for number, (lower, upper) in enumerate(pairwise(bounds)):
            low, select, high = sorted(self.random.randrange(events // 2) for _ in range(3))
            made.append(Split(number, range(lower, upper), low, select, high))
        return made

    def _change(self, limit: int) -> tuple[Event, ...]:
        key = self.random.randrange(limit)
        before = self.rows.pop(key, None)
        if before is None:
            self.rows[key] = after = self._row(key)
            return (Event("c", None, after),)
        what = self.random.random()
        if what < 0.25:
            return (Event("d", before, None),)
        free = [k for k in range(limit) if k not in self.rows and k != key]
        if what < 0.45 and free:
            moved = self.random.choice(free)
            self.rows[moved] = after = {**before, "id": moved}
            return (Event("d", before, None), Event("c", None, after))
        self.rows[key] = after = self._row(key)
        return (Event("u", before, after),)

    def _split_of(self, key: int) -> Split | None:
        return next((split for split in self.splits if key in split.keys), None)

    def _commit(self, split: Split) -> None:
        split.committed = True
        self._cut()
        self.transactions[-1] += self.table.snapshot(
            self.prefix, split.number, split.rows, low=position(split.low), high=position(split.high)
        )
        self._cut()

    def _cut(self) -> None:
        if not self.transactions or self.transactions[-1]:
            self.transactions.append([])

    def _write(self) -> None:
        """Write the binlog events in order; a split is committed before the first event at or after its LOW."""
        self._cut()
        order = self.random.sample(self.splits, len(self.splits))
        for number, events in enumerate(self.binlog):
            for split in order:
                if not split.committed and (split.low <= number or self.random.random() < 0.05):
                    self._commit(split)
            self._end(number)
            for row, event in enumerate(events):
                self._event(number, event, row)
            if self.random.random() < 0.3:
                self._cut()
        self._end(len(self.binlog))

    def _event(self, number: int, event: Event, row: int) -> None:
        split = self._split_of(event.key)
        tag = None
        if split is not None:
            if number < split.low:
                return
            if number < split.high:
                tag = self.table.split_id(split.number)
                split.backfill += 1
        self.transactions[-1] += self.table.change(
            event.op, event.before, event.after, pos=position(number), row=row, split=tag
        )

    def _end(self, number: int) -> None:
        for split in self.splits:
            if split.committed and not split.ended and split.high <= number:
                split.ended = True
                made = self.table.end(
                    self.prefix, split.number, high=position(split.high), rows=len(split.rows), backfill=split.backfill
                )
                self.transactions[-1].append(made)


def reference_changelog(messages: list[Message], topic: str) -> dict[bytes, list[tuple[str, Row]]]:
    """Return the changelog of every key: one +I for the result of its split, then the changes."""
    ended = set()
    for message in messages:
        if message.topic.endswith(".tailrace.watermarks"):
            mark = Watermark.from_json(message.value or b"")
            if mark.kind is WatermarkKind.END:
                ended.add(mark.split)
    by_key: dict[bytes, list[tuple[str | None, Row]]] = defaultdict(list)
    for message in messages:
        if message.topic == topic and message.key is not None and message.value is not None:
            tag = dict(message.headers).get(SPLIT_HEADER)
            by_key[message.key].append((tag.decode() if tag else None, orjson.loads(message.value)))
    result: dict[bytes, list[tuple[str, Row]]] = {}
    for key, records in by_key.items():
        entries: list[tuple[str, Row]] = []
        tagged = [value for split, value in records if split is not None]
        assert all(split in ended for split, _ in records if split is not None)
        if tagged and tagged[-1]["op"] != "d":
            entries.append(("+I", tagged[-1]["after"]))
        for split, value in records:
            if split is None:
                entries += _entries(value)
        if entries:
            result[key] = entries
    return result


def _entries(value: Row) -> list[tuple[str, Row]]:
    if value["op"] == "u":
        return [("-U", value["before"]), ("+U", value["after"])]
    return [("-D", value["before"])] if value["op"] == "d" else [("+I", value["after"])]
