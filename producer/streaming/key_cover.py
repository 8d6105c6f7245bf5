"""The spans of a table's keys in the form that the compiled extension reads, for tables that are cut by one integer.

A cover has one decision for each span, and asks for that of a committed split once for each transaction. It is part of
the spans (``tracked_table.py``), so that it does not outlive what it was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.native.loader import codec
from tailrace.producer.streaming.tracked_table import ChangeDecision, TrackedSplit, TrackedTable

if TYPE_CHECKING:
    from tailrace.producer.native.codec import KeyCover

WRITTEN: Final = 0
SKIPPED: Final = 1
DECLINED: Final = 2

_LEAST: Final = -(1 << 63)
_GREATEST: Final = (1 << 63) - 1
_CODES: Final = {ChangeDecision.EMIT: WRITTEN, ChangeDecision.SKIP: SKIPPED}


class _Begin:
    """Where a transaction begins; the stream has read up to ``read``, in it or before it."""

    def __init__(self, read: Callable[[], Offset], transaction: TransactionBegin) -> None:
        self._read = read
        self._transaction = transaction

    @property
    def position(self) -> Offset:
        """See ``HasPosition``."""
        return self._read().at_begin(self._transaction)


def cover_of(table: TrackedTable, read: Callable[[], Offset]) -> KeyCover | None:
    """Return the cover of a table under snapshot; None: its changes need another decision.

    ``read`` returns how far the stream has read, which may be before the transaction that is decided on.
    """
    spans = table.spans
    if spans is not None and spans.cover is None and (of_integers := key_spans(table)) is not None:
        incremental = table.mode is TableMode.INCREMENTAL

        def decide(split: TrackedSplit, transaction: TransactionBegin) -> int:
            begin = _Begin(read, transaction)
            decision, _ = split.decide_committed(transaction, begin, incremental=incremental)
            return _CODES.get(decision, DECLINED)

        spans.cover = codec.KeyCover(list(of_integers), list(of_integers.values()), decide)
    return None if spans is None else spans.cover


def key_spans(table: TrackedTable) -> dict[int, int | TrackedSplit] | None:
    """Return the first key of each span, in order, and what decides in it; None: no integer cuts the table."""
    spans, order = table.spans, table.order
    if spans is None or order is None or len(order.columns) != 1 or not order.columns[0].is_integer:
        return None
    found: dict[int, int | TrackedSplit] = {}
    for (key, behind), span in zip(spans.starts, spans.spans, strict=True):
        first = int(key[0]) + behind if key else _LEAST
        # The extension declines keys of more than 63 bits, which unsigned columns have.
        if first <= _GREATEST:
            found[first] = span if isinstance(span, TrackedSplit) else _CODES.get(span[0], DECLINED)
    return found
