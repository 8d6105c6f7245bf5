"""Checks of a topic after an incremental snapshot: no change is missing, and the rows equal the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import Producer

from tailrace.schemas.names import INCREMENTAL_HEADER, state_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.embedded.kafka import KafkaBroker
from tests.support.reference_model import Row, check_story, ends_of, final_rows
from tests.support.topics import Read, read_topic


def signal(
    broker: KafkaBroker, prefix: str, signal_type: str, data: Mapping[str, Any] | None = None, signal_id: str = "s"
) -> None:
    """Send a signal to the topic of a capture."""
    send(broker, prefix, orjson.dumps({"id": signal_id, "type": signal_type, "data": dict(data or {})}))


def send(broker: KafkaBroker, prefix: str, value: bytes, *, key: str | None = None) -> None:
    """Send a record to the signal topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{prefix}-signal", value, (key or prefix).encode())
    assert producer.flush(30) == 0


def stored_state(broker: KafkaBroker, prefix: str, key: str) -> dict[str, Any] | None:
    """Return the value of a key in the state topic."""
    records = [r for r in read_topic(broker.bootstrap, state_topic(prefix)) if r.key == key.encode()]
    return orjson.loads(records[-1].value) if records and records[-1].value else None


def incremental_snapshot_done(broker: KafkaBroker, prefix: str) -> bool:
    """Return whether a signal was processed and no snapshot is pending."""
    signals = stored_state(broker, prefix, "signals")
    return signals is not None and not signals["queue"]


def is_incremental_read(record: Read) -> bool:
    """Return whether a record is a row of an incremental snapshot."""
    return INCREMENTAL_HEADER in record.headers and record.value is not None and record.json["op"] == "r"


def incremental_rows(broker: KafkaBroker, prefix: str, database: str, table: str = "t") -> list[Read]:
    """Return the rows of incremental snapshots."""
    return [
        record for record in read_topic(broker.bootstrap, f"{prefix}.{database}.{table}") if is_incremental_read(record)
    ]


def incremental_ends(broker: KafkaBroker, prefix: str) -> list[Watermark]:
    """Return the END certificates of incremental splits."""
    marks = [Watermark.from_json(r.value) for r in read_topic(broker.bootstrap, watermarks_topic(prefix)) if r.value]
    return [mark for mark in marks if mark.incremental and mark.kind is WatermarkKind.END]


def notifications(broker: KafkaBroker, topic: str, aggregate: str = "Incremental Snapshot") -> list[dict[str, Any]]:
    """Return the notifications of one aggregate in order."""
    values = [record.json for record in read_topic(broker.bootstrap, topic)]
    return [value for value in values if value["aggregate_type"] == aggregate]


def verify_incremental(broker: KafkaBroker, prefix: str, database: str, table: str = "t") -> dict[bytes, Row]:
    """Check all records of a table; return the rows given by the last record of each key.

    Without the rows of incremental snapshots, the topic must be complete on its own: every change, in order.
    """
    topic = f"{prefix}.{database}.{table}"
    records = read_topic(broker.bootstrap, topic)
    marks = read_topic(broker.bootstrap, watermarks_topic(prefix))
    initial = [mark for mark in marks if mark.value and not Watermark.from_json(mark.value).incremental]
    expected = check_story([record for record in records if not is_incremental_read(record)], ends_of(initial, topic))
    rows = final_rows(records)
    assert rows == expected, "a row of an incremental snapshot comes after a change that it does not include"
    reads: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    for record in records:
        split = record.headers.get(INCREMENTAL_HEADER)
        if split is not None and record.value is not None:
            (reads if record.json["op"] == "r" else changes)[split.decode()] += 1
            if record.json["op"] == "r":
                assert record.json["source"]["snapshot"] == "incremental"
    for end in incremental_ends(broker, prefix):
        if end.topic == topic:
            assert (end.rows, end.backfill) == (reads[end.split], changes[end.split]), end.split
    return rows
