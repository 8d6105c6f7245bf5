"""How the records of the topics were written: Kafka Connect's converters and their schema registry."""

from __future__ import annotations

from typing import Final

from pydantic import SecretStr

from tailrace.runtime.config.converters import (
    CONVERTER,
    ConverterName,
    CredentialsSource,
    Side,
    credentials_source,
    registry_ca_file,
    registry_client_certificate,
    registry_key_password,
    registry_url,
    registry_user_info,
    rejected_stores,
)
from tailrace.runtime.config.property import Property, ignored
from tailrace.runtime.config.section import Section, section, supported
from tailrace.runtime.config.value_types import BOOLEAN
from tailrace.spark_consumer.source.formats.registry import RegistrySettings


class ConverterConfig(Section):
    """The converter of keys or of values."""

    converter: ConverterName | None = supported(
        "{side}.converter",
        CONVERTER,
        default_note="JSON of Tailrace",
        doc="Converter that wrote the records, for JSON with schemas, Avro, and [topics of a Debezium "
        "connector](debezium-topics.md): `org.apache.kafka.connect.json.JsonConverter` or "
        "`io.confluent.connect.avro.AvroConverter`.",
    )
    schemas: bool | None = supported(
        "{side}.converter.schemas.enable",
        BOOLEAN,
        doc="No effect: each record shows whether it has a schema.",
    )
    registry: SecretStr | None = registry_url()
    credentials: CredentialsSource = credentials_source()
    user_info: SecretStr | None = registry_user_info()
    ca_file: str | None = registry_ca_file()
    client_certificate: str | None = registry_client_certificate()
    key_password: SecretStr | None = registry_key_password()

    @property
    def registry_settings(self) -> RegistrySettings | None:
        """The schema registry; None if the converter is not Avro."""
        if self.converter != "avro" or self.registry is None:
            return None
        given = self.user_info if self.credentials == "user_info" else None
        return RegistrySettings(
            self.registry.get_secret_value(),
            user_info=given.get_secret_value() if given is not None else "",
            ca_file=self.ca_file,
            client_certificate=self.client_certificate,
            key_password=self.key_password.get_secret_value() if self.key_password is not None else "",
        )


class ConvertersConfig(Section):
    """How keys and values were written."""

    key: ConverterConfig = section(ConverterConfig, side="key")
    value: ConverterConfig = section(ConverterConfig, side="value")

    @property
    def are_set(self) -> bool:
        """Whether the schemas of records are found in the records or in a registry."""
        return self.key.converter is not None or self.value.converter is not None


def _unsupported(side: Side) -> tuple[Property, ...]:
    return *rejected_stores(side), *ignored("only the writer of the records needs it", f"{side}.converter.*")


UNSUPPORTED: Final[tuple[Property, ...]] = (*_unsupported("key"), *_unsupported("value"))
