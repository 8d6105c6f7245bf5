"""Properties of Kafka Connect's converters: in which bytes keys and values are written, each on its own."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Final

from tailrace.producer.config.property import BOOLEAN, TEXT, Property, ValueType, ignored, one_of, rejected, supported

_CLASSES: Final = {
    "org.apache.kafka.connect.json.jsonconverter": "json",
    "io.confluent.connect.avro.avroconverter": "avro",
}
_STRATEGY: Final = "io.confluent.kafka.serializers.subject.topicnamestrategy"
_ADJUSTMENT: Final = one_of("none", "avro", "avro_unicode")


def _converter(text: str) -> str:
    return _CLASSES[text.strip().lower()]


_CONVERTER: Final = ValueType(
    "org.apache.kafka.connect.json.JsonConverter or io.confluent.connect.avro.AvroConverter", _converter
)


def _urls(text: str) -> str:
    urls = [each.strip() for each in text.split(",")]
    if not all(each.startswith(("http://", "https://")) for each in urls):
        raise ValueError
    return ",".join(urls)


_URLS: Final = ValueType("one or more URLs that begin with http:// or https://, separated by commas", _urls)


def _pem(text: str) -> str:
    path = text.strip()
    try:
        ssl.create_default_context(cafile=path)
    except OSError as error:
        raise ValueError from error
    return path


def _identity(text: str) -> str:
    path = text.strip()
    try:
        held = Path(path).read_bytes()
    except OSError as error:
        raise ValueError from error
    if b"-----BEGIN" not in held:
        raise ValueError
    return path


_KEYTOOL: Final = "a Java or PKCS12 store gives one by keytool -exportcert -rfc, or openssl pkcs12 -in STORE -out FILE"
_TRUSTED: Final = ValueType(f"a PEM file with certificates, which can be read here ({_KEYTOOL})", _pem)
_IDENTITY: Final = ValueType(
    f"a PEM file with a certificate and its private key, which can be read here ({_KEYTOOL})", _identity
)


def _tls(name: str, place: str, what: str) -> tuple[Property, ...]:
    stores = "Java key stores cannot be read; give PEM files"
    return (
        supported(
            f"{name}.truststore.location",
            f"{place}_trusted",
            _TRUSTED,
            None,
            f"PEM file of the authorities trusted by the registry's client for {what}; without it the system's.",
        ),
        supported(
            f"{name}.keystore.location",
            f"{place}_identity",
            _IDENTITY,
            None,
            f"PEM file of the certificate and private key that the registry's client for {what} shows.",
        ),
        supported(
            f"{name}.key.password",
            f"{place}_identity_password",
            TEXT,
            None,
            "Password of that private key.",
            secret=True,
        ),
        rejected(f"{name}.truststore.type", "Form of the trust store.", stores, "pem"),
        rejected(f"{name}.keystore.type", "Form of the key store.", stores, "pem"),
        rejected(f"{name}.truststore.password", "Password of the trust store.", stores, "", secret=True),
        rejected(f"{name}.keystore.password", "Password of the key store.", stores, "", secret=True),
        rejected(
            f"{name}.endpoint.identification.algorithm",
            "How the registry's name is checked.",
            "the name in its certificate is always checked",
            "https",
        ),
    )


def _of(side: str, what: str) -> tuple[Property, ...]:
    name, place = f"{side}.converter", f"converters.{side}"
    only_names = "subjects are named after the topic"
    return (
        supported(
            name,
            place,
            _CONVERTER,
            None,
            f"Java class that stands for the form of {what}: JSON, or Avro in the wire format of Confluent's registry. "
            "Without it: JSON.",
        ),
        supported(
            f"{name}.schemas.enable",
            f"{place}_schemas",
            BOOLEAN,
            None,
            f'JSON with its schema around {what}, `{{"schema":…,"payload":…}}`. Without it: true where {name} names '
            "the JSON converter, as in Kafka Connect, else false.",
        ),
        supported(
            f"{name}.schema.registry.url",
            f"{place}_registry",
            _URLS,
            None,
            f"Where the schema registry for {what} in Avro is; several of one registry, separated by commas.",
            secret=True,
        ),
        supported(
            f"{name}.basic.auth.credentials.source",
            f"{place}_credentials",
            one_of("url", "user_info"),
            "url",
            "Where user and password for the registry are: in its URL, or in the next property.",
        ),
        supported(
            f"{name}.basic.auth.user.info",
            f"{place}_user_info",
            TEXT,
            None,
            "User and password for the registry, as `user:password`.",
            aliases=(f"{name}.schema.registry.basic.auth.user.info",),
            secret=True,
        ),
        supported(
            f"{name}.auto.register.schemas",
            f"{place}_auto_register",
            BOOLEAN,
            "true",
            "Register schemas that the registry does not know; false: stop at such a schema.",
        ),
        *_tls(f"{name}.schema.registry.ssl", place, what),
        ignored(
            f"{name}.replace.null.with.default",
            "Write a column's default in place of NULL.",
            "tailrace.null.with.default decides, for keys and values together",
            harmless=("false",),
        ),
        ignored(f"{name}.schemas.cache.*", "How many schemas are remembered.", "all are remembered"),
        rejected(f"{name}.decimal.format", "Form of decimals in JSON.", "decimals are base64", "base64"),
        rejected(f"{name}.{side}.subject.name.strategy", "Java class that names subjects.", only_names, _STRATEGY),
        rejected(
            f"{name}.connect.meta.data", "`connect.*` properties in Avro schemas.", "they are always there", "true"
        ),
        rejected(
            f"{name}.enhanced.avro.schema.support", "Enums and packages in Avro schemas.", "enums are text", "false"
        ),
        rejected(
            f"{name}.use.latest.version", "Write by another schema.", "records are written by their own schema", "false"
        ),
        rejected(f"{name}.*", f"Other settings of the converter of {what}.", "there is no such choice here"),
    )


PROPERTIES: Final[tuple[Property, ...]] = (
    *_of("key", "keys"),
    *_of("value", "values"),
    supported(
        "tailrace.null.with.default",
        "converters.nulls",
        one_of("correct", "debezium-exact"),
        "correct",
        "NULL in a column that has a default: null (correct), or the default in its place, as Kafka Connect's "
        "converters write it (debezium-exact).",
    ),
    supported(
        "schema.name.adjustment.mode",
        "converters.schema_names",
        _ADJUSTMENT,
        "none",
        "Names of schemas made fit for Avro: other characters become `_`, or `_uXXXX` (where `_` itself is `_u005f`).",
    ),
    supported(
        "field.name.adjustment.mode",
        "converters.field_names",
        _ADJUSTMENT,
        "none",
        "Names of columns in records made fit for Avro, in the same way; a digit in front gets `_` before it.",
    ),
)
