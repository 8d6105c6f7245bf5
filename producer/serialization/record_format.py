"""How the records of one table version are written: converters, schemas, schema ids."""

from __future__ import annotations

from dataclasses import dataclass

from tailrace.producer.model.value_options import Converter
from tailrace.producer.serialization.envelope_frame import (
    AvroFrame,
    EnvelopeFrame,
    JsonFrame,
    confluent_header,
    schema_envelope,
)
from tailrace.producer.serialization.form import Form
from tailrace.schemas.connect import ConnectField, ConnectSchema


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
    def plain_rows(self) -> bool:
        """Two rows are equal if they are equal as JSON without schema."""
        return self.value != "avro" and not self.exact_nulls

    @property
    def plain_keys(self) -> bool:
        """Keys are JSON without schema."""
        return self.key == "json" and not self.exact_nulls

    def frame(self) -> EnvelopeFrame:
        """Return the envelope that surrounds the rows."""
        if self.value == "avro":
            return AvroFrame(self.value_schema, self.value_id)
        return JsonFrame(*schema_envelope(self.value_schema)) if self.value == "json-schema" else JsonFrame()

    @property
    def row_form(self) -> Form:
        """The form of rows."""
        return Form(avro=self.value == "avro", exact_nulls=self.exact_nulls)

    @property
    def key_form(self) -> Form:
        """The form of keys."""
        return Form(avro=self.key == "avro", exact_nulls=self.exact_nulls)

    def key_ends(self) -> tuple[bytes, bytes]:
        """Return what precedes and follows the columns of a key."""
        if self.key == "avro":
            return confluent_header(self.key_id), b""
        before, after = schema_envelope(self.key_schema) if self.key == "json-schema" else (b"", b"")
        return before + b"{", b"}" + after
