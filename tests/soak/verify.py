"""Compares the topics of a round with the source, and checks that the records of each key form a chain."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

from tailrace.schemas.names import INCREMENTAL_HEADER, SPLIT_HEADER, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.soak.tables import ADDED_COLUMN, TABLES, SoakTable
from tests.support.topics import Read, read_topic

Row = dict[str, Any]


class Verdict(NamedTuple):
    """What the topics of a round show."""

    records: int
    lost: int
    """Keys whose last record is not the row of the source, and breaks of a chain where a record is missing."""
    doubled: int
    """Records that repeat the change before them."""
    problems: tuple[str, ...]
    """The first problems, readable."""


def verify(bootstrap: str, prefix: str, database: str, source: dict[str, dict[str, Row]]) -> Verdict:
    """Check all tables. ``source`` has the rows of each table by the text of their key."""
    marks = [r for r in read_topic(bootstrap, watermarks_topic(prefix)) if r.value]
    records = lost = doubled = 0
    problems: list[str] = []
    for table in TABLES:
        topic = f"{prefix}.{database}.{table.name}"
        found = read_topic(bootstrap, topic)
        records += len(found)
        missing, repeated, text = _check(table, found, source[table.name])
        lost, doubled = lost + missing, doubled + repeated
        problems += text + _counts(topic, found, [Watermark.from_json(m.value) for m in marks if m.value])
    return Verdict(records, lost, doubled, tuple(problems))


def key_text(table: SoakTable, row: Row) -> str:
    """Return the key of a row in the form that both sides give."""
    return orjson.dumps([row[column] for column in table.key_columns]).decode()


def _check(table: SoakTable, records: Sequence[Read], source: dict[str, Row]) -> tuple[int, int, list[str]]:
    by_key: dict[bytes, list[Read]] = defaultdict(list)
    for record in records:
        assert record.key is not None
        by_key[record.key].append(record)
    lost = doubled = 0
    problems: list[str] = []
    final: dict[str, Row] = {}
    for key, history in by_key.items():
        state, missing, repeated, text = _chain(history)
        lost, doubled = lost + missing, doubled + repeated
        problems += text
        last = next((r.json["after"] for r in reversed(history) if r.value is not None), None)
        if last is not None:
            final[orjson.dumps(list(orjson.loads(key).values())).decode()] = _plain(last)
        if state is not None and last is not None and state != _plain(last):
            lost += 1
            problems.append(f"{table.name} {key!r}: an incremental row follows a change that it lacks")
    for key_json in final.keys() | source.keys():
        if final.get(key_json) != source.get(key_json):
            lost += 1
            problems.append(f"{table.name} {key_json}: topic {final.get(key_json)}, source {source.get(key_json)}")
    return lost, doubled, problems


def _chain(history: Sequence[Read]) -> tuple[Row | None, int, int, list[str]]:
    """Follow the changes of a key without incremental rows; return the last state, losses, repeats, problems."""
    state: Row | None = None
    previous: Any = None
    lost = doubled = 0
    problems: list[str] = []
    for record in history:
        if record.value is None or (INCREMENTAL_HEADER in record.headers and record.json["op"] == "r"):
            continue
        change = record.json
        before = None if change["before"] is None else _plain(change["before"])
        source = change["source"]
        origin = (source["file"], source["pos"], source["row"], record.headers.get("tailrace.event"), change["op"])
        where = f"{record.topic}/{record.partition}@{record.offset} {record.key!r}"
        if origin == previous:
            doubled += 1
            problems.append(f"{where}: repeats the change before it")
        elif SPLIT_HEADER not in record.headers and before != state:
            lost += 1
            problems.append(f"{where}: {change['op']} from {before}, but the state was {state}")
        previous = origin
        state = None if change["after"] is None else _plain(change["after"])
    return state, lost, doubled, problems


def _plain(row: Row) -> Row:
    return {name: value for name, value in row.items() if name != ADDED_COLUMN}


def _counts(topic: str, records: Sequence[Read], marks: Sequence[Watermark]) -> list[str]:
    """Return the splits whose END does not count their records."""
    rows: Counter[str] = Counter()
    backfill: Counter[str] = Counter()
    for record in records:
        split = record.headers.get(SPLIT_HEADER) or record.headers.get(INCREMENTAL_HEADER)
        if split is not None and record.value is not None:
            (rows if record.json["op"] == "r" else backfill)[split.decode()] += 1
    ends = [mark for mark in marks if mark.kind is WatermarkKind.END and mark.topic == topic]
    problems = [f"{topic}: split {split} has no END" for split in rows.keys() - {end.split for end in ends}]
    for end in ends:
        if (end.rows, end.backfill) != (rows[end.split], backfill[end.split]):
            counted = (rows[end.split], backfill[end.split])
            problems.append(f"{topic}: END of {end.split} says {(end.rows, end.backfill)}, the topic has {counted}")
    return problems
