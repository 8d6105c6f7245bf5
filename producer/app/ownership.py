"""Which instance owns the prefix: this process, or one that has taken over meanwhile.

Of two instances the older one ends, with the name of the other one: kafka/generation.py has the rule. An instance that
has nothing to write commits every few seconds, so it learns that it is fenced (streaming/stream_transaction.py).
"""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from tailrace.producer.app.connection_settings import kafka_settings
from tailrace.producer.config import ProducerConfig
from tailrace.producer.errors import ProducerFencedError, ServerIdInUseError, StateLostError
from tailrace.producer.kafka.generation import Generation, GenerationFence, announce, replaced_by
from tailrace.producer.kafka.topics import Topics
from tailrace.producer.ops.status import Status
from tailrace.runtime.errors import KafkaRequestError, KafkaUnavailableError, Retryable, TailraceError
from tailrace.schemas.names import state_topic

log = structlog.get_logger(__name__)

_RETRY_S: Final = 1.0


class Ownership:
    """The identity of this process, and the generation of its last session."""

    def __init__(self, config: ProducerConfig, stop: threading.Event, status: Status) -> None:
        self.own = Generation(0, str(uuid.uuid4()))
        """This process; each session takes over with a number of its own."""
        self.fence: GenerationFence | None = None
        """Set when this process has announced itself, and by each session that has taken over."""
        self._kafka = kafka_settings(config)
        self._stop = stop
        self._status = status
        self._topic = state_topic(config.topics.prefix)

    def announce(self) -> Generation:
        """Announce this process, once, before it fences others; return what each of its sessions takes over with."""
        if self.fence is None:
            self.fence = announce(self._kafka, self._topic, self.own)
            self.own = self.fence.generation
        return self.own

    @contextmanager
    def naming_the_winner(self) -> Iterator[None]:
        """Raise InstanceReplacedError instead of an error that another instance can cause, if one owns the prefix.

        A new session after a retryable error would fence that instance. ProducerFencedError without another instance
        means that the broker has ended a transaction by its timeout, or that an old reader has registered late.
        ServerIdInUseError comes first if the stream is idle: both instances have the server id of the prefix.
        """
        try:
            yield
        except TailraceError as error:
            fenced = isinstance(error, ProducerFencedError)
            winner = self._winner(fenced=fenced) if isinstance(error, Retryable | ServerIdInUseError) else None
            if winner is not None:
                raise replaced_by(winner) from error
            raise

    def _winner(self, *, fenced: bool) -> Generation | None:
        if self.fence is None:
            return None
        while True:
            try:
                if Topics(self._kafka).missing([self._topic]):
                    raise StateLostError(
                        f"the topic {self._topic} does not exist any more: it has the state of the producer",
                        hint="restore the topic, or capture under another topic.prefix",
                    )
                return self.fence.replacement(self._kafka, fenced=fenced)
            except KafkaUnavailableError as error:  # after half a minute
                log.warning(
                    "waiting for Kafka: its state topic says which instance owns the prefix", error=error.message
                )
                self._status.failed(error)
                if self._stop.wait(_RETRY_S):
                    return None
            except KafkaRequestError:
                return None  # the session's own error says more
