"""Generations: which instance owns a prefix.

Kafka fences by who registered a transactional id last. That alone decides nothing: an instance that is fenced, and
starts again, fences the other one. So a process announces itself in the state topic, once, before it fences anything,
and the process that announced last owns the prefix. One that is fenced by another process finds the announcement of the
other, and ends if that is later than its own; else it goes on, and the other one, which it fences, ends.

Each session also writes a generation, whose number grows. An older instance that starts a snapshot reader late would
fence the reader of the instance that took over. Therefore the generation is written before the readers are fenced, and
each reader looks for a later generation after it has registered.
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
from tailrace.producer.kafka.client import KafkaSettings, write_outside_transaction
from tailrace.producer.kafka.topic_reader import end_offset, messages, topic_consumer
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.schemas.known_fields import known_fields

GENERATION_KEY: Final = b"generation"
"""Key of the record in the state topic."""
ANNOUNCEMENT_KEY: Final = b"takeover"
"""Key of the record that a process writes before it fences others; outside of any transaction."""
_UNCOMMITTED: Final = {"isolation.level": "read_uncommitted"}


@dataclass(frozen=True, slots=True)
class Generation:
    """One takeover of a prefix, and the process that did it."""

    number: int
    run_id: str
    host: str = field(default_factory=socket.gethostname)
    pid: int = field(default_factory=os.getpid)
    started: str = field(default_factory=lambda: time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()))
    announced: int = -1
    """Kafka offset of the announcement of the process; -1: it is not announced, or its program announces nothing."""

    def after(self, other: Generation) -> bool:
        """Return whether this is another process than ``other``, and a later one."""
        if self.run_id == other.run_id:
            return False
        if self.announced < 0 or other.announced < 0:
            return self.number > other.number
        return self.announced > other.announced

    def to_json(self) -> bytes:
        return orjson.dumps(asdict(self))

    @classmethod
    def from_json(cls, value: bytes) -> Generation:
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
        found = [each for each, claimed in _generations(settings, self.topic, self.after) if claimed]
        latest = max(found, key=lambda each: each.number, default=self.generation)
        if latest.number > self.generation.number:
            raise ProducerFencedError(
                "a snapshot reader started after its session was replaced",
                generation=self.generation.number,
                latest=latest.number,
            )

    def replacement(self, settings: KafkaSettings, *, fenced: bool) -> Generation | None:
        """Return the process that has taken over.

        ``fenced``: who only announced itself counts too, since one of those has fenced this process. Else it may never
        have come to that: it counts when it has a generation.
        """
        found = [each for each, claimed in _generations(settings, self.topic, self.after) if claimed or fenced]
        later = [each for each in found if each.after(self.generation)]
        return max(later, key=lambda each: (each.announced, each.number), default=None)


def announce(settings: KafkaSettings, topic: str, own: Generation) -> GenerationFence:
    """Write that a process takes over, before it fences any other: not in a transaction, so it is readable at once."""
    operation = f"announcing this process in {topic}"
    offset = write_outside_transaction(settings, topic, ANNOUNCEMENT_KEY, own.to_json(), operation)
    return GenerationFence(replace(own, announced=offset), topic, offset)


def claim(producer: TransactionalProducer, topic: str, own: Generation, previous: int) -> GenerationFence:
    """Write the generation after ``previous``; ``producer`` has just fenced older instances of the stream."""
    own = replace(own, number=previous + 1)
    fence = GenerationFence(own, topic, max(own.announced, 0))
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


def _generations(settings: KafkaSettings, topic: str, start: int) -> list[tuple[Generation, bool]]:
    """Return the generations (True) and announcements (False) from a Kafka offset on.

    The stream may write to the topic meanwhile.
    """
    # Uncommitted records too: an open transaction of another reader must not hide a later generation.
    with topic_consumer(settings, topic, **_UNCOMMITTED) as consumer:
        found: list[tuple[Generation, bool]] = []
        for message in messages(consumer, topic, {0: start}, settings.request_timeout_s):
            key, value = message.key(), message.value()
            if value is not None and key == GENERATION_KEY:
                found.append((Generation.from_json(value), True))
            elif value is not None and key == ANNOUNCEMENT_KEY:
                found.append((replace(Generation.from_json(value), announced=message.offset() or 0), False))
        return found
