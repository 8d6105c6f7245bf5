"""State: all that a restart needs, in the compacted topic ``<prefix>.tailrace.state``, committed with the data.

Keys, and what their JSON values hold::

    log                      LogState
    readers                  {"count": n}: how many reader ids may have open transactions
    table/<db>.<table>       TableState
    split/<split id>         SplitState: a split that is wholly in Kafka
    structure                {"tables": […]}: whose definitions are in the topic of schema changes
    signals                  what signals asked for, and which were taken (producer/signals/queue.py)
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Final

import orjson
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaException, TopicPartition

from tailrace.producer.kafka.client import PARTITION_EOF, KafkaSettings, translate
from tailrace.producer.model.protocols import Offset
from tailrace.runtime.errors import KafkaUnavailableError

ReadOffset = Callable[[Mapping[str, Any]], Offset]
"""Reads an offset of the source from its JSON form."""

OFFSET_KEY: Final = b"log"
READERS_KEY: Final = b"readers"
STRUCTURE_KEY: Final = b"structure"
SIGNALS_KEY: Final = b"signals"


@dataclass(frozen=True, slots=True)
class StoredOffset:
    """How far the log is in Kafka.

    ``position`` is where a restart reads from: outside a transaction, or the begin of the one named by ``transaction``,
    of which the first ``events`` rows events of captured tables are done already. ``backfill`` holds, for committed
    splits whose END is not written yet, how many backfill records they have got. ``counts`` holds, for transaction
    metadata, the row records that the transaction has given so far, by table. ``rows`` of the next event's rows are
    done too, if the offset was taken over from a connector that stopped within an event.
    """

    position: Offset
    transaction: str = ""
    events: int = 0
    backfill: Mapping[str, int] = field(default_factory=dict)
    counts: Mapping[str, int] = field(default_factory=dict)
    rows: int = 0

    def to_json(self) -> bytes:
        """Return the record value."""
        return orjson.dumps({**_fields(self), "position": self.position.to_json()})


@dataclass(frozen=True, slots=True)
class TableState:
    """Where a table stands: ``phase`` is ``snapshot``, ``log``, or ``again`` for one that is read again on demand.

    ``greatest`` is the greatest key the plan covers (JSON form), None where the splits are unbounded; ``key`` names the
    splitting columns the bounds belong to.
    """

    phase: str
    snapshot: str = ""
    greatest: list[Any] | None = None
    key: tuple[str, ...] = ()

    def to_json(self) -> bytes:
        """Return the record value."""
        return orjson.dumps(asdict(self))


@dataclass(frozen=True, slots=True)
class SplitState:
    """A split that is wholly in Kafka: its place in the plan, its watermarks, its certificate so far."""

    database: str
    table: str
    snapshot: str
    number: int
    lower: list[Any] | None
    upper: list[Any] | None
    closed: bool
    low: Offset
    high: Offset
    rows: int
    checksum: int
    schema: str
    ended: bool = False
    """Its END record is written."""

    def to_json(self) -> bytes:
        """Return the record value; the checksum as text, since it has 64 bits."""
        positions = {"low": self.low.to_json(), "high": self.high.to_json()}
        return orjson.dumps({**_fields(self), **positions, "checksum": f"{self.checksum:016x}"})


@dataclass(slots=True)
class State:
    """The topic's content, decoded."""

    log: StoredOffset | None = None
    readers: int = 0
    tables: dict[str, TableState] = field(default_factory=dict)
    structure: frozenset[str] | None = None
    """Tables whose definitions are in the topic of schema changes; None before any was."""
    splits: dict[str, SplitState] = field(default_factory=dict)
    signals: Mapping[str, Any] | None = None
    """As stored; None before the first signal."""


def table_key(table: object) -> bytes:
    """Return the key of a table's record."""
    return f"table/{table}".encode()


def split_key(split_id: str) -> bytes:
    """Return the key of a split's record."""
    return f"split/{split_id}".encode()


def _fields(record: StoredOffset | SplitState) -> dict[str, Any]:
    return {field.name: getattr(record, field.name) for field in fields(record)}


def decode(records: Mapping[bytes, bytes], read_offset: ReadOffset) -> State:
    """Return the state that these records (last value per key) describe."""
    state = State()
    for key, value in records.items():
        kind, _, name = key.decode().partition("/")
        body = orjson.loads(value)
        if kind == "log":
            state.log = StoredOffset(**{**body, "position": read_offset(body["position"])})
        elif kind == "readers":
            state.readers = body["count"]
        elif kind == "structure":
            state.structure = frozenset(body["tables"])
        elif kind == "signals":
            state.signals = body
        elif kind == "table":
            state.tables[name] = TableState(**{**body, "key": tuple(body["key"])})
        elif kind == "split":
            positions = {"low": read_offset(body["low"]), "high": read_offset(body["high"])}
            state.splits[name] = SplitState(**{**body, **positions, "checksum": int(body["checksum"], 16)})
    return state


def read(settings: KafkaSettings, topic: str, read_offset: ReadOffset) -> State:
    """Read the topic from its beginning to its end, committed records only.

    Call it after fencing every producer that writes to the topic: then no transaction is open and the end is the end.
    """
    return decode(read_compacted(settings, topic), read_offset)


def read_compacted(settings: KafkaSettings, topic: str) -> dict[bytes, bytes]:
    """Return the last value per key of partition 0; tombstones remove."""
    found: dict[bytes, bytes] = {}
    consumer = Consumer({**settings.reader(), "enable.partition.eof": True})
    deadline = time.monotonic() + settings.request_timeout_s
    try:
        consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        while True:
            message = consumer.poll(0.5)
            if message is not None:
                error = message.error()
                if error is not None and error.code() == PARTITION_EOF:
                    return found
                if error is not None:
                    raise KafkaException(error)
                deadline = time.monotonic() + settings.request_timeout_s
                key, value = message.key() or b"", message.value()
                if value is None:
                    found.pop(key, None)
                else:
                    found[key] = value
            elif time.monotonic() > deadline:
                raise KafkaUnavailableError(
                    "reading a topic to its end made no progress",
                    hint="check that the brokers are up and no transaction of another producer hangs on the topic",
                    topic=topic,
                )
    except KafkaException as failure:
        raise translate(failure, f"reading {topic}") from failure
    finally:
        consumer.close()
