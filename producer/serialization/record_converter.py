"""Records that are not rows, in the forms of the converters: one schema a topic, each side as its converter says."""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import Literal

from tailrace.producer.config import ConvertersConfig
from tailrace.producer.model.value_options import Converter
from tailrace.producer.serialization.avro_encoding import json_encoder
from tailrace.producer.serialization.envelope.json import Struct, to_json
from tailrace.producer.serialization.envelope_frame import confluent_header, schema_envelope
from tailrace.producer.serialization.schema_ids import SchemaIdSource
from tailrace.schemas.connect import ConnectSchema

Side = Literal["key", "value"]
_Writer = Callable[[Struct], bytes]


class RecordConverter:
    """Makes the forms of one configuration's topics."""

    def __init__(self, config: ConvertersConfig) -> None:
        self._forms = dict(zip(("key", "value"), config.forms, strict=True))
        self._ids = SchemaIdSource(config)

    def topic(self, name: str, key: ConnectSchema, value: ConnectSchema) -> TopicConverter:
        """Return what writes the records of one topic. Nothing is registered before the first of them."""
        return TopicConverter(name, self._later(name, "key", key), self._later(name, "value", value))

    def _later(self, topic: str, side: Side, schema: ConnectSchema) -> Callable[[], _Writer]:
        return lambda: self._writer(self._forms[side], topic, side, schema)

    def _writer(self, form: Converter, topic: str, side: Side, schema: ConnectSchema) -> _Writer:
        if form == "json":
            return to_json
        if form == "json-schema":
            before, after = schema_envelope(schema)
            return lambda struct: b"%b%b%b" % (before, to_json(struct), after)
        opening, encode = confluent_header(self._ids.schema_id(side, topic, schema)), json_encoder(schema)
        return lambda struct: opening + encode(struct).encode("latin-1")


class TopicConverter:
    """One topic of records that are not rows."""

    def __init__(self, name: str, key: Callable[[], _Writer], value: Callable[[], _Writer]) -> None:
        self.name = name
        self._make_key = key
        self._make_value = value

    def record(self, key: Struct, value: Struct) -> tuple[bytes, bytes]:
        """Return the bytes of a record. Raises what ``Registry.schema_id`` raises."""
        return self._key(key), self._value(value)

    @cached_property
    def _key(self) -> _Writer:
        return self._make_key()

    @cached_property
    def _value(self) -> _Writer:
        return self._make_value()
