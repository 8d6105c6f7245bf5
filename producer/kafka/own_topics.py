"""The topics of Tailrace itself, and the settings that they are created with."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from tailrace.producer.kafka.topics import TopicSpec
from tailrace.schemas.names import schemas_topic, state_topic, watermarks_topic

_SCHEMAS: Final[Mapping[str, str]] = {"cleanup.policy": "compact"}

_STATE: Final[Mapping[str, str]] = {
    "cleanup.policy": "compact",
    # The offset is written several times a second, and a start reads the whole topic. The active segment is never
    # compacted, so it is kept small, and the rest is compacted soon.
    "segment.ms": "300000",
    "segment.bytes": str(8 * 1024 * 1024),
    "min.cleanable.dirty.ratio": "0.1",
}

_WATERMARKS: Final[Mapping[str, str]] = {
    # A changelog reader may start at any time and needs the END certificate of every split. The three records of a
    # split share one key, so the topic is not compacted.
    "cleanup.policy": "delete",
    "retention.ms": "-1",
    "retention.bytes": "-1",
}


def own_topics(prefix: str, *, replication_factor: int) -> Iterator[TopicSpec]:
    """Yield the topics of a prefix that exist whatever is captured; each has one partition."""
    for name, config in (
        (state_topic(prefix), _STATE),
        (schemas_topic(prefix), _SCHEMAS),
        (watermarks_topic(prefix), _WATERMARKS),
    ):
        yield TopicSpec(name, 1, replication_factor, config, exact_partitions=True, kept=True)
