"""The channels of signals: Kafka and files, polled on a background thread, and the signal table, read from the binlog.

Signals are processed on the stream's thread. A channel that fails is polled again later; the stream does not depend on
it.
"""

from __future__ import annotations

import hashlib
import stat
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Protocol

import orjson
import structlog
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException, TopicPartition

from tailrace.producer.config import ValuesConfig
from tailrace.producer.kafka.client import ClientConfig
from tailrace.producer.kafka.errors import NO_GROUP
from tailrace.producer.model.binlog_events import RowsEvent, TableVersion
from tailrace.producer.model.codec import EventEnvelope
from tailrace.producer.model.table import Table, TableId
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.producer.signals.queue import ChannelOffsets
from tailrace.producer.signals.signal import InvalidSignalError, Signal, from_json, from_row, read_signal
from tailrace.runtime.errors import TailraceError

log = structlog.get_logger(__name__)

Signals = list[Signal | InvalidSignalError]
AdvanceOffsets = Callable[[ChannelOffsets], ChannelOffsets]
"""Sets the channel's own offset to the last of the signals."""
ProcessSignals = Callable[[Signals, AdvanceOffsets], None]
"""Processes signals and stores the channel offsets. Returns when both are committed."""


class Channel(Protocol):
    """One channel of signals."""

    name: str

    def poll(self, process: ProcessSignals) -> None:
        """Process the available signals."""

    def close(self) -> None:
        """Release the channel's resources."""


class KafkaChannel:
    """Partition 0 of a topic, behind the stored offset. Only records with the topic prefix as key are signals."""

    name = "kafka"

    def __init__(self, consumer: ClientConfig, *, topic: str, prefix: str, last_offset: int, wait_s: float) -> None:
        """``last_offset`` is the Kafka offset of the last processed record; -1: none."""
        self._topic = topic
        self._key = prefix.encode()
        self._wait_s = wait_s
        self._consumer = Consumer(consumer)
        start = last_offset + 1 if last_offset >= 0 else OFFSET_BEGINNING
        self._consumer.assign([TopicPartition(topic, 0, start)])

    def poll(self, process: ProcessSignals) -> None:
        """Process the new records, one at a time and in order."""
        for message in self._consumer.consume(100, self._wait_s):
            error = message.error()
            if error is not None:
                if error.code() not in {KafkaError.UNKNOWN_TOPIC_OR_PART, NO_GROUP}:
                    raise KafkaException(error)
                continue
            offset = message.offset()
            assert offset is not None
            signals = self._parse(message.key(), message.value())
            process(signals, lambda offsets, kafka=offset: replace(offsets, kafka=kafka))  # type: ignore[misc]

    def _parse(self, key: bytes | str | None, value: bytes | str | None) -> Signals:
        if key != self._key:
            log.info("signal ignored: its key is not the topic prefix", key=key, prefix=self._key)
            return []
        return [read_signal(from_json, value)] if value else []

    def close(self) -> None:
        self._consumer.close()


class FileChannel:
    """A file of signals, one JSON object per line. The file is removed after it was processed.

    It is renamed first, so that lines written in the meantime go to a new file. The stored digest identifies a
    processed file that was not removed before a crash.
    """

    name = "file"

    def __init__(self, path: Path, *, last_digest: str) -> None:
        self._path = path
        self._renamed = path.with_name(path.name + ".taken")
        self._last_digest = last_digest

    def poll(self, process: ProcessSignals) -> None:
        written, taken = _size(self._path), _size(self._renamed)
        if taken is None:
            if not written:
                return
            self._path.rename(self._renamed)
        data = self._renamed.read_bytes()
        # The digest includes the modification time, since the same lines may be written again on purpose.
        digest = hashlib.sha256(b"%d/%b" % (self._renamed.stat().st_mtime_ns, data)).hexdigest()
        if digest != self._last_digest:
            signals = [read_signal(from_json, line) for line in data.splitlines() if line.strip()]
            process(signals, lambda offsets: replace(offsets, file=digest))
            self._last_digest = digest
        self._renamed.unlink()

    def close(self) -> None:
        """Do nothing: the file is not kept open."""


def _size(path: Path) -> int | None:
    """Return the size of a file; None if there is none. Raises OSError if that cannot be told, and for anything else.

    The methods of ``Path`` that ask whether a file exists take some errors, or all, for a file that does not.
    """
    try:
        found = path.lstat()
    except FileNotFoundError:
        if not path.parent.exists():
            raise OSError(f"{path.parent} does not exist: create the directory of signal.file, or mount it") from None
        return None
    if stat.S_ISLNK(found.st_mode):
        raise OSError(f"{path} is a symbolic link: it is not followed")
    if not stat.S_ISREG(found.st_mode):
        raise OSError(f"{path} is no file: set signal.file to the name of one")
    return found.st_size


class Channels:
    """Polls the channels at an interval until closed."""

    def __init__(
        self,
        openers: Sequence[Callable[[], Channel]],
        submit: Callable[[Callable[[], None]], Future[None]],
        process: ProcessSignals,
        *,
        interval_s: float,
    ) -> None:
        """``submit`` runs a function on the stream's thread; ``process`` must run there."""
        self._openers = openers
        self._submit = submit
        self._process = process
        self._interval_s = interval_s
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="signals", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._closing.set()
        if self._thread.ident is not None:
            self._thread.join(timeout=10)

    def _run(self) -> None:
        channels = []
        for opener in self._openers:
            try:
                channels.append(opener())
            except (KafkaException, OSError) as error:
                log.error("signal channel disabled: it cannot be opened", error=str(error))
        try:
            while not self._closing.is_set():
                for channel in channels:
                    self._poll(channel)
                self._closing.wait(self._interval_s)
        except TailraceError as error:  # of the stream's thread, which raises it too
            log.debug("the session has ended with a signal", error=str(error))
        finally:
            for channel in channels:
                channel.close()

    def _poll(self, channel: Channel) -> None:
        try:
            channel.poll(self._process_on_stream)
        except (KafkaException, OSError) as error:
            log.warning("signal channel not readable", channel=channel.name, error=str(error))

    def _process_on_stream(self, signals: Signals, advance: AdvanceOffsets) -> None:
        result = self._submit(lambda: self._process(signals, advance))
        while not self._closing.is_set():
            try:
                return result.result(timeout=0.2)
            except TimeoutError:
                continue
        raise OSError("the capture is closing")


_ENVELOPE = EventEnvelope(b',"row":', b',"op":"', b'"}')


class SourceSignalChannel:
    """Each row inserted into the signal table is a signal. The table may have any key, or none.

    Its rows are decoded with a codec of their own.
    """

    def __init__(self, table: TableId) -> None:
        self.id = table
        self._cached: tuple[TableVersion, TableCodec] | None = None

    def signals(self, event: RowsEvent) -> list[Signal | InvalidSignalError]:
        try:
            rows = self._codec(event.table).inserts(event.data, event.start, event.stop, _ENVELOPE)
        except Exception as error:  # noqa: BLE001 - whatever the table looks like, the stream continues
            return [InvalidSignalError(f"rows of {self.id} cannot be read ({type(error).__name__}: {error})")]
        return [
            read_signal(_from_record, record[1])
            for record in rows.records
            if isinstance(record, tuple) and record[1] is not None
        ]

    def _codec(self, version: TableVersion) -> TableCodec:
        if self._cached is None or self._cached[0] is not version:
            columns = tuple(version.columns)
            # The codec needs a key; the first column serves, since the key of the record is not used.
            table = Table(version.id, columns, (columns[0].name,))
            self._cached = version, TableCodec(table, str(version.id), CodecOptions(ValuesConfig().options))
        return self._cached[1]


def _from_record(value: bytes) -> Signal:
    return from_row(list(orjson.loads(value)["after"].values()))
