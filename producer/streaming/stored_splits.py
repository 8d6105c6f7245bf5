"""END watermarks of stored splits whose tables leave the state before the stream has passed their high watermarks.

Readers of a changelog hold the keys of a split until its END, so a split must not leave without one. Its END has the
number of changes that were written with its header; later changes of its keys, if any, are written without it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tailrace.producer.kafka.state_store import State
from tailrace.producer.model.split import Range, Split, key_from_json
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.streaming.watermark_record import end_watermark
from tailrace.schemas.watermark import Watermark


def ends_of_stored_splits(
    state: State, topic_of: Callable[[TableId], str], leaves: Callable[[TableId], bool]
) -> Iterator[Watermark]:
    """Yield the END of each stored split whose table leaves; the ranges of ended splits have theirs already."""
    for table, stored in state.splits.items():
        if not leaves(table):
            continue
        plan = state.tables.get(str(table))
        incremental = plan is not None and plan.mode is TableMode.INCREMENTAL
        for each in stored.splits:
            span = Range(key_from_json(each.lower), key_from_json(each.upper), each.closed, each.lower_open)
            split = Split(table, each.snapshot, each.number, span, None, None, incremental=incremental)
            yield end_watermark(split, topic_of(table), each, state.backfill.get(split.id, 0))
