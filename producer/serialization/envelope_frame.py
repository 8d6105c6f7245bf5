"""How the records of a table version are written, and the part of an envelope that surrounds the rows, JSON or Avro.

A frame gets the JSON of ``SnapshotEnvelope`` or ``EventEnvelope`` once per block or rows event. What surrounds each row
is constant.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple, Protocol

import orjson

from tailrace.producer.model.codec import EventEnvelope, InsertTransactionBlock
from tailrace.producer.model.value_options import Converter
from tailrace.producer.mysql.types.text import json_string
from tailrace.producer.serialization.avro_encoding import json_encoder, union, zigzag
from tailrace.producer.serialization.envelope.schemas import SOURCE_SCHEMA, schema_json
from tailrace.producer.serialization.envelope.transaction import transaction_block
from tailrace.producer.serialization.form import Form
from tailrace.schemas.connect import ConnectField, ConnectSchema
from tailrace.schemas.rowkind import Op

_NULL: Final = b"null"
_OP_FIELD: Final = b',"op":"'


class Piece(NamedTuple):
    """A part of an envelope: a constant, or a value of the event."""

    variable: str
    """Name of the value; empty: ``text`` is constant."""
    text: bytes
    """The constant, or what precedes the value."""
    absent: bytes = b""
    """Stands for the text and the value if there is none."""


class EventTemplate(NamedTuple):
    """What surrounds the row number in the envelopes of an operation."""

    before_row: list[Piece]
    after_row: list[Piece]


Constants = Mapping[str, str | int | None]
"""The fields of ``source`` that all changes of a table share."""

_PROCESSED: Final = {"ts_ms": "processed_ms", "ts_us": "processed_us", "ts_ns": "processed_ns"}
"""The times of an envelope, which are the producer's."""


class EnvelopeFrame(Protocol):
    """The envelope of one table version, without its rows."""

    before_insert: bytes
    """Precedes the row of an insert."""
    before_update: bytes
    """Precedes the old row of an update or a delete."""
    between_rows: bytes
    """Separates the rows of an update."""
    after_delete: bytes
    """Follows the row of a delete."""

    def event(self, envelope: EventEnvelope, op: Op) -> tuple[bytes, bytes]:
        """Return the bytes before and after the row number, for all rows of an event."""

    def event_template(self, source: Constants, op: Op) -> EventTemplate:
        """Return what ``event`` returns, as a template of all events."""

    def row_number(self, row: int) -> bytes:
        """Return the encoded row number."""

    def snapshot(self, suffix: bytes) -> bytes:
        """Return what follows a snapshot row."""

    def transaction_block_inserter(self, envelope: EventEnvelope, gtid: str) -> InsertTransactionBlock:
        """Return the function that inserts a transaction block into the envelopes of a rows event."""

    def truncate(self, envelope: EventEnvelope) -> bytes:
        """Return the envelope of a TRUNCATE, which has no row."""


class JsonFrame:
    """JSON; ``prefix`` and ``suffix`` are what JsonConverter writes around a payload, or empty."""

    def __init__(self, prefix: bytes = b"", suffix: bytes = b"") -> None:
        self.before_insert = prefix + b'{"before":null,"after":'
        self.before_update = prefix + b'{"before":'
        self.between_rows = b',"after":'
        self.after_delete = b',"after":null'
        self._suffix = suffix

    def event(self, envelope: EventEnvelope, op: Op) -> tuple[bytes, bytes]:
        return envelope.before_row, b"".join((envelope.before_op, op.encode(), envelope.after_op, self._suffix))

    def event_template(self, source: Constants, op: Op) -> EventTemplate:
        names = [field.name for field in SOURCE_SCHEMA.fields]
        row_at = names.index("row")

        def members(chosen: list[str]) -> list[Piece]:
            pieces = []
            for name in chosen:
                text = b"%b%b:" % (b"" if name == names[0] else b",", orjson.dumps(name))
                if name not in source:
                    pieces.append(Piece(name, text, text + _NULL))
                    continue
                value = source[name]
                pieces.append(Piece("", text + (_NULL if value is None else json_string(str(value)).encode())))
            return pieces

        before = [Piece("", b',"source":{'), *members(names[:row_at]), Piece("", b',"row":')]
        after = [*members(names[row_at + 1 :]), Piece("", b'},"transaction":null,"op":"%b"' % op.encode())]
        after += [Piece(variable, b',"%b":' % name.encode()) for name, variable in _PROCESSED.items()]
        return EventTemplate(before, [*after, Piece("", b"}" + self._suffix)])

    def row_number(self, row: int) -> bytes:
        return b"%d" % row

    def snapshot(self, suffix: bytes) -> bytes:
        return suffix + self._suffix

    def transaction_block_inserter(self, envelope: EventEnvelope, gtid: str) -> InsertTransactionBlock:
        assert envelope.before_op.endswith(_NULL + _OP_FIELD), "the envelope has no empty transaction before op"
        stop = len(_OP_FIELD) + 1 + len(envelope.after_op) + len(self._suffix)  # op is one letter
        start = stop + len(_NULL)

        def insert(value: bytes, total_order: int, collection_order: int) -> bytes:
            block = transaction_block(gtid, total_order, collection_order)
            return b"%b%b%b" % (value[:-start], block, value[-stop:])

        return insert

    def truncate(self, envelope: EventEnvelope) -> bytes:
        head, tail = self.event(envelope, Op.TRUNCATE)
        return b"".join((self.before_insert, _NULL, head, self.row_number(0), tail))


class AvroFrame:
    """Avro: parses the JSON of an envelope and encodes it."""

    def __init__(self, schema: ConnectSchema, schema_id: int) -> None:
        header = confluent_header(schema_id)
        self.before_insert = header + b"\x00\x02"
        self.before_update = header + b"\x02"
        self.between_rows = b"\x02"
        self.after_delete = b"\x00"
        self._before_truncate = header + b"\x00\x00"
        members = {field.name: field.schema for field in schema.fields}
        self._source_fields = members["source"].fields
        source = [(field.name, json_encoder(field.schema)) for field in self._source_fields]
        row_at = [name for name, _ in source].index("row")
        self._source_before_row, self._source_after_row = source[:row_at], source[row_at + 1 :]
        names = list(members)
        transaction_at = names.index("transaction")
        assert names[transaction_at - 1] == "source", "source and transaction are not neighbors"
        self._transaction = json_encoder(members["transaction"])
        self._fields_after_transaction = schema.fields[transaction_at + 1 :]
        self._after_transaction = [(name, json_encoder(members[name])) for name in names[transaction_at + 1 :]]

    def event(self, envelope: EventEnvelope, op: Op) -> tuple[bytes, bytes]:
        before_row, before_op, after_op, _ = envelope
        return self._encoded(orjson.loads(b'{"before":0%b0%b%b%b' % (before_row, before_op, op.encode(), after_op)))

    def event_template(self, source: Constants, op: Op) -> EventTemplate:

        def members(chosen: Sequence[ConnectField]) -> list[Piece]:
            pieces = []
            for field in chosen:
                present, absent = union(field.schema)
                if field.name in source:
                    encoded = json_encoder(field.schema)(source[field.name])
                    pieces.append(Piece("", encoded))
                else:
                    pieces.append(Piece(field.name, present, absent))
            return pieces

        fields = self._source_fields
        row_at = [field.name for field in fields].index("row")
        after = [*members(fields[row_at + 1 :]), Piece("", self._transaction(None))]
        for field in self._fields_after_transaction:
            if field.name == "op":
                after.append(Piece("", json_encoder(field.schema)(op.value)))
            else:
                after.append(Piece(_PROCESSED[field.name], union(field.schema)[0]))
        return EventTemplate(members(fields[:row_at]), after)

    def row_number(self, row: int) -> bytes:
        return zigzag(row)

    def snapshot(self, suffix: bytes) -> bytes:
        envelope = orjson.loads(b'{"before":0' + suffix)
        head, tail = self._encoded(envelope)
        return b"".join((head, self.row_number(envelope["source"]["row"]), tail))

    def transaction_block_inserter(self, envelope: EventEnvelope, gtid: str) -> InsertTransactionBlock:
        stop = len(self._encoded_after_transaction(orjson.loads(b'{"op":"-' + envelope.after_op)))
        start = stop + 1  # null is one byte

        def insert(value: bytes, total_order: int, collection_order: int) -> bytes:
            block = {"id": gtid, "total_order": total_order, "data_collection_order": collection_order}
            return b"%b%b%b" % (value[:-start], self._transaction(block), value[-stop:])

        return insert

    def truncate(self, envelope: EventEnvelope) -> bytes:
        head, tail = self.event(envelope, Op.TRUNCATE)
        return b"".join((self._before_truncate, head, self.row_number(0), tail))

    def _encoded(self, envelope: dict[str, Any]) -> tuple[bytes, bytes]:
        source = envelope["source"]
        head = b"".join([encode(source[name]) for name, encode in self._source_before_row])
        tail = b"".join([encode(source[name]) for name, encode in self._source_after_row])
        tail += self._transaction(envelope["transaction"]) + self._encoded_after_transaction(envelope)
        return head, tail

    def _encoded_after_transaction(self, envelope: dict[str, Any]) -> bytes:
        return b"".join([encode(envelope[name]) for name, encode in self._after_transaction])


def confluent_header(schema_id: int) -> bytes:
    """Return the header of Confluent's serializers: a zero byte and the schema id in four bytes."""
    return b"\0" + schema_id.to_bytes(4, "big")


def schema_envelope(schema: ConnectSchema) -> tuple[bytes, bytes]:
    """Return what JsonConverter writes around a payload."""
    return f'{{"schema":{schema_json(schema)},"payload":'.encode(), b"}"


@dataclass(frozen=True, slots=True)
class RecordFormat:
    """Converters of keys and values with what they need; the ids are those of the schema registry, for Avro only."""

    key: Converter
    value: Converter
    columns: tuple[ConnectField, ...]
    """The published columns in table order, with their adjusted names and their defaults."""
    key_schema: ConnectSchema
    value_schema: ConnectSchema
    key_id: int = 0
    value_id: int = 0
    exact_nulls: bool = False
    """Write a column's default instead of NULL, as Connect's converters do."""

    @property
    def plain(self) -> bool:
        """Keys are JSON without schema, and two rows are equal if they are equal as that."""
        return self.value != "avro" and self.key == "json" and not self.exact_nulls

    def frame(self) -> EnvelopeFrame:
        if self.value == "avro":
            return AvroFrame(self.value_schema, self.value_id)
        return JsonFrame(*schema_envelope(self.value_schema)) if self.value == "json-schema" else JsonFrame()

    @property
    def row_form(self) -> Form:
        return Form(avro=self.value == "avro", exact_nulls=self.exact_nulls)

    @property
    def key_form(self) -> Form:
        return Form(avro=self.key == "avro", exact_nulls=self.exact_nulls)

    def key_ends(self) -> tuple[bytes, bytes]:
        """Return what precedes and follows the columns of a key."""
        if self.key == "avro":
            return confluent_header(self.key_id), b""
        before, after = schema_envelope(self.key_schema) if self.key == "json-schema" else (b"", b"")
        return before + b"{", b"}" + after
