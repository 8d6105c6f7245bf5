"""Checks of a topic whose table was read again: not one change may be missing, and the rows must be the source's."""

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
    broker: KafkaBroker, prefix: str, kind: str, data: Mapping[str, Any] | None = None, ident: str = "s"
) -> None:
    """Send a signal to the topic of a capture."""
    send(broker, prefix, orjson.dumps({"id": ident, "type": kind, "data": dict(data or {})}))


def send(broker: KafkaBroker, prefix: str, value: bytes, *, key: str | None = None) -> None:
    """Send a record to the topic of signals."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(f"{prefix}-signal", value, (key or prefix).encode())
    assert producer.flush(30) == 0


def state_of(broker: KafkaBroker, prefix: str, key: str) -> dict[str, Any] | None:
    """Return what the state topic holds under a key."""
    found = [r for r in read_topic(broker.bootstrap, state_topic(prefix)) if r.key == key.encode()]
    return orjson.loads(found[-1].value) if found and found[-1].value else None


def settled(broker: KafkaBroker, prefix: str) -> bool:
    """Tell whether a signal was taken and nothing of it is left."""
    asked = state_of(broker, prefix, "signals")
    return asked is not None and not asked["queue"]


def is_again(record: Read) -> bool:
    """Tell whether a record is a row that was read again."""
    return INCREMENTAL_HEADER in record.headers and record.value is not None and record.json["op"] == "r"


def rows_again(broker: KafkaBroker, prefix: str, database: str, table: str = "t") -> list[Read]:
    """Return the rows that were read again."""
    return [record for record in read_topic(broker.bootstrap, f"{prefix}.{database}.{table}") if is_again(record)]


def ends_again(broker: KafkaBroker, prefix: str) -> list[Watermark]:
    """Return the ENDs of splits that were read again."""
    marks = [Watermark.from_json(r.value) for r in read_topic(broker.bootstrap, watermarks_topic(prefix)) if r.value]
    return [mark for mark in marks if mark.incremental and mark.kind is WatermarkKind.END]


def notifications(broker: KafkaBroker, topic: str, aggregate: str = "Incremental Snapshot") -> list[dict[str, Any]]:
    """Return the notifications of one aggregate in order."""
    found = [record.json for record in read_topic(broker.bootstrap, topic)]
    return [note for note in found if note["aggregate_type"] == aggregate]


def verified_again(broker: KafkaBroker, prefix: str, database: str, table: str = "t") -> dict[bytes, Row]:
    """Check the whole story; return the rows that the last record of each key gives.

    Without the rows read again the topic must tell the same story as if nobody had asked: every change, in order.
    """
    topic = f"{prefix}.{database}.{table}"
    records = read_topic(broker.bootstrap, topic)
    marks = read_topic(broker.bootstrap, watermarks_topic(prefix))
    first = [mark for mark in marks if mark.value and not Watermark.from_json(mark.value).incremental]
    told = check_story([record for record in records if not is_again(record)], ends_of(first, topic))
    rows = final_rows(records)
    assert rows == told, "a row that was read again stands after a change that it lacks"
    reads: Counter[str] = Counter()
    changes: Counter[str] = Counter()
    for record in records:
        split = record.headers.get(INCREMENTAL_HEADER)
        if split is not None and record.value is not None:
            (reads if record.json["op"] == "r" else changes)[split.decode()] += 1
            if record.json["op"] == "r":
                assert record.json["source"]["snapshot"] == "incremental"
    for end in ends_again(broker, prefix):
        if end.topic == topic:
            assert (end.rows, end.backfill) == (reads[end.split], changes[end.split]), end.split
    return rows
