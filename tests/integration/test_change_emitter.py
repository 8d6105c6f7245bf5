"""What the extension emits in one call is what the handlers of single events write, on a real broker."""

from __future__ import annotations

import gc
import random
import struct
import weakref
from collections.abc import Iterator, Sequence
from contextlib import closing
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import pytest
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from tailrace.producer.errors import RecordTooLargeError
from tailrace.producer.kafka import native_sender
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
from tailrace.producer.model.transaction_mark import TransactionMark
from tailrace.producer.ops.status import Status
from tailrace.producer.serialization.captured_tables import CapturedTable
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.serialization.table_codec import CodecOptions, TableCodec
from tailrace.producer.streaming.binlog_reader import BinlogReader
from tailrace.producer.streaming.change_emitter import ChangeEmitter
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.split_registry import SplitRegistry
from tailrace.producer.streaming.stream_transaction import CommitSettings, StreamTransaction
from tailrace.producer.streaming.table_emitter import new_table_emitter
from tailrace.producer.streaming.table_versions import StreamedVersion
from tailrace.schemas.names import state_topic
from tests.support.codec_matrix import record_format
from tests.support.stream import FILE, SERVER, START
from tests.support.values import value_options

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

pytestmark = pytest.mark.skipif(
    bool(native_sender.unused_because()), reason=f"the extension sends nothing: {native_sender.unused_because()}"
)

SEED: Final = 20_261_124
MAX_RECORDS: Final = 60
COLUMNS: Final = (Column("id", "int", nullable=False), Column("n", "int", nullable=True))
FORMS: Final = (("json", "json", False), ("json-schema", "json-schema", False), ("avro", "avro", False))
NAMES: Final = ("first", "second", "skipping", "waiting")
PROCESSED: Final = b'"ts_ms":'


def _definition(name: str) -> TableVersion:
    return TableVersion(TableId("d", name), COLUMNS, ("id",), name.encode())


DEFINITIONS: Final = {name: _definition(name) for name in NAMES}


class Side:
    """A binlog reader with its own producer and topics; ``native``: with the emitter."""

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
        self._batches: list[list[Event]] = []
        stub: Any = self
        self.reader = BinlogReader(context, stub, stub, versions, lifecycle=stub, metadata=None)
        self.emitted = 0
        if native:
            emitter = ChangeEmitter(context, versions)
            emit = emitter.emit

            def counted(events: list[Event], at: int, listener: Any) -> int:
                stop = emit(events, at, listener)
                self.emitted += stop - at
                return stop

            emitter.emit = counted  # type: ignore[method-assign]
            self.reader.register_emitter(emitter)

    def add(self, definition: TableVersion) -> StreamedVersion:
        """Put a version in use."""
        name, form = definition.fingerprint.decode(), self._form
        mode = TableMode.WAITING if name == "waiting" else TableMode.STREAMING
        tracked = self.registry.track(definition.id, mode)
        table = Table(definition.id, COLUMNS, ("id",))
        options = CodecOptions(value_options(), tombstones=name != "second", skip_unchanged=name == "skipping")
        codec = TableCodec(table, "topic", options, record_format(table, value_options(), form))
        source = SourceInfo("p", definition.id)
        captured = CapturedTable(table, f"{self.prefix}.{name}", codec, source, ("s", name.encode()))
        version = StreamedVersion(definition, captured, tracked, [("c", b"1")], epoch=7)
        if self.native:
            version.emitter = new_table_emitter(captured, version.headers, 7, skipped=frozenset())
        self.versions.in_use[id(definition)] = version
        return version

    def _note_commit(self) -> None:
        self.commits.append((self.transaction.records, self.transaction.offset.state()))

    # -- the stream, the mailbox and the coordinator, as far as they are needed ---------------------------------------

    caught_up = False

    @property
    def stopped(self) -> bool:
        """Whether all batches are read."""
        return not self._batches

    def run_pending(self) -> None:
        """There are no requests."""

    def poll(self, _timeout_s: float) -> list[Event]:
        """Return the next batch."""
        return self._batches.pop(0)

    def end_splits(self) -> None:
        """There are no splits."""

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


def _batches(pick: random.Random, transactions: int) -> Iterator[list[Event]]:
    """Return random transactions, cut at random."""
    log = Log(pick)
    events = [event for _ in range(transactions) for event in log.transaction()]
    while events:
        size = pick.choice((1, 2, 7, 40, 400))
        yield events[:size]
        events = events[size:]


@pytest.mark.parametrize("form", FORMS, ids=["json", "json-schema", "avro"])
@pytest.mark.parametrize("resumed", [False, True])
def test_both_write_the_same(kafka_broker: KafkaBroker, prefix: str, form: Any, resumed: bool) -> None:
    """Records, headers, the offset after each batch, the commits of full transactions, and the counts."""
    marks = (TransactionMark(f"{SERVER}:3", number=1, pos=0, table_rows={"d.first": 1}),) if resumed else ()
    stored = StoredOffset(START, marks)
    sides = [
        Side(kafka_broker, prefix, form, native=native, stored=stored, max_records=MAX_RECORDS)
        for native in (True, False)
    ]
    native, python = sides
    try:
        for batch in _batches(random.Random(SEED + resumed), 250):
            assert native.read(batch) == python.read(batch)
        assert native.commits == python.commits
        assert native.counts() == python.counts()
        written = native.records()
        assert written == python.records()
        assert all(len(records) > 50 for topic, records in written.items() if topic != ".waiting")
        assert not written[".waiting"]
        assert len(native.commits) > 5
        assert native.emitted > 250
    finally:
        for side in sides:
            side.producer.close()


def test_records_that_do_not_fit_in_the_queue_are_sent_in_order(
    kafka_broker: KafkaBroker, prefix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The queue of the client takes three records; the binding waits for room."""
    real = KafkaSettings.producer

    def small(self: KafkaSettings, transactional_id: str) -> Any:
        return {**real(self, transactional_id), "queue.buffering.max.messages": 3, "linger.ms": 0}

    monkeypatch.setattr(KafkaSettings, "producer", small)
    form = FORMS[0]
    sides = [
        Side(kafka_broker, prefix, form, native=native, stored=StoredOffset(START), max_records=10_000)
        for native in (True, False)
    ]
    native, python = sides
    try:
        for batch in _batches(random.Random(SEED), 40):
            assert native.read(batch) == python.read(batch)
            assert native.transaction.records == python.transaction.records
        assert native.records() == python.records()
        assert native.emitted > 50
    finally:
        for side in sides:
            side.producer.close()


def test_what_was_not_handed_over_is_neither_counted_nor_passed(kafka_broker: KafkaBroker, prefix: str) -> None:
    """The last of three records is larger than the client may send."""
    sides = [
        Side(kafka_broker, prefix, FORMS[0], native=native, stored=StoredOffset(START), max_records=10_000)
        for native in (True, False)
    ]
    image = b"\0" + struct.pack("<ii", 1, 1)
    table = DEFINITIONS["first"]
    long_name = DEFINITIONS["first"]._replace(id=TableId("d", "x" * 1_100_000))
    events: list[Event] = []
    for number in (1, 2):
        pos = 1000 * number
        events.append(TransactionBegin(f"{SERVER}:{number}", FILE, pos, pos + 10, 7, 0, 1, 1))
        events.append(RowsEvent("c", table, image, 0, len(image), FILE, pos + 20, pos + 40, 7, 1, None, 1))
        if number == 2:
            events.append(RowsEvent("c", long_name, image, 0, len(image), FILE, pos + 50, pos + 90, 7, 1, None, 2))
        events.append(TransactionCommit(f"{SERVER}:{number}", FILE, pos + 100, 7))
    outcomes = []
    try:
        for side in sides:
            side.add(long_name)
            before = side.transaction.offset.state()
            with pytest.raises(RecordTooLargeError) as caught:
                side.read(events)
            side.reader._report_status()
            error = {name: str(value).replace(side.prefix, "") for name, value in caught.value.context.items()}
            stream, records = side.counts()
            outcomes.append((error, stream["events"], stream["creates"], records, side.transaction.records))
            if side.native:
                assert side.transaction.offset.state() == before
        assert outcomes[0] == outcomes[1]
    finally:
        for side in sides:
            side.producer.close()


def test_a_version_is_freed_without_the_collector(kafka_broker: KafkaBroker, prefix: str) -> None:
    """Versions that are not in use any more end at once: their columns bound the memory."""
    side = Side(kafka_broker, prefix, FORMS[0], native=True, stored=StoredOffset(START), max_records=10_000)
    try:
        side.read(next(_batches(random.Random(SEED), 5)))
        definition = DEFINITIONS["first"]
        kept = weakref.ref(side.versions.in_use[id(definition)].captured.codec)
        gc.disable()
        try:
            assert kept() is not None
            del side.versions.in_use[id(definition)]
            assert kept() is None
        finally:
            gc.enable()
    finally:
        side.producer.close()
