"""How far a consumer is, read from its checkpoint, and how far Kafka is."""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path

from confluent_kafka import Consumer, TopicPartition

Ends = dict[str, dict[int, int]]
"""Topic to partition to offset."""


def stable_ends(bootstrap: str, topics: Iterable[str]) -> Ends:
    """Return the offsets up to which committed records can be read now; topics that do not exist are left out."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "soak", "isolation.level": "read_committed", "log_level": 0}
    client = Consumer(settings)
    try:
        known = client.list_topics(timeout=60).topics
        return {
            topic: {
                number: client.get_watermark_offsets(TopicPartition(topic, number), timeout=60)[1]
                for number in known[topic].partitions
            }
            for topic in topics
            if topic in known
        }
    finally:
        client.close()


def has_applied(checkpoint: Path, wanted: Ends) -> bool:
    """Return whether all records before some offsets are applied."""
    done = _committed(checkpoint)
    for topic, ends in wanted.items():
        position = checkpoint / "tailrace" / "parked" / f"{topic}.json"
        text = _text(position)
        found = done.get(topic, {})
        if text is not None:
            found = {} if not text else json.loads(text)["starts"]
        if any(found.get(str(number), 0) < end for number, end in ends.items()):
            return False
    return True


def parked_reason(checkpoint: Path, topic: str) -> str | None:
    """Return why a table is parked; None if it is not."""
    text = _text(checkpoint / "tailrace" / "parked" / f"{topic}.json")
    reason: str | None = json.loads(text)["reason"] if text else None
    return reason


def _committed(checkpoint: Path) -> dict[str, dict[str, int]]:
    folder = checkpoint / "commits"
    numbers = [int(path.name) for path in folder.iterdir() if path.name.isdigit()] if folder.is_dir() else []
    text = _text(checkpoint / "offsets" / str(max(numbers))) if numbers else None
    found: dict[str, dict[str, int]] = json.loads(text.splitlines()[-1]) if text else {}
    return found


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8")
    except OSError:
        return None
