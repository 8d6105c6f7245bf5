"""Random logs, whole and damaged: the extension and the Python loop parse them into the same events, or one error."""

from __future__ import annotations

import os
import random
from collections.abc import Sequence
from typing import NamedTuple
from unittest import mock

from tailrace.producer.model.binlog_events import Event, RowsEvent
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.native.loader import SWITCH
from tailrace.runtime.errors import TailraceError
from tests.fuzz.transactions import random_log
from tests.support.binlog_bytes import mutated, orders


class Parsed(NamedTuple):
    """What a parser made of a log."""

    events: list[object]
    error: str
    """Empty if there is none."""
    state: object
    """Where the parser is then, and what it knows of the transaction."""

    @property
    def rows(self) -> int:
        """Number of rows events."""
        return sum(isinstance(event, RowsEvent) for event in self.events)


def compare_packets(choose: random.Random, *, damaged: bool) -> Parsed:
    """Parse a random log with both. Raises AssertionError if they differ."""
    log = random_log(choose, is_valid=not damaged).data
    data = mutated(log, choose) if damaged and choose.random() < 0.9 else log
    cuts = sorted(choose.randrange(len(data)) for _ in range(choose.choice((0, 1, 5))))
    return compare_parsers(data, cuts, verify=choose.random() < 0.7)


def compare_parsers(data: bytes, cuts: Sequence[int] = (), *, verify: bool = True) -> Parsed:
    """Parse a log, cut at these offsets, with both. Raises AssertionError if they differ."""
    expected = _parsed(data, cuts, native=False, verify=verify)
    found = _parsed(data, cuts, native=True, verify=verify)
    assert found == expected, f"verify {verify} cuts {cuts}\n{data.hex()}"
    return expected


def _parsed(data: bytes, cuts: Sequence[int], *, native: bool, verify: bool) -> Parsed:
    with mock.patch.dict(os.environ, {} if native else {SWITCH: "0"}):
        parser = BinlogParser(orders, verify=verify)
    assert (parser._native is not None) == native
    found: list[Event] = []
    error = ""
    try:
        for start, stop in zip([0, *cuts], [*cuts, len(data)], strict=True):
            found += parser.feed(data[start:stop])
            while parser.pending:
                found += parser.feed(b"")
    except TailraceError as raised:
        error = f"{type(raised).__name__}: {raised.message} {raised.hint} {raised.context}"
    return Parsed([_comparable(event) for event in found], error, _state(parser, is_valid=not error))


def _state(parser: BinlogParser, *, is_valid: bool) -> object:
    """Return where a parser is; after an error only what it knows of the transaction: it cannot be used any more."""
    transaction = parser._transactions
    changed = sorted(str(cached.table.id) for cached in transaction.changed)
    known = (transaction.current, transaction.xid, transaction.is_open, transaction.number, changed, parser.has_xa)
    times = (transaction.begin_pos, transaction.commit_ts_us, sorted(transaction.sources.items()))
    position = (parser.file, parser.pos, parser._query, sorted(parser._tables)) if is_valid else ()
    return known, times, position


def _comparable(event: Event) -> object:
    """Return an event whose images are what they contain; those of two parsers have the same offsets otherwise."""
    if isinstance(event, RowsEvent):
        images = event.data[event.start : event.stop]
        return event._replace(data=images, start=0, stop=len(images))
    return type(event), str(event)
