"""How record keys and values are serialized: Kafka Connect's converters and their schema registry."""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal

from pydantic import SecretStr

from tailrace.producer.config.registry_settings import RegistrySettings
from tailrace.producer.config.value_types import URLS
from tailrace.producer.model.value_options import Converter, NameAdjustment
from tailrace.runtime.config.property import Property, ignored, rejected
from tailrace.runtime.config.section import Section, section, supported
from tailrace.runtime.config.value_types import BOOLEAN, SECRET_TEXT, ValueType, one_of, secret

ConverterName = Literal["json", "avro"]
Side = Literal["key", "value"]
CredentialsSource = Literal["url", "user_info"]
NullHandling = Literal["correct", "debezium-exact"]

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
_TOPIC_NAME_STRATEGY: Final = "io.confluent.kafka.serializers.subject.topicnamestrategy"
_KEYTOOL: Final = "convert a Java or PKCS12 store with keytool -exportcert -rfc, or openssl pkcs12 -in STORE -out FILE"


def _ca_file(text: str) -> str:
    path = text.strip()
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError from error
    return path


def _client_certificate(text: str) -> str:
    path = text.strip()
    try:
        content = Path(path).read_bytes()
    except OSError as error:
        raise ValueError from error
    if b"-----BEGIN" not in content:
        raise ValueError
    return path


_CA_FILE: Final = ValueType(f"a readable PEM file with certificates ({_KEYTOOL})", _ca_file)
_CLIENT_CERTIFICATE: Final = ValueType(
    f"a readable PEM file with a certificate and its private key ({_KEYTOOL})", _client_certificate
)


class ConverterConfig(Section):
    """The converter of keys or of values."""

    converter: ConverterName | None = supported(
        "{side}.converter",
        _CONVERTER,
        default_note="JSON",
        doc="Java class of the converter for {side}s: JSON, or Avro in the wire format of Confluent's schema registry.",
    )
    schemas: bool | None = supported(
        "{side}.converter.schemas.enable",
        BOOLEAN,
        default_note="`true` if `{side}.converter` is the JSON converter, else `false`",
        doc='Whether {side}s in JSON contain their schema, as `{"schema":…,"payload":…}`.',
    )
    registry: SecretStr | None = supported(
        "{side}.converter.schema.registry.url",
        secret(URLS),
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
    auto_register: bool = supported(
        "{side}.converter.auto.register.schemas",
        BOOLEAN,
        default="true",
        doc="Whether new schemas are registered. If not, the producer stops at a schema that is not registered.",
    )
    ca_file: str | None = supported(
        "{side}.converter.schema.registry.ssl.truststore.location",
        _CA_FILE,
        default_note="the authorities of the system",
        doc="PEM file with the certificates of the authorities that are trusted for the registry of {side}s.",
    )
    client_certificate: str | None = supported(
        "{side}.converter.schema.registry.ssl.keystore.location",
        _CLIENT_CERTIFICATE,
        doc="PEM file with the client's certificate and private key for the registry of {side}s.",
    )
    key_password: SecretStr | None = supported(
        "{side}.converter.schema.registry.ssl.key.password",
        SECRET_TEXT,
        doc="Password of that private key.",
    )

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
        doc="How NULL in a column with a default is written: as null (correct), or as the default, as in Kafka Connect "
        "(debezium-exact).",
    )
    schema_names: NameAdjustment = supported(
        "schema.name.adjustment.mode",
        one_of(NameAdjustment),
        default="none",
        doc="How schema names are adjusted for Avro: characters that are not allowed become `_` (avro), or `_uXXXX`, "
        "where `_` itself becomes `_u005f` (avro_unicode).",
    )
    field_names: NameAdjustment = supported(
        "field.name.adjustment.mode",
        one_of(NameAdjustment),
        default="none",
        doc="How field names are adjusted for Avro. A name that begins with a digit gets the prefix `_`.",
    )

    @property
    def forms(self) -> tuple[Converter, Converter]:
        """The converters of keys and of values."""
        return self.key.form, self.value.form

    @property
    def plain(self) -> bool:
        """Whether keys and values are JSON without schemas, and names and NULL are written unchanged."""
        return self.forms == ("json", "json") and self.nulls == "correct" and self.field_names == "none"

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
    stores = "Java key stores are not supported; set PEM files"
    return (
        rejected(f"{tls}.truststore.type", "Type of the trust store.", stores, "pem"),
        rejected(f"{tls}.keystore.type", "Type of the key store.", stores, "pem"),
        rejected(f"{tls}.truststore.password", "Password of the trust store.", stores, ""),
        rejected(f"{tls}.keystore.password", "Password of the key store.", stores, ""),
        rejected(
            f"{tls}.endpoint.identification.algorithm",
            "How the host name of the registry is verified.",
            "the host name is always verified",
            "https",
        ),
        ignored(
            f"{converter}.replace.null.with.default",
            "Write the default of a column instead of NULL.",
            "set tailrace.null.with.default, which applies to keys and values",
            no_op_values=("false",),
        ),
        ignored(f"{converter}.schemas.cache.*", "Size of the schema cache.", "all schemas are cached"),
        rejected(f"{converter}.decimal.format", "Format of decimals in JSON.", "decimals are base64", "base64"),
        rejected(
            f"{converter}.{side}.subject.name.strategy",
            "Java class that names subjects.",
            "subjects are named after their topic",
            _TOPIC_NAME_STRATEGY,
        ),
        rejected(f"{converter}.connect.meta.data", "`connect.*` attributes in Avro schemas.", "they are set", "true"),
        rejected(
            f"{converter}.enhanced.avro.schema.support",
            "Enums and packages in Avro schemas.",
            "enums are written as strings",
            "false",
        ),
        rejected(
            f"{converter}.use.latest.version",
            "Write with the latest registered schema.",
            "each record is written with its own schema",
            "false",
        ),
        rejected(f"{converter}.*", f"Other options of the converter for {side}s.", "Tailrace has no such option"),
    )


UNSUPPORTED: Final[tuple[Property, ...]] = (*_unsupported("key"), *_unsupported("value"))
