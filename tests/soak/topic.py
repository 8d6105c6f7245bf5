"""The records of one topic by key, and the watermarks of its splits."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple
from zlib import crc32

import orjson

from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER
from tailrace.schemas.sequence import Sequence as Place
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.soak.gtids import Gtids
from tests.soak.history import Change
from tests.soak.tables import Row, from_topic, key_columns
from tests.support.topics import Read
from tests.support.upsert_reader import sequence_of

MASK = 2**64 - 1
_FIRST = Place(0, 0, 0, 0, 0)


class Entry(NamedTuple):
    """A record of a key: a change, or a row of a snapshot."""

    change: Change | None
    """None: a row of a snapshot."""
    row: Row | None
    split: str
    incremental: bool
    segment: int
    """The number of ``op: t`` records before it."""
    where: str


class Topic:
    """What a topic has."""

    def __init__(self, table: str, records: Sequence[Read]) -> None:
        self.table = table
        self.records = len(records)
        self.keys: defaultdict[str, list[Entry]] = defaultdict(list)
        self.truncates: list[str] = []
        """GTIDs of the records of TRUNCATE."""
        self.rows: dict[str, Row] = {}
        """The rows that the last records of the keys give."""
        self.problems: list[str] = []
        self._counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        self._deleted: set[bytes | None] = set()
        """Keys whose last record is a delete without its tombstone."""
        for record in in_order(records):
            self._add(record)
        self.problems += [f"{table}: no tombstone after the delete of {key!r}" for key in self._deleted]

    def _add(self, record: Read) -> None:
        where = f"{record.topic}/{record.partition}@{record.offset}"
        if record.value is None:
            if record.key not in self._deleted:
                self.problems.append(f"{where}: a tombstone without a delete")
            self._deleted.discard(record.key)
            return
        if record.key in self._deleted:
            self.problems.append(f"{where}: no tombstone after the delete before it")
        body = record.json
        if body["op"] == "t":
            self.truncates.append(body["source"]["gtid"])
            self.rows.clear()
            return
        assert record.key is not None
        if body["op"] == "d":
            self._deleted.add(record.key)
        key = self._key(record.key)
        before, after = self._row(body["before"]), self._row(body["after"])
        incremental = record.headers.get(INCREMENTAL_HEADER)
        split = (record.headers.get(SPLIT_HEADER) or incremental or b"").decode()
        change = None if body["op"] == "r" else Change(body["source"]["gtid"], body["op"], before, after)
        if split:
            counts = self._counts[split]
            counts[0 if change is None else 1] += 1
            if change is None:
                counts[2] = counts[2] + crc32(orjson.dumps(body["after"])) & MASK
        self.keys[key].append(Entry(change, after, split, incremental is not None, len(self.truncates), where))
        if after is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = after

    def _key(self, key: bytes) -> str:
        row = from_topic(self.table, orjson.loads(key))
        return orjson.dumps([row[column] for column in key_columns(self.table)]).decode()

    def _row(self, values: Mapping[str, Any] | None) -> Row | None:
        return None if values is None else from_topic(self.table, values)

    def certificates(self, marks: Iterable[Watermark]) -> list[str]:
        """Return the splits whose END is missing or says something else than the topic has."""
        marks = list(marks)
        problems: list[str] = []
        ends = Counter(mark.split for mark in marks if mark.kind is WatermarkKind.END)
        for mark in marks:
            if mark.kind is WatermarkKind.HIGH and ends[mark.split] != 1:
                problems.append(f"{mark.topic}: split {mark.split} has {ends[mark.split]} END records")
            if mark.kind is WatermarkKind.END:
                rows, backfill, checksum = self._counts.get(mark.split, (0, 0, 0))
                if (mark.rows, mark.backfill, mark.checksum) != (rows, backfill, checksum):
                    said = (mark.rows, mark.backfill, mark.checksum)
                    problems.append(
                        f"{mark.topic}: END of {mark.split} says {said}, the topic has {(rows, backfill, checksum)}"
                    )
        known = {mark.split for mark in marks if mark.kind is WatermarkKind.HIGH}
        problems += [f"{self.table}: split {split} has no HIGH" for split in self._counts.keys() - known]
        return problems


def in_order(records: Sequence[Read]) -> list[Read]:
    """Return records with those of keys that are in several partitions, which were added, in the order of sequences."""
    partitions: defaultdict[bytes | None, set[int]] = defaultdict(set)
    for record in records:
        partitions[record.key].add(record.partition)
    moved: list[tuple[Place, int, int, Read]] = []
    last: dict[tuple[int, bytes | None], Place] = {}
    for record in records:
        if len(partitions[record.key]) > 1:
            at = record.partition, record.key
            if record.value is not None:  # a tombstone follows its delete
                last[at] = sequence_of(record)
            moved.append((last.get(at, _FIRST), *at[:1], record.offset, record))
    moved.sort(key=lambda each: each[:3])
    return [*(r for r in records if len(partitions[r.key]) == 1), *(record for *_, record in moved)]


def low_sets(marks: Iterable[Watermark]) -> dict[str, Gtids]:
    """Return what the low watermark of each split of an initial snapshot has executed."""
    return {
        mark.split: Gtids(mark.position.gtids or "")
        for mark in marks
        if mark.kind is WatermarkKind.LOW and not mark.incremental
    }
