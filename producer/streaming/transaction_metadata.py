"""Transaction metadata: numbers the row records of a source transaction, and writes its BEGIN and END.

Only written records count. A change that the snapshot row of its split already contains has no number, so a consumer
that collects a transaction by END's counts finds all of its records. BEGIN is written with the first record, so a
transaction without records has neither. The counts are part of the stored offset: a resumed transaction continues them.
"""

from __future__ import annotations

from collections.abc import Callable

from tailrace.producer.model.binlog_events import TransactionBegin, TransactionCommit
from tailrace.producer.model.codec import EventEnvelope, EventRows, KeyChange
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.json import Struct
from tailrace.producer.serialization.envelope.transaction import begin_value, end_value, transaction_key
from tailrace.producer.serialization.record_converter import TopicConverter
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.producer.streaming.stream_transaction import StreamTransaction

AddBlock = Callable[[bytes], bytes]
"""Takes an envelope and returns it with its transaction block."""


class TransactionBlockWriter:
    """Adds transaction blocks and writes the transaction topic; used by the stream's thread."""

    def __init__(self, transaction: StreamTransaction, topic: TopicConverter) -> None:
        self._transaction = transaction
        self._topic = topic

    def numbering(self, table: TableId, codec: TableCodec, envelope: EventEnvelope) -> AddBlock:
        """Return the function that numbers the records of one rows event, in the order they are written."""
        offset = self._transaction.offset
        begin = offset.transaction
        assert begin is not None, "a rows event outside a transaction"
        counts, name, gtid = offset.counts, str(table), begin.gtid
        put = codec.transaction_block_inserter(envelope, gtid)

        def add_block(value: bytes) -> bytes:
            if not counts:
                self._send(gtid, begin_value(gtid, _ts_ms(begin, begin.ts)))
            counts[name] = counts.get(name, 0) + 1
            return put(value, sum(counts.values()), counts[name])

        return add_block

    def end(self, commit: TransactionCommit) -> None:
        """Write END, if the transaction has a record; called before the offset leaves the transaction."""
        offset = self._transaction.offset
        begin, counts = offset.transaction, offset.counts
        if begin is not None and counts:
            self._send(begin.gtid, end_value(begin.gtid, counts, _ts_ms(begin, commit.ts)))

    def _send(self, gtid: str, value: Struct) -> None:
        self._transaction.tell(self._topic.name, *self._topic.record(transaction_key(gtid), value), transaction=gtid)


def with_transaction_block(rows: EventRows, add_block: AddBlock) -> EventRows:
    """Return the records with their blocks; all of them will be written."""
    records: list[tuple[bytes, bytes | None] | KeyChange] = []
    for record in rows.records:
        if isinstance(record, KeyChange):
            # In the order they are written; the tombstone between them has no value to number.
            records.append(record._replace(delete=add_block(record.delete), create=add_block(record.create)))
        else:
            key, value = record
            records.append((key, value if value is None else add_block(value)))
    return rows._replace(records=records)


def _ts_ms(begin: TransactionBegin, ts: int) -> int:
    return begin.commit_ts_us // 1000 or ts * 1000
