"""What a running producer has written, from its topics: read only, so nothing of it is fenced or waits.

A change, the offset behind it, and the mode of its table are in one Kafka transaction. But a broker shows the end of a
transaction in one partition earlier than in another one. So ``refresh`` reads the state behind all records that its
topic has at that moment, and waits for those whose transaction is open.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any, Final

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, IsolationLevel, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec  # type: ignore[attr-defined]

from tailrace.producer.errors import KeysRefusedError, StateLostError, TableNotReadError
from tailrace.producer.kafka import state_store
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.errors import translate
from tailrace.producer.kafka.state_store import REQUEST_START, State, StoredOffset, split_key, table_key
from tailrace.producer.kafka.topic_reader import messages
from tailrace.producer.model.protocols import Offset, ReadOffset
from tailrace.producer.model.table import TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.runtime.errors import KafkaUnavailableError
from tailrace.schemas.names import state_topic
from tailrace.schemas.verification import ChosenKeys

_POLL_S: Final = 0.2
_LEVELS: Final = {True: IsolationLevel.READ_COMMITTED, False: IsolationLevel.READ_UNCOMMITTED}


class ProducerProgress:
    """Follows the state of a producer for one table. Not thread-safe; the caller closes it."""

    def __init__(self, settings: KafkaSettings, prefix: str, table: TableId, read_offset: ReadOffset) -> None:
        self._settings, self._topic, self._read_offset = settings, state_topic(prefix), read_offset
        self._table = table
        self._kept = (state_store.FORMAT_KEY, state_store.OFFSET_KEY, state_store.SIGNALS_KEY, table_key(table))
        self._split_start = split_key(f"{table}:")
        self._own: bytes | None = None
        self._own_keys: ChosenKeys | None = None
        self._own_read = False
        self._records: dict[bytes, bytes] = {}
        self._next = OFFSET_BEGINNING
        """The Kafka offset from which on the state is not read yet."""
        self._admin = AdminClient(settings.common())
        self._consumer = Consumer({**settings.consumer(), "enable.partition.eof": True, "fetch.wait.max.ms": 10})

    def refresh(self) -> State:
        """Return the offset and the state of the table, as all that is in Kafka now says."""
        end = self.ends(self._topic, committed=False)[0]
        if self._next < end:
            timeout_s = self._settings.request_timeout_s
            try:
                for message in messages(self._consumer, self._topic, {0: self._next}, timeout_s, {0: end}):
                    self._keep(message.key() or b"", message.value())
            except KafkaException as error:
                raise translate(error, f"reading {self._topic}") from error
            self._next = end
        return state_store.decode(self._records, self._read_offset)

    def barrier(self) -> Offset:
        """Return what a SELECT must see, so that it sees every change that is in Kafka now.

        Raises TableNotReadError if the topic may not have all rows of the table.
        """
        stored = self._stored(self.refresh())
        barrier = stored.position
        for mark in stored.transactions:
            barrier = barrier.including(mark.gtid)
        return barrier

    def wait_until_written(self, high: Offset, timeout_s: float) -> None:
        """Wait until everything before an offset of the source is in Kafka."""
        until = time.monotonic() + timeout_s
        while True:  # and once more whether all rows were read: the table may have been in error meanwhile
            stored = self._stored(self.refresh()).position
            if stored.same_server(high) and not stored.before(high):
                return
            if time.monotonic() > until:
                raise KafkaUnavailableError(
                    "the producer has not written all changes that were compared",
                    hint="start it, or wait until its lag is small (cdc_milli_seconds_behind_source)",
                    waited_s=timeout_s,
                    written=str(stored.to_json()),
                )
            time.sleep(_POLL_S)

    def expect(self, keys: ChosenKeys) -> None:
        """Look from now on for the request of a signal that has these keys."""
        self.refresh()
        self._own, self._own_keys, self._own_read = None, keys, False

    def wait_until_served(self, signal: int, timeout_s: float) -> None:
        """Wait until the request of the signal at an offset of its topic has been served.

        Raises KeysRefusedError if the producer has refused the signal, or has cancelled its request.
        """
        until = time.monotonic() + timeout_s
        while True:
            state = self.refresh()
            processed = -1 if state.signals is None else int(state.signals["kafka"])
            if processed >= signal and (self._own is None or self._own not in self._records):
                if self._own_read:
                    return
                raise KeysRefusedError(
                    "the producer has refused to read the rows again"
                    if self._own is None
                    else "the rows were not read again: their request was cancelled",
                    hint="look for the signal in its log, which has the reason; then run the command again",
                    table=str(self._table),
                )
            if time.monotonic() > until:
                raise KafkaUnavailableError(
                    "the producer has not read the rows again",
                    hint="start it, resume its snapshots, or look into its log; a signal stop-snapshot with the table "
                    "removes the request",
                    table=str(self._table),
                    waited_s=timeout_s,
                    signal=signal,
                    processed=processed,
                    pending_snapshots=len(state.requests),
                )
            time.sleep(_POLL_S)

    def _stored(self, state: State) -> StoredOffset:
        """Return the offset. Raises TableNotReadError if rows of the table are still to be read.

        A table that was in error, or is new, is read by an incremental snapshot: until then its topic lacks rows that
        no change tells of. Which requests are such ones is not asked.
        """
        found = state.tables.get(str(self._table))
        if state.offset is not None and (found is None or found.mode is not TableMode.STREAMING or state.requests):
            mode = "unknown to the producer" if found is None else f"in mode {found.mode.value}"
            raise TableNotReadError(
                "the table cannot be compared: its topic may not have all of its rows",
                hint="wait until the status of the producer shows it as streaming, and no pending incremental "
                "snapshot; a new table without rows needs its first one",
                table=str(self._table),
                state=mode,
                pending_snapshots=len(state.requests),
            )
        if state.offset is None:
            raise StateLostError(
                "no producer has written the state of this prefix",
                hint="check topic.prefix and bootstrap.servers",
                topic=self._topic,
            )
        return state.offset

    def ends(self, topic: str, *, committed: bool) -> Mapping[int, int]:
        """Return the end of each partition: before open transactions (``committed``), or behind all records."""
        try:
            # A consumer creates no topic by asking for it.
            listed: Any = self._consumer.list_topics(topic, timeout=self._settings.request_timeout_s).topics[topic]
            if listed.error is not None:
                raise KafkaException(listed.error)
            newest: OffsetSpec = OffsetSpec.latest()  # type: ignore[no-untyped-call]
            specs = {TopicPartition(topic, number): newest for number in listed.partitions}
            found = self._admin.list_offsets(
                specs, isolation_level=_LEVELS[committed], request_timeout=self._settings.request_timeout_s
            )
            return {each.partition: int(future.result().offset) for each, future in found.items()}
        except KafkaException as error:
            raise translate(error, f"reading the ends of {topic}") from error

    def _keep(self, key: bytes, value: bytes | None) -> None:
        if value is not None and self._own_keys is not None:
            if key.startswith(REQUEST_START) and self._own is None and self._is_own(value):
                self._own = key
            elif key.startswith(self._split_start) and self._own in self._records:
                self._own_read = True  # the rows of keys are one split
        if key not in self._kept and not key.startswith(REQUEST_START):
            return
        if value is None:
            self._records.pop(key, None)
        else:
            self._records[key] = value

    def _is_own(self, request: bytes) -> bool:
        body = orjson.loads(request)
        table, keys = TableId(body["database"], body["table"]), body.get("keys")
        return (
            table == self._table
            and keys is not None
            and ChosenKeys(tuple(keys["columns"]), tuple(keys["texts"])) == self._own_keys
        )

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
