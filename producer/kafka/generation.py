"""Generations: which instance owns a prefix, told by numbers that grow whenever one takes over.

Kafka fences by who registered a transactional id last. An older instance that starts a snapshot reader late would so
fence the reader of the instance that took over. Therefore an instance writes its generation before it fences the
readers, and each reader looks for a later generation after it has registered.
"""

from __future__ import annotations

import os
import socket
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

import orjson

from tailrace.producer.errors import InstanceReplacedError, ProducerFencedError
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.topic_reader import end_offset, messages, topic_consumer
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.schemas.known_fields import known_fields

GENERATION_KEY: Final = b"generation"
"""Key of the record in the state topic."""
_UNCOMMITTED: Final = {"isolation.level": "read_uncommitted"}


@dataclass(frozen=True, slots=True)
class Generation:
    """One takeover of a prefix, and the process that did it."""

    number: int
    run_id: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))

    def to_json(self) -> bytes:
        """Return the record value."""
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, value: bytes) -> Generation:
        """Read what ``to_json`` returned."""
        body: Mapping[str, Any] = orjson.loads(value)
        return cls(**known_fields(cls, body))


@dataclass(frozen=True, slots=True)
class GenerationFence:
    """A generation, and where later ones are in the state topic."""

    generation: Generation
    topic: str
    after: int
    """End of the topic before the generation was written, or later: no later generation is before it."""

    def moved_to_end(self, settings: KafkaSettings, commit: Callable[[], None]) -> GenerationFence:
        """Return the fence without what the topic has by now, so that readers need not look through it.

        ``commit`` commits a transaction of the stream's producer. It succeeds only if no later instance has registered,
        and an instance writes its generation after that.
        """
        end = _end(settings, self.topic)
        commit()
        return replace(self, after=end)

    def require_latest(self, settings: KafkaSettings) -> None:
        """Raise ProducerFencedError if there is a later generation: the session looks whose it is."""
        latest = self._latest(settings)
        if latest is not None and latest.number > self.generation.number:
            raise ProducerFencedError(
                "a snapshot reader started after its session was replaced",
                generation=self.generation.number,
                latest=latest.number,
            )

    def replacement(self, settings: KafkaSettings) -> Generation | None:
        """Return the latest generation if it is that of another process."""
        latest = self._latest(settings)
        return latest if latest is not None and latest.run_id != self.generation.run_id else None

    def _latest(self, settings: KafkaSettings) -> Generation | None:
        return max(_generations(settings, self.topic, self.after), key=lambda found: found.number, default=None)


def claim(
    settings: KafkaSettings, producer: TransactionalProducer, topic: str, own: Generation, previous: int
) -> GenerationFence:
    """Write the generation after ``previous``; ``producer`` has just fenced older instances of the stream."""
    own = replace(own, number=previous + 1)
    fence = GenerationFence(own, topic, _end(settings, topic))
    producer.begin()
    producer.send(topic, GENERATION_KEY, own.to_json())
    producer.commit()
    return fence


def replaced_by(winner: Generation) -> InstanceReplacedError:
    """Return the error of an instance that has lost its prefix."""
    return InstanceReplacedError(
        "another producer with this topic.prefix has taken over",
        hint="run one producer for one topic.prefix: stop the other one, or leave this one stopped",
        host=winner.host,
        pid=winner.pid,
        started=winner.started,
        generation=winner.number,
    )


def _end(settings: KafkaSettings, topic: str) -> int:
    with topic_consumer(settings, topic, **_UNCOMMITTED) as consumer:
        return end_offset(consumer, topic, 0, settings.request_timeout_s)


def _generations(settings: KafkaSettings, topic: str, start: int) -> list[Generation]:
    """Return the generations from a Kafka offset on; the stream may write to the topic meanwhile."""
    # Uncommitted records too: an open transaction of another reader must not hide a later generation.
    with topic_consumer(settings, topic, **_UNCOMMITTED) as consumer:
        return [
            Generation.from_json(value)
            for message in messages(consumer, topic, {0: start}, settings.request_timeout_s)
            if message.key() == GENERATION_KEY and (value := message.value()) is not None
        ]
