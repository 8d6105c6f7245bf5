"""Checks of a topic after an incremental snapshot: no change is missing, and its rows equal the source."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import Any

import orjson
from confluent_kafka import Producer

from tailrace.schemas.names import INCREMENTAL_HEADER, state_topic, watermarks_topic
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.embedded.kafka import KafkaBroker
from tests.support.reference_model import Row, check_history, ends_of, final_rows
from tests.support.topics import Read, read_topic


def signal(
    broker: KafkaBroker, prefix: str, kind: str, data: Mapping[str, Any] | None = None, ident: str = "s"
) -> None:
    """Send a signal to the topic of a capture."""
    send(broker, prefix, orjson.dumps({"id": ident, "type": kind, "data": dict(data or {})}))


def send(broker: KafkaBroker, prefix: str, value: bytes, *, key: str | None = None) -> None:
    """Send a record to the signal topic."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{prefix}-signal", value, (key or prefix).encode())
    assert producer.flush(120) == 0


def state_of(broker: KafkaBroker, prefix: str, key: str) -> dict[str, Any] | None:
    """Return the last value of a key in the state topic."""
    found = [r for r in read_topic(broker.bootstrap, state_topic(prefix)) if r.key == key.encode()]
    return orjson.loads(found[-1].value) if found and found[-1].value else None


def pending_requests(broker: KafkaBroker, prefix: str) -> list[dict[str, Any]]:
    """Return the incremental snapshots that the state has as pending, by number."""
    state = {r.key or b"": r.value for r in read_topic(broker.bootstrap, state_topic(prefix))}
    found = {key: orjson.loads(value) for key, value in state.items() if key.startswith(b"request/") and value}
    return [found[key] for key in sorted(found, key=lambda key: int(key.partition(b"/")[2]))]


def signal_completed(broker: KafkaBroker, prefix: str) -> bool:
    """Return whether a signal was processed and its queue is empty."""
    signals = state_of(broker, prefix, "signals")
    return signals is not None and not signals["queue"]


def is_incremental(record: Read) -> bool:
    """Return whether a record is a row of an incremental snapshot."""
    return INCREMENTAL_HEADER in record.headers and record.value is not None and record.json["op"] == "r"


def incremental_rows(broker: KafkaBroker, prefix: str, database: str, table: str = "t") -> list[Read]:
    """Return the rows of incremental snapshots."""
    return [record for record in read_topic(broker.bootstrap, f"{prefix}.{database}.{table}") if is_incremental(record)]


def incremental_ends(broker: KafkaBroker, prefix: str) -> list[Watermark]:
    """Return the END watermarks of incremental splits."""
    marks = [Watermark.from_json(r.value) for r in read_topic(broker.bootstrap, watermarks_topic(prefix)) if r.value]
    return [mark for mark in marks if mark.incremental and mark.kind is WatermarkKind.END]


def notifications(broker: KafkaBroker, topic: str, aggregate: str = "Incremental Snapshot") -> list[dict[str, Any]]:
    """Return the notifications of one aggregate in order."""
    found = [record.json for record in read_topic(broker.bootstrap, topic)]
    return [note for note in found if note["aggregate_type"] == aggregate]


def verified_incremental(broker: KafkaBroker, prefix: str, database: str, table: str = "t") -> dict[bytes, Row]:
    """Check all records of a topic. Return the rows that the last record of each key gives.

    Without the incremental rows the topic must contain every change in order, as without an incremental snapshot.
    """
    topic = f"{prefix}.{database}.{table}"
    records = read_topic(broker.bootstrap, topic)
    marks = read_topic(broker.bootstrap, watermarks_topic(prefix))
    first = [mark for mark in marks if mark.value and not Watermark.from_json(mark.value).incremental]
    expected = check_history([record for record in records if not is_incremental(record)], ends_of(first, topic))
    rows = final_rows(records)
    assert rows == expected, "an incremental row follows a change that it does not contain"
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
