"""Reads our Avro with fastavro, and encodes the same values with it."""

from __future__ import annotations

import io
import struct
from base64 import b64decode
from typing import Any

import fastavro

from tailrace.schemas.connect import ConnectSchema


class Avro:
    """One Avro schema. Logical types are left out: values are compared as they are written."""

    def __init__(self, schema: Any) -> None:
        fastavro.parse_schema(schema)  # with its logical types it must be a schema, too
        self._parsed = fastavro.parse_schema(_physical(schema))

    def read(self, data: bytes) -> Any:
        """Return the value, read to the last byte."""
        stream = io.BytesIO(data)
        found = fastavro.schemaless_reader(stream, self._parsed, None)
        assert stream.read() == b"", "bytes are left over"
        return found

    def write(self, value: Any) -> bytes:
        """Return the bytes of a value."""
        stream = io.BytesIO()
        fastavro.schemaless_writer(stream, self._parsed, value)
        return stream.getvalue()


def _physical(schema: Any) -> Any:
    if isinstance(schema, list):
        return [_physical(each) for each in schema]
    if isinstance(schema, dict):
        return {name: _physical(part) for name, part in schema.items() if name != "logicalType"}
    return schema


def value_of(schema: ConnectSchema, printed: Any) -> Any:
    """Return the Avro value of what the JSON converter prints for the same."""
    if printed is None:
        return None
    if schema.type == "struct":
        return {field.name: value_of(field.schema, printed[field.name]) for field in schema.fields}
    if schema.type == "array":
        assert schema.items is not None
        return [value_of(schema.items, each) for each in printed]
    if schema.type == "bytes":
        return b64decode(printed)
    if schema.type == "float":
        return struct.unpack("<f", struct.pack("<f", printed))[0]
    return printed
