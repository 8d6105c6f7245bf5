"""What a table's splits decide on its changes, in the form that the compiled extension reads.

``SplitRegistry.decide`` has the rules. Here they are applied to the spans between the bounds of the splits, of tables
that are cut by one integer: a cover has one decision for each span, and asks for that of a committed split once for
each transaction. What changes a table removes its cover, so that none outlives what it was made of.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import EndedRange, SortKey
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.streaming.tracked_table import WITH_SPLITS, ChangeDecision, TrackedSplit, TrackedTable

if TYPE_CHECKING:
    from tailrace.producer.native.codec import KeyCover

WRITTEN: Final = 0
SKIPPED: Final = 1
DECLINED: Final = 2

_LEAST: Final = -(1 << 63)
_GREATEST: Final = (1 << 63) - 1
_CODES: Final = {ChangeDecision.EMIT: WRITTEN, ChangeDecision.SKIP: SKIPPED}

Span = int | TrackedSplit


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
    if table.cover is None and (spans := key_spans(table)) is not None:
        from tailrace.producer.native import codec  # noqa: PLC0415 - the module is optional

        incremental = table.mode is TableMode.INCREMENTAL

        def decide(split: TrackedSplit, transaction: TransactionBegin) -> int:
            begin = _Begin(read, transaction)
            decision, _ = split.decide_committed(transaction, begin, incremental=incremental)
            return _CODES.get(decision, DECLINED)

        table.cover = codec.KeyCover(list(spans), list(spans.values()), decide)
    return table.cover


def key_spans(table: TrackedTable) -> dict[int, Span] | None:
    """Return the first key of each span, in order, and what decides in it; None: no integer cuts the table."""
    order = table.order
    if table.mode not in WITH_SPLITS or order is None:
        return None
    columns = order.columns
    if len(columns) != 1 or not columns[0].is_integer:
        return None
    unread = WRITTEN if table.mode is TableMode.INCREMENTAL else SKIPPED
    starts: dict[int, Span] = {_LEAST: unread}
    for each in table.ordered:
        covers = each.split if isinstance(each, TrackedSplit) else each
        lower, upper = _key(covers.lower_order), _key(covers.upper_order)
        starts[_LEAST if lower is None else lower] = _span(each, unread)
        if upper is not None:
            starts[upper + covers.range.closed] = unread
    if table.greatest is not None:
        above = table.greatest[0] + 1
        starts = {start: span for start, span in starts.items() if start < above}
        starts[above] = WRITTEN if table.above is None else _span(table.above, unread)
    if list(starts) != sorted(starts):
        return None  # ranges that are not disjoint
    # The extension declines keys of more than 63 bits, which unsigned columns have.
    return {start: span for start, span in starts.items() if start <= _GREATEST}


def _key(order: SortKey | None) -> int | None:
    return None if order is None else int(order[0])


def _span(covers: TrackedSplit | EndedRange, unread: int) -> Span:
    if isinstance(covers, EndedRange):
        return WRITTEN
    if covers.high is not None:
        return covers
    return unread if covers.abandoned else DECLINED
