"""Watermark records of splits, in the contract's form."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import replace

from tailrace.producer.kafka.state_store import SplitState, State
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import Range, Split, key_from_json, key_to_json
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.schemas.watermark import Watermark, WatermarkKind, read_position


def low_watermark(split: Split, topic: str, low: Offset, schema: str, *, partitions: int) -> Watermark:
    """Return LOW: nothing of the split is written yet. ``partitions`` are those of the topic."""
    return _record(WatermarkKind.LOW, split, topic, low, schema=schema, partitions=partitions)


def high_watermark(split: Split, topic: str, state: SplitState) -> Watermark:
    """Return HIGH: every row of the split is written."""
    return _record(
        WatermarkKind.HIGH, split, topic, state.high, schema=state.schema, rows=state.rows, checksum=state.checksum
    )


def end_watermark(split: Split, topic: str, state: SplitState, backfill: int) -> Watermark:
    """Return END, the certificate of the split: every change up to HIGH is written too."""
    return replace(high_watermark(split, topic, state), kind=WatermarkKind.END, backfill=backfill)


def table_created(table: TableId, topic: str, offset: Offset, *, partitions: int) -> Watermark:
    """Return CREATED: the topic has no row of the table with a smaller sequence than ``offset``."""
    return Watermark(
        kind=WatermarkKind.CREATED,
        split="",
        snapshot="",
        topic=topic,
        database=table.database,
        table=table.table,
        number=0,
        lower=None,
        upper=None,
        closed=False,
        position=read_position(offset.to_json()),
        rows=0,
        checksum=0,
        backfill=0,
        schema="",
        ts_us=time.time_ns() // 1000,
        partitions=partitions,
    )


def _record(
    kind: WatermarkKind,
    split: Split,
    topic: str,
    offset: Offset,
    *,
    schema: str,
    rows: int = 0,
    checksum: int = 0,
    partitions: int | None = None,
) -> Watermark:
    return Watermark(
        kind=kind,
        split=split.id,
        snapshot=split.snapshot,
        topic=topic,
        database=split.table.database,
        table=split.table.table,
        number=split.number,
        lower=key_to_json(split.range.lower),
        upper=key_to_json(split.range.upper),
        closed=split.range.closed,
        position=read_position(offset.to_json()),
        rows=rows,
        checksum=checksum,
        backfill=0,
        schema=schema,
        ts_us=time.time_ns() // 1000,
        incremental=split.incremental,
        lower_open=split.range.lower_open,
        partitions=partitions,
    )


def ends_of_stored_splits(
    state: State, topic_of: Callable[[TableId], str], leaves: Callable[[TableId], bool]
) -> Iterator[Watermark]:
    """Yield the END of each stored split whose table leaves the state before the stream has passed its HW.

    Readers of a changelog hold the keys of a split until its END, so a split must not leave without one. Its END has
    the number of changes that were written with its header; later changes of its keys, if any, are written without it.
    The ranges of ended splits have theirs already.
    """
    for table, stored in state.splits.items():
        if not leaves(table):
            continue
        plan = state.tables.get(str(table))
        incremental = plan is not None and plan.mode is TableMode.INCREMENTAL
        for each in stored.splits:
            span = Range(key_from_json(each.lower), key_from_json(each.upper), each.closed, each.lower_open)
            split = Split(table, each.snapshot, each.number, span, None, None, incremental=incremental)
            yield end_watermark(split, topic_of(table), each, state.backfill.get(split.id, 0))
