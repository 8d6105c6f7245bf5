"""A simple reference model: the rows that a topic describes, and whether the records of each key are consistent.

The row of a split and its backfill give the state of a key at the high watermark. From there on the `before` of each
change must equal the state that the previous record left. A lost, repeated or reordered record breaks this chain.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Sequence
from typing import Any
from zlib import crc32

import orjson

from tailrace.schemas.names import SPLIT_HEADER
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.support.topics import Read

Row = dict[str, Any]


def final_rows(records: Iterable[Read]) -> dict[bytes, Row]:
    """Return the rows that the last record of each key describes, as an upsert sink reads the topic."""
    rows: dict[bytes, Row] = {}
    for record in records:
        assert record.key is not None
        after = None if record.value is None else record.json["after"]
        if after is None:
            rows.pop(record.key, None)
        else:
            rows[record.key] = after
    return rows


def check_history(records: Sequence[Read], ends: Sequence[Watermark]) -> dict[bytes, Row]:
    """Assert that the records of each key form a chain and that each END certifies its split. Return the final rows."""
    ended = {end.split: end for end in ends}
    assert len(ended) == len(ends), "a split has two END records"
    by_key: dict[bytes, list[Read]] = defaultdict(list)
    reads: Counter[str] = Counter()
    backfill: Counter[str] = Counter()
    checksums: Counter[str] = Counter()
    for record in records:
        assert record.key is not None
        by_key[record.key].append(record)
        split = record.headers.get(SPLIT_HEADER)
        if split is not None:
            if record.value is not None:
                (reads if record.json["op"] == "r" else backfill)[split.decode()] += 1
                if record.json["op"] == "r":
                    checksums[split.decode()] += crc32(_after_of_read(record.value))
        elif record.value is not None:
            assert record.json["op"] != "r", "a snapshot row without its split"
    assert {s: n for s, n in reads.items() if n} == {s: e.rows for s, e in ended.items() if e.rows}
    assert {s: n % 2**64 for s, n in checksums.items()} == {s: e.checksum for s, e in ended.items() if e.rows}
    assert {s: n for s, n in backfill.items() if n} == {s: e.backfill for s, e in ended.items() if e.backfill}
    rows = {key: state for key, history in by_key.items() if (state := _chain(key, history)) is not None}
    assert rows == final_rows(records)
    return rows


def _after_of_read(value: bytes) -> bytes:
    """Return the bytes of ``after`` as the record has them: another writer may escape characters in another way."""
    begin, end = b'"before":null,"after":', b',"source":{'
    return value[value.index(begin) + len(begin) : value.rindex(end)]


def _chain(key: bytes, history: Sequence[Read]) -> Row | None:
    state: Row | None = None
    plain_seen = False
    tombstone_due = False
    read_in: dict[str, str] = {}
    for record in history:
        where = f"{record.topic}/{record.partition}@{record.offset} key {key.decode(errors='replace')}"
        tagged = SPLIT_HEADER in record.headers
        assert not (tagged and plain_seen), f"{where}: a record of a split after plain changes"
        plain_seen = plain_seen or not tagged
        if record.value is None:
            assert tombstone_due, f"{where}: a tombstone without a delete before it"
            tombstone_due = False
            continue
        assert not tombstone_due, f"{where}: no tombstone after a delete"
        change = record.json
        if change["op"] == "r":
            split = record.headers[SPLIT_HEADER].decode()
            run = split.rsplit(":", 1)[0]
            assert run not in read_in, f"{where}: read by {split}, and before by {read_in[run]}"
            read_in[run] = split
        if not tagged:
            # The chain begins at the high watermark. Before it, changes after LOW may repeat what the row contains.
            assert change["before"] == state, (
                f"{where}: {change['op']} from {change['before']}, but the state was {state}"
            )
        state = change["after"]
        tombstone_due = change["op"] == "d"
    assert not tombstone_due, f"no tombstone after the last delete of {key!r}"
    return state


def ends_of(watermarks: Iterable[Read], topic: str) -> list[Watermark]:
    """Return the END records of a topic's splits. Assert that each split has one LOW, HIGH and END, in this order."""
    kinds: dict[str, list[WatermarkKind]] = defaultdict(list)
    ends: list[Watermark] = []
    for record in watermarks:
        assert record.value is not None
        if orjson.loads(record.value)["topic"] != topic:
            continue
        mark = Watermark.from_json(record.value)
        if mark.kind is WatermarkKind.CREATED:
            continue
        kinds[mark.split].append(mark.kind)
        if mark.kind is WatermarkKind.END:
            ends.append(mark)
    for split, seen in kinds.items():
        assert seen == [WatermarkKind.LOW, WatermarkKind.HIGH, WatermarkKind.END], f"{split}: {seen}"
    return ends
