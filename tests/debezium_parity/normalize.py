"""Replaces the values of one run by tokens: times, GTIDs, binlog positions, threads, run ids, versions.

Equal values become equal tokens, and tokens keep the order of the values. Transactions and positions are counted per
table, so that a statement added for one table leaves the tokens of all other tables unchanged. A value that contradicts
its neighbors (such as a ``ts_us`` that does not fit its ``ts_ms``) keeps its original text.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.debezium_parity.payload import has_schema, join_schema, split_schema
from tests.debezium_parity.records import render
from tests.debezium_parity.time_order import (
    Parsed,
    Times,
    has_arbitrary_partition,
    in_time_order,
    is_internal,
    parsed_record,
    times_of,
)
from tests.debezium_parity.tokens import Tree, member, number, text
from tests.debezium_parity.topics import KafkaRecord, heartbeat_topic

_SERVER: Final = "<server>"
_BINLOG: Final = '"<binlog>"'
_VERSION: Final = '"<version>"'
_RUN: Final = b"<run>"

_RUN_HEADER: Final = "__debezium.context.runId"
_GTID: Final = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}(:[a-z_]\w*)?:[1-9]\d*").fullmatch
_CLOCK_COLUMN: Final = "dtcn"
"""The column that the server fills with the time of an UPDATE."""
_GIVEN_CLOCK: Final = re.compile(r'"2020-01-01T.*|15778368\d*|null').fullmatch
"""The values that statements give to this column."""


class _Event(NamedTuple):
    """What a source block says about a binlog event."""

    file: str
    pos: int
    row: int
    table: str
    gtid: str
    thread: str
    times: Times | None


class _Transaction(NamedTuple):
    name: str
    """The token of the GTID, as JSON."""
    number: int
    """The token of the commit time in milliseconds."""
    times: Times | None
    """The commit time before it became a token."""


def normalized(records: Iterable[KafkaRecord], *, prefix: str) -> list[KafkaRecord]:
    """Return the records with tokens, sorted by topic and time.

    ``records`` must be in order within each partition. Offsets are counted from 0. Equal heartbeats are written once.
    """
    parsed = in_time_order([parsed_record(record, prefix) for record in records], prefix)
    tokens = _Tokens(event for each in parsed if (event := _streamed_event(each.value)) is not None)
    found: list[KafkaRecord] = []
    seen: set[tuple[str, bytes | None, bytes | None]] = set()
    ends: dict[tuple[str, int], int] = defaultdict(int)
    for each in parsed:
        record = tokens.apply(each, prefix)
        if record.topic == heartbeat_topic(prefix):
            if (record.topic, record.key, record.value) in seen:
                continue
            seen.add((record.topic, record.key, record.value))
        at = record.topic, record.partition
        found.append(record._replace(offset=ends[at]))
        ends[at] += 1
    return found


class _Tokens:
    """The tokens for the values of one run."""

    def __init__(self, events: Iterable[_Event]) -> None:
        events = sorted(events, key=lambda each: each[:4])
        self._positions: dict[tuple[str, str, int], int] = {}
        self._threads: dict[str, str] = {}
        counts: dict[str, int] = defaultdict(int)
        for event in events:
            position = event.table, event.file, event.pos
            if position not in self._positions:
                counts[event.table] += 1
                self._positions[position] = counts[event.table]
            if event.thread.isdecimal():
                self._threads.setdefault(event.thread, str(len(self._threads) + 1))
        self._transactions = _transactions(events)

    def apply(self, parsed: Parsed, prefix: str) -> KafkaRecord:
        """Return a record with its tokens."""
        record, key, value = parsed
        if is_internal(record.topic, prefix):
            return record
        record = record._replace(
            partition=0 if has_arbitrary_partition(record, prefix) else record.partition,
            headers=tuple((name, _RUN if name == _RUN_HEADER else text) for name, text in record.headers),
        )
        if value is None:
            return record
        if record.topic == f"{prefix}.transaction":
            key, value = self._of_transaction(key), self._of_transaction(value)
        elif member(value, "source") is None:
            value = _with_time(value, "ts_ms", 0)
        else:
            value = self._of_envelope(value)
        return record._replace(key=_with_payload(record.key, key), value=_with_payload(record.value, value))

    def _of_transaction(self, tree: Tree | None) -> Tree:
        """Return the key or value of a transaction's BEGIN or END, or the transaction block of an envelope."""
        assert tree is not None
        transaction = self._transactions.get(text(tree, "id"))
        if transaction is None:
            return tree
        if transaction.times is not None and member(tree, "ts_ms") == str(transaction.times[0]):
            tree = _with_time(tree, "ts_ms", transaction.number)
        return _with(tree, id=transaction.name)

    def _of_envelope(self, value: Tree) -> Tree:
        """Return the value of a row or of a schema change."""
        source = member(value, "source")
        assert source is not None
        event = _event(source)
        if text(source, "version"):
            source = _with(source, version=_VERSION)
        if _is_snapshot(source):
            source = _with_times(source, 0)
            if text(source, "file") and number(source, "pos") is not None:
                source = _with(source, file=_BINLOG, pos="0")
        elif event is not None:
            source = self._of_source(source, event)
        value = _with(value, source=source)
        if (block := member(value, "transaction")) is not None:
            value = _with(value, transaction=self._of_transaction(block))
        for image in ("before", "after"):
            row = member(value, image)
            clock = member(row or "", _CLOCK_COLUMN)
            if isinstance(clock, str) and not _GIVEN_CLOCK(clock):
                value = _with(value, **{image: _with(row, **{_CLOCK_COLUMN: re.sub(r"\d", "1", clock)})})
        return _with_times(value, 0) if member(value, "ts_us") is not None else _with_time(value, "ts_ms", 0)

    def _of_source(self, source: Tree, event: _Event) -> Tree:
        """Return the source block of a record from the binlog."""
        transaction = self._transactions[event.gtid]
        position = self._positions[event.table, event.file, event.pos]
        thread = self._threads.get(event.thread, event.thread)
        source = _with(source, file=_BINLOG, pos=str(position), gtid=transaction.name, thread=thread)
        same = event.times is not None and event.times == transaction.times
        return _with_times(source, transaction.number) if same else source


def _transactions(events: Iterable[_Event]) -> dict[str, _Transaction]:
    """Return the tokens of transactions by GTID; a transaction belongs to the table of its first event."""
    firsts: dict[str, _Event] = {}
    for event in events:
        firsts.setdefault(event.gtid, event)
    found: dict[str, _Transaction] = {}
    counts: dict[str, int] = defaultdict(int)
    latest = 0
    for gtid, first in sorted(firsts.items(), key=lambda each: _gtid_order(each[0])):
        counts[first.table] += 1
        number = counts[first.table]
        # A commit time before that of an earlier transaction gets no token.
        times = first.times if first.times is not None and first.times[0] >= latest else None
        latest = max(latest, times[0] if times is not None else 0)
        found[gtid] = _Transaction(_json(f"{_SERVER}:{first.table}.{number}"), number, times)
    return found


def _gtid_order(gtid: str) -> tuple[str, int]:
    source, _, number = gtid.rpartition(":")
    return source, int(number)


def _streamed_event(value: Tree | None) -> _Event | None:
    source = member(value or "", "source")
    return None if source is None or _is_snapshot(source) else _event(source)


def _event(source: Tree) -> _Event | None:
    """Return the event of a source block, None where its position or GTID is missing, or is a token already."""
    pos, row = number(source, "pos"), number(source, "row")
    file, gtid = text(source, "file"), text(source, "gtid")
    if pos is None or row is None or not file or not _GTID(gtid):
        return None
    thread = member(source, "thread")
    return _Event(file, pos, row, text(source, "table"), gtid, str(thread), times_of(source))


def _is_snapshot(source: Tree) -> bool:
    # With replace.null.with.default=false the flag of a record from the binlog is null.
    return member(source, "snapshot") not in {'"false"', "null"}


def _with_times(tree: Tree, ms: int) -> Tree:
    if times_of(tree) is None:
        return tree
    return _with(tree, ts_ms=str(ms), ts_us=str(ms * 1000), ts_ns=str(ms * 1_000_000))


def _with_time(tree: Tree | None, name: str, time: int) -> Tree:
    assert tree is not None
    return tree if number(tree, name) is None else _with(tree, **{name: str(time)})


def _with(tree: Tree | None, **values: Tree) -> Tree:
    """Return an object with other values for some of its members."""
    assert isinstance(tree, tuple)
    return tuple((name, values.get(name[1:-1], old)) for name, old in tree)


def _with_payload(raw: bytes | None, payload: Tree | None) -> bytes | None:
    """Return a key or value with another payload and its own schema."""
    if raw is None or payload is None:
        return raw
    text = render(payload)
    return (join_schema(split_schema(raw.decode())[0], text) if has_schema(raw) else text).encode()


def _json(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)
