"""Serializes records that are not rows, with the converters of keys and values; one schema per topic and side."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

from tailrace.producer.config import ConvertersConfig
from tailrace.producer.model.value_options import Converter
from tailrace.producer.serialization.avro_encoding import json_encoder
from tailrace.producer.serialization.envelope.json import Struct, to_json
from tailrace.producer.serialization.envelope_frame import confluent_header, schema_envelope
from tailrace.producer.serialization.schema_registry import SchemaIdSource, Side
from tailrace.schemas.connect import ConnectSchema

_Serializer = Callable[[Struct], bytes]


class RecordConverter:
    """Returns the converters of topics under one configuration."""

    def __init__(self, config: ConvertersConfig) -> None:
        self._converters = dict(zip(("key", "value"), config.forms, strict=True))
        self._ids = SchemaIdSource(config)

    def topic(self, name: str, key: ConnectSchema, value: ConnectSchema) -> TopicConverter:
        """Return the converter of one topic. Its schemas are registered with the first record."""
        return TopicConverter(
            name,
            cache(lambda: self._serializer(name, "key", key)),
            cache(lambda: self._serializer(name, "value", value)),
        )

    def _serializer(self, topic: str, side: Side, schema: ConnectSchema) -> _Serializer:
        converter: Converter = self._converters[side]
        if converter == "json":
            return to_json
        if converter == "json-schema":
            before, after = schema_envelope(schema)
            return lambda struct: b"%b%b%b" % (before, to_json(struct), after)
        header, encode = confluent_header(self._ids.schema_id(side, topic, schema)), json_encoder(schema)
        return lambda struct: header + encode(struct)


class TopicConverter(NamedTuple):
    """Serializes the records of one topic."""

    name: str
    key_serializer: Callable[[], _Serializer]
    value_serializer: Callable[[], _Serializer]

    def record(self, key: Struct, value: Struct) -> tuple[bytes, bytes]:
        """Return key and value of a record. Raises what ``SchemaRegistryClient.schema_id`` raises."""
        return self.key_serializer()(key), self.value_serializer()(value)
