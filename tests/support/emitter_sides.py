"""Two binlog readers on one broker, with the emitter and without it, and random transactions for both."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, ClassVar, Final, TypeVar

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.model.binlog_events import (
    Event,
    PositionAdvanced,
    RowsEvent,
    TableVersion,
    TransactionBegin,
    TransactionCommit,
)
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.model.table_mode import TableMode
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTable
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.producer.streaming.binlog_reader import BinlogReader, Handlers
from tailrace.producer.streaming.change_emitter import ChangeEmitter
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import CommitSettings, StreamTransaction
from tailrace.producer.streaming.table_versions import StreamedVersion, new_table_emitter
from tailrace.schemas.names import state_topic
from tests.support.codec_matrix import record_format
from tests.support.stream import FILE, SERVER
from tests.support.values import value_options

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

T = TypeVar("T")

COLUMNS: Final = (Column("id", "int", nullable=False), Column("n", "int", nullable=True))
FORMS: Final = (("json", "json", False), ("json-schema", "json-schema", False), ("avro", "avro", False))
NAMES: Final = ("first", "second", "skipping", "waiting")
PROCESSED: Final = b'"ts_ms":'


def _definition(name: str) -> TableVersion:
    return TableVersion(TableId("d", name), COLUMNS, ("id",), name.encode())


DEFINITIONS: Final = {name: _definition(name) for name in NAMES}


class Side:
    """A binlog reader with its own producer and topics; ``native``: with the emitter."""

    waiting: ClassVar = frozenset({"waiting"})
    """Tables that wait for their snapshot at first."""

    def __init__(
        self, broker: KafkaBroker, prefix: str, form: Any, *, native: bool, stored: StoredOffset, max_records: int
    ) -> None:
        self._broker, self.native = broker, native
        self.prefix = f"{prefix}-{'native' if native else 'python'}"
        self.topics = [f"{self.prefix}.{name}" for name in NAMES]
        for topic in (*self.topics, state_topic(self.prefix)):
            broker.create_topic(topic)
        self.producer = TransactionalProducer(KafkaSettings(broker.bootstrap, {}, 60_000), self.prefix)
        self.producer.init_transactions()
        self.registry, self.status = SplitRegistry(), Status()
        self.commits: list[Any] = []
        self.transaction = StreamTransaction(
            self.producer,
            StreamOffset(stored),
            self.registry,
            settings=CommitSettings(self.prefix, interval_s=3600.0, max_records=max_records),
            status=self.status,
        )
        self.transaction.before_commit.append(self._note_commit)
        context: Any = SimpleNamespace(
            transaction=self.transaction,
            registry=self.registry,
            settings=SimpleNamespace(
                tombstones=True, include_query=True, skipped_operations=frozenset(), context_headers=[("c", b"1")]
            ),
            tables=SimpleNamespace(failures=SimpleNamespace(take=dict)),
            mailbox=self,
            status=self.status,
        )
        self._form = form
        versions: Any = SimpleNamespace(in_use={})
        self.versions = versions
        for definition in DEFINITIONS.values():
            self.add(definition)
        stub: Any = self
        self.hold = stub
        self.emitted = 0
        emitter: ChangeEmitter | None = None
        if native:
            emitter = ChangeEmitter(context, versions)
            emit = emitter.emit

            def counted(events: list[Event], at: int, listener: Any) -> int:
                stop = emit(events, at, listener)
                self.emitted += stop - at
                return stop

            emitter.emit = counted  # type: ignore[method-assign]
        handlers = Handlers(emitter=emitter)
        self.reader = BinlogReader(context, stub, stub, versions, lifecycle=stub, handlers=handlers)

    def add(self, definition: TableVersion) -> StreamedVersion:
        """Put a version in use."""
        name, form = definition.fingerprint.decode().partition(" ")[0], self._form
        tracked = self.registry.track(definition.id, TableMode.WAITING if name in self.waiting else TableMode.STREAMING)
        table = Table(definition.id, COLUMNS, ("id",))
        options = CodecOptions(value_options(), tombstones=name != "second", skip_unchanged=name == "skipping")
        codec = TableCodec(table, "topic", options, record_format(table, value_options(), form))
        source = SourceInfo("p", definition.id)
        captured = CapturedTable(table, f"{self.prefix}.{name}", codec, source, ("s", name.encode()))
        version = StreamedVersion(definition, captured, tracked, [("c", b"1")], epoch=7)
        if self.native:
            version.emitter = new_table_emitter(captured, version.headers, 7, skipped=frozenset())
        self.versions.in_use[definition.fingerprint] = version
        return version

    def _note_commit(self) -> None:
        self.commits.append((self.transaction.records, self.transaction.offset.state()))

    # -- the coordinator, as far as it is needed ----------------------------------------------------------------------

    def end_splits(self) -> None:
        """There are no splits."""

    def wait_for(self, _ready: Callable[[], T | None], _table: TableId) -> T:
        """There is nothing to wait for."""
        raise AssertionError("a change is held")

    # -----------------------------------------------------------------------------------------------------------------

    def read(self, batch: Sequence[Event]) -> StoredOffset:
        """Read a batch without the commit at the end of a run; return what would be stored."""
        self.reader._read(list(batch))
        self.reader._report_status()
        return self.transaction.offset.state()

    def counts(self) -> Any:
        """Return what the status says, without times."""
        found = self.status.snapshot()
        stream = {name: value for name, value in found["stream"].items() if not name.endswith(("_ms", "_us", "_age_s"))}
        return stream, {str(table): value["records"] for table, value in found["tables"].items()}

    def records(self) -> dict[str, list[tuple[Any, ...]]]:
        """Commit, and return key, value without the processing times, and headers of all records by table."""
        self.transaction.commit(always=True)
        found: dict[str, list[tuple[Any, ...]]] = {f".{name}": [] for name in NAMES}
        settings: dict[str, Any] = {
            "bootstrap.servers": self._broker.bootstrap,
            "group.id": "tests",
            "enable.partition.eof": True,
        }
        with closing(Consumer(settings)) as consumer:
            consumer.assign([TopicPartition(topic, 0, OFFSET_BEGINNING) for topic in self.topics])
            ends = 0
            while ends < len(self.topics):
                message = consumer.poll(60)
                assert message is not None
                if (error := message.error()) is not None:
                    assert error.code() == KafkaError._PARTITION_EOF
                    ends += 1
                    continue
                record = message.key(), _without_times(message.value()), message.headers()
                found[str(message.topic()).removeprefix(self.prefix)].append(record)
        return found


def _without_times(value: bytes | None) -> bytes | None:
    """Return a value up to the processing times: in Avro three unions of 7, 9 and 10 bytes at its end."""
    if value is None:
        return None
    return value[: value.rindex(PROCESSED)] if PROCESSED in value else value[:-26]


class Log:
    """Random transactions."""

    def __init__(self, pick: random.Random) -> None:
        self._pick = pick
        self._sequence = 0
        self._pos = 1000

    def transaction(self) -> Iterator[Event]:
        """Return the events of a transaction."""
        pick = self._pick
        self._sequence += 1
        gtid, begin_pos = f"{SERVER}:{self._sequence}", self._advance()
        stamp = pick.choice((0, 1_700_000_000_000_000 + self._sequence))
        yield TransactionBegin(gtid, FILE, begin_pos, self._pos, 7, stamp, pick.choice((None, 42)), 1)
        number = 0
        for _ in range(pick.choice((0, 1, 1, 2, 9))):
            number += pick.choice((1, 1, 3))
            yield self._rows(number)
        yield TransactionCommit(gtid, FILE, self._advance(), pick.randrange(10**9))
        if not pick.randrange(6):
            yield PositionAdvanced(FILE, self._advance(), 0)

    def _advance(self) -> int:
        self._pos += self._pick.randrange(20, 90)
        return self._pos

    def _image(self, key: int) -> bytes:
        if not self._pick.randrange(4):
            return b"\2" + struct.pack("<i", key)
        return b"\0" + struct.pack("<ii", key, self._pick.randrange(3))

    def _rows(self, number: int) -> RowsEvent:
        pick = self._pick
        name, op = pick.choice(NAMES), pick.choice("cud")
        images = b""
        for _ in range(pick.choice((1, 1, 1, 5))):
            key = pick.randrange(-5, 100)
            images += self._image(key)
            if op == "u":
                images += self._image(key if pick.randrange(8) else key + 1)
        data = b"??" + images + b"???"
        pos = self._advance()
        query = "UPDATE t" if not pick.randrange(7) else None
        table = DEFINITIONS[name]
        return RowsEvent(op, table, data, 2, 2 + len(images), FILE, pos, self._pos, 7, 1, query, number)


def batches(pick: random.Random, transactions: int, sizes: Sequence[int] = (1, 2, 7, 40, 400)) -> Iterator[list[Event]]:
    """Return random transactions, cut at random."""
    log = Log(pick)
    events = [event for _ in range(transactions) for event in log.transaction()]
    while events:
        size = pick.choice(sizes)
        yield events[:size]
        events = events[size:]
