"""What the extension emits in one call is what the handlers of single events write, on a real broker."""

from __future__ import annotations

import gc
import random
import struct
import weakref
from typing import TYPE_CHECKING, Any, Final

import pytest

from tailrace.producer.errors import RecordTooLargeError
from tailrace.producer.kafka import native_sender
from tailrace.producer.kafka.client import KafkaSettings
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import Event, RowsEvent, TransactionBegin, TransactionCommit, TransactionMark
from tailrace.producer.model.table import TableId
from tests.support.emitter_sides import DEFINITIONS, FORMS, Side, batches
from tests.support.stream import FILE, SERVER, START

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

pytestmark = pytest.mark.skipif(
    bool(native_sender.unused_because()), reason=f"the extension sends nothing: {native_sender.unused_because()}"
)

SEED: Final = 20_261_124
MAX_RECORDS: Final = 60


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
        for batch in batches(random.Random(SEED + resumed), 250):
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
        for batch in batches(random.Random(SEED), 40):
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
    long_name = DEFINITIONS["first"]._replace(id=TableId("d", "x" * 1_100_000), fingerprint=b"first long")
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
        side.read(next(batches(random.Random(SEED), 5)))
        definition = DEFINITIONS["first"]
        kept = weakref.ref(side.versions.in_use[definition.fingerprint].captured.codec)
        gc.disable()
        try:
            assert kept() is not None
            del side.versions.in_use[definition.fingerprint]
            assert kept() is None
        finally:
            gc.enable()
    finally:
        side.producer.close()
