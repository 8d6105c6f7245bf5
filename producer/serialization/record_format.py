"""How the records of one table version are written: converters, schemas, schema ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from tailrace.producer.model.value_options import Converter
from tailrace.producer.serialization.avro_writer import AvroWriter
from tailrace.producer.serialization.codegen import CodeBuilder
from tailrace.producer.serialization.envelope.schemas import default_json
from tailrace.producer.serialization.envelope_frame import (
    AvroFrame,
    EnvelopeFrame,
    JsonFrame,
    confluent_header,
    schema_envelope,
)
from tailrace.producer.serialization.json_writer import JsonWriter
from tailrace.producer.serialization.row_layout import RowLayout
from tailrace.producer.serialization.row_writer import RowAndKey, RowWriter, WriterFactory
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

    def writers(self, layout: RowLayout) -> WriterFactory:
        """Return the factory of the writers for rows of a layout."""
        avro = self.value == "avro"
        return lambda builder: layout.projection.writer(self._writer(layout, builder), layout.types, builder, avro=avro)

    def plain_writers(self, layout: RowLayout) -> WriterFactory:
        """Return the factory of the writers for rows and keys in JSON without schema."""
        names, projection = layout.by_slot([field.name for field in self.columns]), layout.projection
        return lambda builder: projection.writer(
            JsonWriter(names, projection.key, builder, row=projection.row), layout.types, builder, avro=False
        )

    def column_writers(self, layout: RowLayout, slot: int) -> WriterFactory:
        """Return the factory of the writers for one column alone: the only slot, without a name, and no key."""
        schema = self.column_schemas(layout)[slot]
        if self.value == "avro":
            exact = self.exact_nulls
            return lambda builder: AvroWriter([schema], ((0,), ()), builder, key_prefix="", exact_nulls=exact)
        defaults = self._defaults([schema])
        return lambda builder: JsonWriter([""], (), builder, nulls=defaults)

    def key_ends(self) -> tuple[str, str]:
        """Return what precedes and follows the columns of a key, as text of one character per byte."""
        if self.key == "avro":
            return confluent_header(self.key_id).decode("latin-1"), ""
        before, after = self._around_key()
        return f"{before}{{", f"}}{after}"

    def _writer(self, layout: RowLayout, builder: CodeBuilder) -> RowWriter:
        if self.key == "avro" and self.value == "avro":
            return self._avro_writer(layout, builder)
        if self.key != "avro" and self.value != "avro":
            return self._json_writer(layout, builder)
        avro, json = self._avro_writer(layout, builder), self._json_writer(layout, builder)
        key = layout.projection.key
        return RowAndKey(avro, json, key) if self.value == "avro" else RowAndKey(json, avro, key)

    def _avro_writer(self, layout: RowLayout, builder: CodeBuilder) -> AvroWriter:
        header = confluent_header(self.key_id).decode("latin-1")
        columns, schemas = (layout.projection.row, layout.projection.key), self.column_schemas(layout)
        return AvroWriter(schemas, columns, builder, key_prefix=header, exact_nulls=self.exact_nulls)

    def _json_writer(self, layout: RowLayout, builder: CodeBuilder) -> JsonWriter:
        names, projection = layout.by_slot([field.name for field in self.columns]), layout.projection
        defaults, around_key = self._defaults(self.column_schemas(layout)), self._around_key()
        return JsonWriter(names, projection.key, builder, row=projection.row, around_key=around_key, nulls=defaults)

    def _around_key(self) -> tuple[str, str]:
        if self.key != "json-schema":
            return "", ""
        before, after = schema_envelope(self.key_schema)
        return before.decode("latin-1"), after.decode("latin-1")

    def _defaults(self, schemas: Sequence[ConnectSchema]) -> dict[int, str]:
        """Return what is written instead of null, by slot."""
        return {
            i: default_json(schema).encode().decode("latin-1")
            for i, schema in enumerate(schemas)
            if self.exact_nulls and schema.optional and schema.default is not None
        }

    def column_schemas(self, layout: RowLayout) -> Sequence[ConnectSchema]:
        """Return the schema of each slot."""
        return layout.by_slot([field.schema for field in self.columns])
