"""Transaction metadata: numbers each row record of a source transaction, and writes its BEGIN and END.

Only what is written counts: a change that a split's rows already show has no number, so that whoever gathers a
transaction by END's counts finds them all. BEGIN is written with the first record, so a transaction that gives none has
neither. The counts stand in the state: a transaction that is taken up again goes on counting.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.producer.kafka.transactional_producer import TransactionalProducer
from tailrace.producer.model.binlog_events import TransactionBegin, TransactionCommit
from tailrace.producer.model.codec import EventEnvelope, EventRows, KeyChange
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.envelope.transaction import begin_value, end_value, transaction_key
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.producer.streaming.offset import StreamOffset

Number = Callable[[bytes], bytes]
"""Takes an envelope and returns it with its transaction block."""


class TransactionBlockWriter:
    """Writes the transaction topic; used by the log reader's thread."""

    def __init__(self, publisher: TransactionalProducer, topic: TopicConverter, place: StreamOffset) -> None:
        self._publisher = publisher
        self._topic = topic
        self._place = place

    def numbering(self, table: TableId, codec: TableCodec, stamp: EventEnvelope) -> Number:
        """Return what numbers the records of one rows event, in the order they are written."""
        begin = self._place.transaction
        assert begin is not None, "a rows event outside a transaction"
        counts, name, gtid = self._place.counts, str(table), begin.gtid
        insert = codec.transaction_block_inserter(stamp, gtid)

        def number(value: bytes) -> bytes:
            if not counts:
                self._send(gtid, begin_value(gtid, _ts_ms(begin, begin.ts)))
            counts[name] = counts.get(name, 0) + 1
            return insert(value, sum(counts.values()), counts[name])

        return number

    def end(self, commit: TransactionCommit) -> None:
        """Write END, if the transaction has had a record; called before the place leaves the transaction."""
        begin, counts = self._place.transaction, self._place.counts
        if begin is not None and counts:
            self._publisher.begin()
            self._send(begin.gtid, end_value(begin.gtid, counts, _ts_ms(begin, commit.ts)))

    def _send(self, gtid: str, value: Struct) -> None:
        self._publisher.send(self._topic.name, *self._topic.record(transaction_key(gtid), value))


def with_transaction_block(rows: EventRows, number: Number) -> EventRows:
    """Return the records with their blocks, all of them to be written."""
    records: list[tuple[bytes, bytes | None] | KeyChange] = []
    for record in rows.records:
        if isinstance(record, KeyChange):
            # In the order they are written: the tombstone between them has no value to be numbered.
            records.append(record._replace(delete=number(record.delete), create=number(record.create)))
        else:
            key, value = record
            records.append((key, value if value is None else number(value)))
    return rows._replace(records=records)


def _ts_ms(begin: TransactionBegin, ts: int) -> int:
    return begin.commit_ts_us // 1000 or ts * 1000
