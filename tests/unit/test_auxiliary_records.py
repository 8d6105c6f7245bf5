"""Records that are not rows: their bytes, their order, and the transaction block in an envelope."""

from __future__ import annotations

import json
from typing import Any

import pytest

from tailrace.producer.config import ConvertersConfig
from tailrace.producer.kafka.state_store import StoredOffset
from tailrace.producer.model.binlog_events import TransactionBegin
from tailrace.producer.model.codec import EventRows, KeyChange
from tailrace.producer.model.table import Column, Table, TableId
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.offset import MySqlOffset
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.envelope.json import hash_order, to_json
from tailrace.producer.serialization.envelope.schemas import envelope_schema, key_schema
from tailrace.producer.serialization.envelope.source_info import SourceInfo
from tailrace.producer.serialization.envelope.transaction import TRANSACTION_KEY, TRANSACTION_VALUE
from tailrace.producer.serialization.envelope_frame import RecordFormat
from tailrace.producer.serialization.record_converter import RecordConverter
from tailrace.producer.serialization.table_codec import TableCodec
from tailrace.producer.streaming.offset import StreamOffset
from tailrace.producer.streaming.transaction_metadata import TransactionBlockWriter, with_transaction_block
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tests.support.avro import Avro
from tests.support.values import DEFAULT_CODEC

TABLE = TableId("db", "t")
UUID = "aaaaaaaa-aaaa-aaaa-aaaa-aaaaaaaaaaaa"


def test_json_is_escaped_as_in_jackson() -> None:
    assert to_json({"a": "é\U0001f600", "b": 'q"\\n\x1f\n', "c": None}) == (
        '{"a":"é\\uD83D\\uDE00","b":"q\\"\\\\n\\u001F\\n","c":null}'.encode()
    )


def test_hash_order_is_that_of_a_java_hash_map() -> None:
    # The code of one letter is its bucket, modulo 16: p 0, a and q 1, b 2; one bucket keeps the insertion order.
    assert hash_order(["b", "q", "a", "p"]) == ["p", "q", "a", "b"]


class _Sent:
    """A stream transaction that collects the records."""

    def __init__(self, offset: StreamOffset) -> None:
        self.offset = offset
        self.records: list[tuple[str, bytes | None, bytes | None]] = []

    def tell(self, topic: str, key: bytes | None, value: bytes | None, **_: object) -> None:
        self.records.append((topic, key, value))


@pytest.mark.parametrize("converter", ["json", "json-schema", "avro"])
def test_transaction_block_replaces_null(converter: str) -> None:
    """In an envelope of any converter, and nothing else changes; BEGIN precedes the first row."""
    offset = StreamOffset(StoredOffset(MySqlOffset(1, "f.000001", 4, GtidSet({}), UUID)))
    offset.begin(TransactionBegin(f"{UUID}:5", "f.000001", 100, 180, 7, 7_000_000, 1, 1))
    sent = _Sent(offset)
    topic = RecordConverter(ConvertersConfig()).topic("topic", TRANSACTION_KEY, TRANSACTION_VALUE)
    records = TransactionBlockWriter(sent, topic)  # type: ignore[arg-type]
    envelope = SourceInfo("p", TABLE).event_envelope(ts_us=7, server_id=1, gtid=f"{UUID}:5", file="f", pos=9)
    fields = (ConnectField("id", ConnectSchema("int32")),)
    schemas = {"key_schema": key_schema("p.db.t", fields), "value_schema": envelope_schema("p.db.t", fields)}
    record_format = RecordFormat(key="json", value=converter, columns=fields, **schemas)  # type: ignore[arg-type]
    table = Table(TABLE, (Column("id", "int", nullable=False),), ("id",))
    codec = TableCodec(table, "topic", DEFAULT_CODEC, record_format)
    row = b"\x00\x01\x00\x00\x00"
    avro = Avro(avro_schema(record_format.value_schema))

    def read(value: bytes | None) -> dict[str, Any]:
        assert value is not None
        if converter == "avro":
            return dict(avro.read(value[5:]))
        parsed = json.loads(value)
        return dict(parsed["payload"] if converter == "json-schema" else parsed)

    [inserted] = codec.inserts(row, 0, len(row), envelope).records
    plain = inserted[1]
    assert isinstance(plain, bytes)
    change = KeyChange(b"1", b"2", plain, plain, b"", b"")
    rows = EventRows([(b"1", plain), (b"1", None), change], (), ())

    found = with_transaction_block(rows, records.numbering(TABLE, codec, envelope)).records

    def numbers(total: int) -> dict[str, Any]:
        return {"id": f"{UUID}:5", "total_order": total, "data_collection_order": total}

    assert read(plain)["transaction"] is None
    assert isinstance(found[2], KeyChange)
    written = [found[0][1], found[2].delete, found[2].create]
    assert [read(value) for value in written] == [read(plain) | {"transaction": numbers(n)} for n in (1, 2, 3)]
    assert found[1] == (b"1", None)
    assert [topic for topic, _, _ in sent.records] == ["topic"]
    assert offset.counts == {"db.t": 3}
