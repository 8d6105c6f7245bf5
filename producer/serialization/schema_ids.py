"""Ids of schemas by the converters of one configuration: one client for each registry, subjects named after topics."""

from __future__ import annotations

from typing import Literal

from tailrace.producer.config import ConvertersConfig
from tailrace.producer.config.registry_settings import RegistrySettings
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.producer.serialization.schema_registry import SchemaRegistryClient
from tailrace.schemas.connect import ConnectSchema


class SchemaIdSource:
    """Asks the registry of a side."""

    def __init__(self, config: ConvertersConfig) -> None:
        self._config = config
        self._registries: dict[RegistrySettings, SchemaRegistryClient] = {}

    def schema_id(self, side: Literal["key", "value"], topic: str, schema: ConnectSchema) -> int:
        """Return the id of a schema under ``<topic>-<side>``. Raises what ``SchemaRegistryClient.schema_id`` raises."""
        settings = self._config.registry(side)
        if settings not in self._registries:
            self._registries[settings] = SchemaRegistryClient(settings)
        return self._registries[settings].schema_id(f"{topic}-{side}", avro_schema(schema))
