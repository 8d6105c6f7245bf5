"""tailrace.stop.at without servers: where the stream stops, and when it must go on."""

from __future__ import annotations

from typing import Any

import pytest

from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import (
    Event,
    PositionAdvanced,
    TransactionBegin,
    TransactionCommit,
    TransactionMark,
)
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.stop_point import StopPoint
from tests.support.stream import FILE, SERVER, START


def _transaction(number: int) -> list[Event]:
    gtid, at = f"{SERVER}:{number}", 1000 * number
    return [TransactionBegin(gtid, FILE, at, at + 50, 0, 0, None, 1), TransactionCommit(gtid, FILE, at + 1000, 0)]


def _read(point: StopPoint, offset: StreamOffset, batches: list[list[Event]]) -> list[str]:
    """Read batches up to the stop; return the transactions that are read."""
    found: list[str] = []
    handlers: dict[type, Any] = {
        TransactionBegin: offset.begin,
        TransactionCommit: offset.commit,
        PositionAdvanced: offset.advance,
    }

    def read(events: list[Event]) -> None:
        for event in events:
            handlers[type(event)](event)
            found.extend([event.gtid] if isinstance(event, TransactionBegin) else [])

    for batch in batches:
        if point.read(batch, offset, read, lambda: True):
            return found
    pytest.fail(f"the stream does not stop: {found}")


@pytest.mark.parametrize("resumed", [None, 1, 2])
@pytest.mark.parametrize("size", [1, 2, 3, 20])
def test_a_transaction_that_is_partly_written_is_completed(resumed: int | None, size: int) -> None:
    """The boundary is before it, and so before the stored offset: it was set after a producer was killed within it."""
    marks = () if resumed is None else (TransactionMark(f"{SERVER}:{resumed}", 7, 600),)
    events = [PositionAdvanced(FILE, 900, 0), *(event for number in range(1, 5) for event in _transaction(number))]
    batches = [events[at : at + size] for at in range(0, len(events), size)]
    point = StopPoint(START._replace(pos=500))
    expected = [f"{SERVER}:{number}" for number in range(1, (resumed or 0) + 1)]

    assert _read(point, StreamOffset(StoredOffset(START._replace(pos=800), marks)), batches) == expected
