"""Watermark records of splits, in the contract's form."""

from __future__ import annotations

import time

from tailrace.producer.kafka.state_store import SplitState
from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.split import Split, key_to_json
from tailrace.producer.model.table import TableId
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
    return _record(
        WatermarkKind.END,
        split,
        topic,
        state.high,
        schema=state.schema,
        rows=state.rows,
        checksum=state.checksum,
        backfill=backfill,
    )


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
    backfill: int = 0,
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
        backfill=backfill,
        schema=schema,
        ts_us=time.time_ns() // 1000,
        incremental=split.incremental,
        lower_open=split.range.lower_open,
        partitions=partitions,
    )
