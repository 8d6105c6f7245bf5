"""What the rows of a table are for the consumer: of each key the record with the greatest sequence counts.

Records with a smaller sequence than that of the last truncate event, or than the position of CREATED in the topic of
watermarks, are of rows that are gone (spark_consumer/normalize/latest.py).
"""

from __future__ import annotations

from typing import Any

from tailrace.schemas.names import EVENT_HEADER, watermarks_topic
from tailrace.schemas.sequence import Sequence
from tailrace.schemas.watermark import Watermark, WatermarkKind
from tests.embedded.kafka import KafkaBroker
from tests.support.topics import Read, read_topic

_FIRST = Sequence(0, 0, 0, 0, 0)


def consumer_rows(broker: KafkaBroker, prefix: str, table: str) -> dict[bytes, dict[str, Any]]:
    """Return the rows of ``db.table`` by key."""
    topic = f"{prefix}.{table}"
    records = [record for record in read_topic(broker.bootstrap, topic) if record.value is not None]
    truncates = [sequence_of(record) for record in records if record.json["op"] == "t"]
    begin = max([_FIRST, *truncates, *creations(broker, prefix, table)])
    newest: dict[bytes, tuple[Sequence, int, Any]] = {}
    for record in records:
        change, sequence = record.json, sequence_of(record)
        if change["op"] == "t" or sequence < begin:
            continue
        assert record.key is not None
        found = sequence, record.offset, change["after"]
        newest[record.key] = max(newest.get(record.key, found), found, key=lambda each: each[:2])
    return {key: row for key, (_, _, row) in newest.items() if row is not None}


def creations(broker: KafkaBroker, prefix: str, table: str) -> list[Sequence]:
    """Return the sequences of the records CREATED of ``db.table``, in their order."""
    records = read_topic(broker.bootstrap, watermarks_topic(prefix))
    marks = [Watermark.from_json(record.value or b"") for record in records]
    return [
        Sequence.at(mark.position.epoch, mark.position.file, mark.position.pos)
        for mark in marks
        if mark.kind is WatermarkKind.CREATED and mark.topic == f"{prefix}.{table}"
    ]


def sequence_of(record: Read) -> Sequence:
    """Return the sequence of a record that has a value."""
    source = record.json["source"]
    epoch, event = map(int, record.headers[EVENT_HEADER].split(b"."))
    return Sequence.at(epoch, source["file"], source["pos"], event)._replace(row=source["row"] or 0)
