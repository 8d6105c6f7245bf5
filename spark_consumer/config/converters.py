"""How the records of the topics were written: Kafka Connect's converters and their schema registry."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, section, supported
from tailrace.runtime.config.value_types import BOOLEAN, SECRET_TEXT, TEXT, ValueType, one_of, secret
from tailrace.spark_consumer.source.formats.settings import RegistrySettings

ConverterName = Literal["json", "avro"]
Side = Literal["key", "value"]
CredentialsSource = Literal["url", "user_info"]

_CLASSES: Final[Mapping[ConverterName, str]] = {
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "avro": "io.confluent.connect.avro.AvroConverter",
}
_BY_CLASS: Final[Mapping[str, ConverterName]] = {name.lower(): word for word, name in _CLASSES.items()}
_CONVERTER: Final[ValueType[ConverterName | None]] = ValueType(
    " or ".join(_CLASSES.values()),
    lambda text: _BY_CLASS[text.strip().lower()],
    lambda word: "" if word is None else _CLASSES[word],
)


def _urls(text: str) -> str:
    found = [each.strip() for each in text.split(",")]
    if not all(each.startswith(("http://", "https://")) for each in found):
        raise ValueError
    return ",".join(found)


_URLS: Final = ValueType("one or more URLs that begin with http:// or https://, separated by commas", _urls)


class ConverterConfig(Section):
    """The converter of keys or of values."""

    converter: ConverterName | None = supported(
        "{side}.converter",
        _CONVERTER,
        default_note="JSON, as Tailrace writes it by default",
        doc="Java class of the converter that wrote the {side}s: JSON with or without schemas, or Avro in the wire "
        "format of Confluent's schema registry. Needed for topics that a Debezium connector wrote or began.",
    )
    schemas: bool | None = supported(
        "{side}.converter.schemas.enable",
        BOOLEAN,
        default_note="each record shows it",
        doc='Whether {side}s in JSON contain their schema, as `{"schema":…,"payload":…}`. Both forms are recognized in '
        "each record, so this has no effect.",
    )
    registry: SecretStr | None = supported(
        "{side}.converter.schema.registry.url",
        secret(_URLS),
        doc="URL of the schema registry for {side}s in Avro. Several URLs of one registry are separated by commas.",
    )
    credentials: CredentialsSource = supported(
        "{side}.converter.basic.auth.credentials.source",
        one_of(CredentialsSource),
        default="url",
        doc="Source of the user and password for the registry: its URL (url), or the next property (user_info).",
    )
    user_info: SecretStr | None = supported(
        "{side}.converter.basic.auth.user.info",
        SECRET_TEXT,
        doc="User and password for the registry, as `user:password`.",
        aliases=("{side}.converter.schema.registry.basic.auth.user.info",),
    )
    ca_file: str | None = supported(
        "{side}.converter.schema.registry.ssl.truststore.location",
        TEXT,
        default_note="the authorities of the system",
        doc="PEM file with the certificates of the authorities that are trusted for the registry of {side}s.",
    )
    client_certificate: str | None = supported(
        "{side}.converter.schema.registry.ssl.keystore.location",
        TEXT,
        doc="PEM file with the client's certificate and private key for the registry of {side}s.",
    )
    key_password: SecretStr | None = supported(
        "{side}.converter.schema.registry.ssl.key.password",
        SECRET_TEXT,
        doc="Password of that private key.",
    )

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
    converter, tls = f"{side}.converter", f"{side}.converter.schema.registry.ssl"
    stores = "Java key stores are not supported; set PEM files"
    writer = "only the writer of the records needs it"
    return (
        rejected(f"{tls}.truststore.type", "Type of the trust store.", stores, "pem"),
        rejected(f"{tls}.keystore.type", "Type of the key store.", stores, "pem"),
        rejected(f"{tls}.truststore.password", "Password of the trust store.", stores, ""),
        rejected(f"{tls}.keystore.password", "Password of the key store.", stores, ""),
        rejected(f"{converter}.decimal.format", "Format of decimals in JSON.", "decimals are base64", "base64"),
        ignored(f"{converter}.*", f"Other options of the converter for {side}s.", writer),
    )


UNSUPPORTED: Final[tuple[Property, ...]] = (*_unsupported("key"), *_unsupported("value"))
