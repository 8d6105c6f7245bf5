"""How record keys and values are serialized: Kafka Connect's converters and their schema registry."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.producer.model.value_options import Converter, NameAdjustment
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
    split_user_info,
)
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, section, supported
from tailrace.runtime.config.value_types import BOOLEAN, one_of


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """``user_info`` is ``user:password``; the representation contains no password."""

    url: str
    """One URL, or several URLs of the same registry, separated by commas."""
    user_info: str
    auto_register: bool
    ca_file: str
    """PEM file of the trusted authorities; empty: those of the system."""
    client_certificate: str
    """PEM file with the client's certificate and its private key."""
    key_password: str
    """Password of the private key."""

    def __repr__(self) -> str:
        return f"RegistrySettings({', '.join(split_user_info(each)[0] for each in self.url.split(','))})"


NullHandling = Literal["correct", "debezium-exact"]


class ConverterConfig(Section):
    """The converter of keys or of values."""

    converter: ConverterName | None = supported(
        "{side}.converter",
        CONVERTER,
        default_note="JSON",
        doc="`org.apache.kafka.connect.json.JsonConverter`, or `io.confluent.connect.avro.AvroConverter` (in "
        "Confluent's wire format).",
    )
    schemas: bool | None = supported(
        "{side}.converter.schemas.enable",
        BOOLEAN,
        default_note="`true` if the converter is set to JSON",
        doc='Whether JSON contains its schema, as `{"schema":…,"payload":…}`.',
    )
    registry: SecretStr | None = registry_url()
    credentials: CredentialsSource = credentials_source()
    user_info: SecretStr | None = registry_user_info()
    auto_register: bool = supported(
        "{side}.converter.auto.register.schemas",
        BOOLEAN,
        default="true",
        doc="Whether new schemas are registered; else they must be.",
    )
    ca_file: str | None = registry_ca_file()
    client_certificate: str | None = registry_client_certificate()
    key_password: SecretStr | None = registry_key_password()

    @property
    def form(self) -> Converter:
        """The converter; as in Kafka Connect, the JSON converter writes schemas unless they are disabled."""
        if self.converter == "avro":
            return "avro"
        schemas = self.schemas if self.schemas is not None else self.converter is not None
        return "json-schema" if schemas else "json"


class ConvertersConfig(Section):
    """How keys and values are serialized."""

    key: ConverterConfig = section(ConverterConfig, side="key")
    value: ConverterConfig = section(ConverterConfig, side="value")
    nulls: NullHandling = supported(
        "tailrace.null.with.default",
        one_of(NullHandling),
        default="correct",
        doc="NULL in a column with a default as null (correct), or as the default, as in Kafka Connect "
        "(debezium-exact).",
    )
    schema_names: NameAdjustment = supported(
        "schema.name.adjustment.mode",
        one_of(NameAdjustment),
        default="none",
        doc="Schema names for Avro: unchanged (none), or other characters as `_` (avro) or `_uXXXX`, also `_` itself "
        "(avro_unicode).",
    )
    field_names: NameAdjustment = supported(
        "field.name.adjustment.mode",
        one_of(NameAdjustment),
        default="none",
        doc="The same for field names (none, avro, avro_unicode); a name that begins with a digit gets the prefix `_`.",
    )

    @property
    def forms(self) -> tuple[Converter, Converter]:
        """The converters of keys and of values."""
        return self.key.form, self.value.form

    @property
    def plain(self) -> bool:
        """Whether keys and values are JSON without schemas, and names and NULL are written unchanged."""
        return self.forms == ("json", "json") and self.nulls == "correct" and self.field_names == "none"

    @property
    def registries(self) -> frozenset[RegistrySettings]:
        """The schema registries of the sides whose converters are Avro."""
        sides: tuple[Side, ...] = ("key", "value")
        return frozenset(self.registry(side) for side, form in zip(sides, self.forms, strict=True) if form == "avro")

    def registry(self, side: Side) -> RegistrySettings:
        """Return the schema registry of a side whose converter is Avro."""
        own = self.key if side == "key" else self.value
        assert own.registry is not None
        user_info = own.user_info if own.credentials == "user_info" else None
        return RegistrySettings(
            own.registry.get_secret_value(),
            user_info=user_info.get_secret_value() if user_info is not None else "",
            auto_register=own.auto_register,
            ca_file=own.ca_file or "",
            client_certificate=own.client_certificate or "",
            key_password=own.key_password.get_secret_value() if own.key_password is not None else "",
        )


def _unsupported(side: Side) -> tuple[Property, ...]:
    converter, tls = f"{side}.converter", f"{side}.converter.schema.registry.ssl"
    return (
        *rejected_stores(side),
        *rejected(
            "the host name is always verified", f"{tls}.endpoint.identification.algorithm", no_op_values=("https",)
        ),
        *ignored(
            "set tailrace.null.with.default, which applies to keys and values",
            f"{converter}.replace.null.with.default",
            no_op_values=("false",),
        ),
        *ignored("all schemas are cached", f"{converter}.schemas.cache.*"),
        *rejected(
            "subjects are named after their topic",
            f"{converter}.{side}.subject.name.strategy",
            no_op_values=("io.confluent.kafka.serializers.subject.topicnamestrategy",),
        ),
        *rejected("they are set", f"{converter}.connect.meta.data", no_op_values=("true",)),
        *rejected("enums are written as strings", f"{converter}.enhanced.avro.schema.support", no_op_values=("false",)),
        *rejected(
            "each record is written with its own schema", f"{converter}.use.latest.version", no_op_values=("false",)
        ),
        *rejected("Tailrace has no such option", f"{converter}.*"),
    )


UNSUPPORTED: Final[tuple[Property, ...]] = (*_unsupported("key"), *_unsupported("value"))
