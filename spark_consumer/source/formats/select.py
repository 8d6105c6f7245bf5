"""Chooses the record format of a query from its converters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.spark_consumer.source.formats.avro_sides import AvroKeys, AvroValues
from tailrace.spark_consumer.source.formats.connector_format import ConnectorFormat
from tailrace.spark_consumer.source.formats.given_columns import connect_fields, parse_columns
from tailrace.spark_consumer.source.formats.json_sides import JsonKeys, JsonValues
from tailrace.spark_consumer.source.formats.record_format import RecordFormat, TailraceFormat
from tailrace.spark_consumer.source.formats.registry import SchemaRegistry
from tailrace.spark_consumer.source.formats.settings import FormatSettings

if TYPE_CHECKING:
    from tailrace.schemas.connect import ConnectField


def record_format(settings: FormatSettings | None) -> RecordFormat:
    """Return the format; None: what Tailrace writes by default."""
    if settings is None:
        return TailraceFormat()
    keys = JsonKeys() if settings.key is None else AvroKeys(SchemaRegistry(settings.key))
    values = (
        JsonValues(_GivenColumns(settings.columns))
        if settings.value is None
        else AvroValues(SchemaRegistry(settings.value))
    )
    return ConnectorFormat(keys, values)


class _GivenColumns:
    """The columns that the configuration gives; parsed at first use, because the parser needs a session."""

    def __init__(self, columns: Mapping[str, str]) -> None:
        self._texts = columns
        self._parsed: dict[str, tuple[ConnectField, ...]] = {}

    def __call__(self, database: str, table: str) -> tuple[ConnectField, ...] | None:
        name = f"{database}.{table}"
        if name in self._texts and name not in self._parsed:
            self._parsed[name] = connect_fields(parse_columns(self._texts[name]), table=name)
        return self._parsed.get(name)
