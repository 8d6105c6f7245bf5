"""Channels beside the log: the topic and the file, looked at now and then on a thread of their own.

What they find is taken on the log reader's thread. A channel that fails says so and is tried again; nothing of the
log depends on it.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.producer.kafka.client import ClientConfig
from tailrace.producer.signals.queue import ChannelOffsets
from tailrace.producer.signals.signal import InvalidSignalError, Signal, from_json

log = structlog.get_logger(__name__)

Found = list[Signal | InvalidSignalError]
Take = Callable[[Found, Callable[[ChannelOffsets], ChannelOffsets]], None]
"""Has signals taken; the second argument moves the channel's mark on. Returns when both are done."""


class Channel(Protocol):
    """One source of signals."""

    name: str

    def poll(self, take: Take) -> None:
        """Have whatever is there taken."""

    def close(self) -> None:
        """Let go."""


class KafkaChannel:
    """Partition 0 of a topic, from the mark on: records whose key is the topic prefix."""

    name = "kafka"

    def __init__(self, settings: ClientConfig, *, topic: str, prefix: str, mark: int, wait_s: float) -> None:
        """``settings`` are the consumer's."""
        self._topic = topic
        self._key = prefix.encode()
        self._wait_s = wait_s
        self._consumer = Consumer(settings)
        self._consumer.assign([TopicPartition(topic, 0, mark + 1 if mark >= 0 else OFFSET_BEGINNING)])

    def poll(self, take: Take) -> None:
        """Have what came meanwhile taken, record by record in order."""
        for message in self._consumer.consume(100, self._wait_s):
            error = message.error()
            if error is not None:
                if error.code() != KafkaError.UNKNOWN_TOPIC_OR_PART:
                    raise KafkaException(error)
                continue
            offset = message.offset()
            assert offset is not None
            take(self._read(message.key(), message.value()), lambda marks, at=offset: replace(marks, kafka=at))  # type: ignore[misc]

    def _read(self, key: bytes | str | None, value: bytes | str | None) -> Found:
        if key != self._key:
            log.info("a signal is for another", key=key, mine=self._key)
            return []
        return [] if not value else [parsed(value)]

    def close(self) -> None:
        """Leave the topic."""
        self._consumer.close()


class FileChannel:
    """A file of signals, one JSON object a line, which is taken away when it is read.

    It is renamed first, so that a line that is written meanwhile is in the next file; a file whose signals were taken
    is known by its digest, should the process die before it is removed.
    """

    name = "file"

    def __init__(self, path: Path, *, mark: str) -> None:
        self._path = path
        self._taken = path.with_name(path.name + ".taken")
        self._mark = mark

    def poll(self, take: Take) -> None:
        """Have the file's signals taken, if there is one."""
        if not self._taken.exists():
            if not self._path.is_file() or not self._path.stat().st_size:
                return
            self._path.rename(self._taken)
        data = self._taken.read_bytes()
        # The time of writing is part of it: the same lines may be written again on purpose.
        digest = hashlib.sha256(b"%d/%b" % (self._taken.stat().st_mtime_ns, data)).hexdigest()
        if digest != self._mark:
            found = [parsed(line) for line in data.splitlines() if line.strip()]
            take(found, lambda marks: replace(marks, file=digest))
            self._mark = digest
        self._taken.unlink()

    def close(self) -> None:
        """Nothing is held open."""


def parsed(text: bytes | str) -> Signal | InvalidSignalError:
    """Return the signal, or what is wrong with it."""
    try:
        return from_json(text)
    except InvalidSignalError as fault:
        return fault


class Channels:
    """Looks at the channels every so often until closed."""

    def __init__(
        self,
        channels: Sequence[Callable[[], Channel]],
        ask: Callable[[Callable[[], None]], Future[None]],
        take: Callable[[Found, Callable[[ChannelOffsets], ChannelOffsets]], None],
        *,
        interval_s: float,
    ) -> None:
        """``ask`` has work done on the log reader's thread, where ``take`` belongs; commit included."""
        self._openers = channels
        self._ask = ask
        self._take = take
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)

    def start(self) -> None:
        """Begin to look."""
        self._thread.start()

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        channels = []
        for opener in self._openers:
            try:
                channels.append(opener())
            except (KafkaException, OSError) as error:
                log.error("a channel of signals cannot be opened: it is off", error=str(error))
        try:
            while not self._closing.is_set():
                for channel in channels:
                    self._poll(channel)
                self._closing.wait(self._interval_s)
        finally:
            for channel in channels:
                channel.close()

    def _poll(self, channel: Channel) -> None:
        try:
            channel.poll(self._taken)
        except (KafkaException, OSError) as error:
            log.warning("signals cannot be read now", channel=channel.name, error=str(error))

    def _taken(self, found: Found, move: Callable[[ChannelOffsets], ChannelOffsets]) -> None:
        answer = self._ask(lambda: self._take(found, move))
        while not self._closing.is_set():
            try:
                return answer.result(timeout=0.2)
            except TimeoutError:
                continue
        raise OSError("the capture is closing")
