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
) -> Iterator[tuple[str, Watermark | None]]:
    """Yield the id and the END of each split whose table leaves; None: its END is written already."""
    backfills = state.offset.backfill if state.offset is not None else {}
    for split_id, stored in state.splits.items():
        table = stored.table_id
        if not leaves(table):
            continue
        if stored.ended:
            yield split_id, None
            continue
        span = Range(key_from_json(stored.lower), key_from_json(stored.upper), stored.closed)
        plan = state.tables.get(str(table))
        incremental = plan is not None and plan.mode is TableMode.INCREMENTAL
        split = Split(table, stored.snapshot, stored.number, span, None, None, incremental=incremental)
        yield split_id, end_watermark(split, topic_of(table), stored, backfills.get(split_id, 0))
