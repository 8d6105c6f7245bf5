"""What stands around the rows of an envelope, JSON or Avro, made of the same stamps: once for each rows event."""

from __future__ import annotations

from typing import Any, Final, Protocol

import orjson

from tailrace.producer.model.codec import EventEnvelope, PutBlock
from tailrace.producer.serialization.avro_encoding import json_encoder, zigzag
from tailrace.producer.serialization.envelope.schemas import schema_json
from tailrace.producer.serialization.envelope.transaction import block
from tailrace.schemas.connect import ConnectSchema

_NULL: Final = b"null"
_BEFORE_OP: Final = b',"op":"'


class EnvelopeFrame(Protocol):
    """What stands around the rows of an envelope."""

    insert_open: bytes
    delete_open: bytes
    delete_middle: bytes
    update_open: bytes
    update_middle: bytes

    def event(self, stamp: EventEnvelope, op: str) -> tuple[bytes, bytes]:
        """Return what stands before the row's number and what follows it."""

    def row_number(self, row: int) -> bytes:
        """Return the row's number."""

    def snapshot(self, suffix: bytes) -> bytes:
        """Return what follows a row of a snapshot."""

    def numbering(self, stamp: EventEnvelope, gtid: str) -> PutBlock:
        """Return what puts a transaction block into the envelopes of a rows event."""

    def emptied(self, stamp: EventEnvelope) -> bytes:
        """Return the envelope that has no row: the table was emptied."""


class JsonFrame:
    """JSON; ``before`` and ``after`` are what JsonConverter writes around a payload, or empty."""

    def __init__(self, before: bytes = b"", after: bytes = b"") -> None:
        self.insert_open = before + b'{"before":null,"after":'
        self.delete_open = self.update_open = before + b'{"before":'
        self.delete_middle = b',"after":null'
        self.update_middle = b',"after":'
        self._after = after

    def event(self, stamp: EventEnvelope, op: str) -> tuple[bytes, bytes]:
        """See ``EnvelopeFrame``."""
        return stamp.head, b"".join((stamp.middle, op.encode(), stamp.tail, self._after))

    def row_number(self, row: int) -> bytes:
        """See ``EnvelopeFrame``."""
        return b"%d" % row

    def snapshot(self, suffix: bytes) -> bytes:
        """See ``EnvelopeFrame``."""
        return suffix + self._after

    def numbering(self, stamp: EventEnvelope, gtid: str) -> PutBlock:
        """See ``EnvelopeFrame``."""
        assert stamp.middle.endswith(_NULL + _BEFORE_OP), "the stamp does not end as an envelope does"
        stop = len(_BEFORE_OP) + 1 + len(stamp.tail) + len(self._after)  # op is one letter
        start = stop + len(_NULL)

        def put(value: bytes, total: int, in_table: int) -> bytes:
            return b"%b%b%b" % (value[:-start], block(gtid, total, in_table), value[-stop:])

        return put

    def emptied(self, stamp: EventEnvelope) -> bytes:
        """See ``EnvelopeFrame``."""
        head, tail = self.event(stamp, "t")
        return b"".join((self.insert_open, _NULL, head, self.row_number(0), tail))


class AvroFrame:
    """Reads the JSON of a stamp and writes its Avro."""

    def __init__(self, schema: ConnectSchema, schema_id: int) -> None:
        before = confluent_header(schema_id)
        self.insert_open = before + b"\x00\x02"
        self.delete_open = self.update_open = before + b"\x02"
        self.delete_middle = b"\x00"
        self.update_middle = b"\x02"
        self._emptied_open = before + b"\x00\x00"
        members = {field.name: field.schema for field in schema.fields}
        source = [(field.name, json_encoder(field.schema)) for field in members["source"].fields]
        at = [name for name, _ in source].index("row")
        self._head, self._number, self._tail = source[:at], source[at], source[at + 1 :]
        names = list(members)
        first = names.index("transaction")
        assert names[first - 1] == "source", "source and transaction are not neighbours"
        self._transaction = json_encoder(members["transaction"])
        self._rest = [(name, json_encoder(members[name])) for name in names[first + 1 :]]

    def event(self, stamp: EventEnvelope, op: str) -> tuple[bytes, bytes]:
        """See ``EnvelopeFrame``."""
        envelope = orjson.loads(b"".join((b'{"before":0', stamp.head, b"0", stamp.middle, op.encode(), stamp.tail)))
        return self._encoded(envelope)

    def row_number(self, row: int) -> bytes:
        """See ``EnvelopeFrame``."""
        return zigzag(row).encode("latin-1")

    def snapshot(self, suffix: bytes) -> bytes:
        """See ``EnvelopeFrame``."""
        envelope = orjson.loads(b'{"before":0' + suffix)
        head, tail = self._encoded(envelope)
        return b"".join((head, self.row_number(envelope["source"]["row"]), tail))

    def numbering(self, stamp: EventEnvelope, gtid: str) -> PutBlock:
        """See ``EnvelopeFrame``."""
        stop = len(self._ending(orjson.loads(b'{"op":"-' + stamp.tail)))
        start = stop + 1  # null is one byte

        def put(value: bytes, total: int, in_table: int) -> bytes:
            numbers = {"id": gtid, "total_order": total, "data_collection_order": in_table}
            return b"%b%b%b" % (value[:-start], self._transaction(numbers).encode("latin-1"), value[-stop:])

        return put

    def emptied(self, stamp: EventEnvelope) -> bytes:
        """See ``EnvelopeFrame``."""
        head, tail = self.event(stamp, "t")
        return b"".join((self._emptied_open, head, self.row_number(0), tail))

    def _encoded(self, envelope: dict[str, Any]) -> tuple[bytes, bytes]:
        source = envelope["source"]
        head = "".join([encode(source[name]) for name, encode in self._head])
        tail = "".join([encode(source[name]) for name, encode in self._tail])
        tail += self._transaction(envelope["transaction"])
        return head.encode("latin-1"), (tail + self._ending(envelope)).encode("latin-1")

    def _ending(self, envelope: dict[str, Any]) -> str:
        """Return what follows the transaction."""
        return "".join([encode(envelope[name]) for name, encode in self._rest])


def confluent_header(schema_id: int) -> bytes:
    """Return the head of the registry's wire format: a zero, and the schema's id in four bytes."""
    return b"\0" + schema_id.to_bytes(4, "big")


def schema_envelope(schema: ConnectSchema) -> tuple[bytes, bytes]:
    """Return what JsonConverter writes around a payload."""
    return f'{{"schema":{schema_json(schema)},"payload":'.encode(), b"}"
