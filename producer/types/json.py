"""JSON columns: placeholder until the binary form is decoded."""

from __future__ import annotations

from producer.types.base import ColumnType, Form, Prefixed, Raw, Value
from schemas.connect import ConnectSchema


class JsonType(ColumnType):
    """JSON."""

    kinds = ("json",)

    def connect(self) -> ConnectSchema:
        return ConnectSchema("string", name="io.debezium.data.Json", version=1)

    @property
    def layout(self) -> Prefixed:
        return Prefixed(4)

    def from_text(self, raw: Raw) -> Value:
        return Value(raw.text, Form.TEXT)

    def from_log(self, raw: Raw) -> Value:
        return Value(raw.text, Form.TEXT)

    def key_from_log(self, raw: Raw) -> str:
        return raw.data
