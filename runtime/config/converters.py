"""What both halves say of Kafka Connect's converters and of their schema registry; ``{side}`` is key or value.

The functions declare the fields of a section, as ``supported`` does.
"""

from __future__ import annotations

import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Final, Literal
from urllib.parse import unquote, urlsplit, urlunsplit

from pydantic import SecretStr

from tailrace.runtime.config.property import Property, rejected
from tailrace.runtime.config.section import supported
from tailrace.runtime.config.value_types import SECRET_TEXT, ValueType, one_of, secret

ConverterName = Literal["json", "avro"]
Side = Literal["key", "value"]
CredentialsSource = Literal["url", "user_info"]

_CLASSES: Final[Mapping[ConverterName, str]] = {
    "json": "org.apache.kafka.connect.json.JsonConverter",
    "avro": "io.confluent.connect.avro.AvroConverter",
}
_BY_CLASS: Final[Mapping[str, ConverterName]] = {name.lower(): word for word, name in _CLASSES.items()}
CONVERTER: Final[ValueType[ConverterName | None]] = ValueType(
    " or ".join(_CLASSES.values()),
    lambda text: _BY_CLASS[text.strip().lower()],
    lambda word: "" if word is None else _CLASSES[word],
)
_KEYTOOL: Final = "convert a Java or PKCS12 store with keytool -exportcert -rfc, or openssl pkcs12 -in STORE -out FILE"


def _urls(text: str) -> str:
    found = [each.strip() for each in text.split(",")]
    if not all(each.startswith(("http://", "https://")) for each in found):
        raise ValueError
    return ",".join(found)


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


_URLS: Final = ValueType("one or more URLs that begin with http:// or https://, separated by commas", _urls)
_CA_FILE: Final = ValueType(f"a readable PEM file with certificates ({_KEYTOOL})", _ca_file)
_CLIENT_CERTIFICATE: Final = ValueType(
    f"a readable PEM file with a certificate and its private key ({_KEYTOOL})", _client_certificate
)


def registry_url() -> SecretStr | None:
    return supported(
        "{side}.converter.schema.registry.url",
        secret(_URLS),
        doc="URL of the schema registry, for Avro; several of one registry are separated by commas.",
    )


def credentials_source() -> CredentialsSource:
    return supported(
        "{side}.converter.basic.auth.credentials.source",
        one_of(CredentialsSource),
        default="url",
        doc="Where user and password are: in its URL (url) or the next property (user_info).",
    )


def registry_user_info() -> SecretStr | None:
    return supported(
        "{side}.converter.basic.auth.user.info",
        SECRET_TEXT,
        doc="User and password, as `user:password`.",
        aliases=("{side}.converter.schema.registry.basic.auth.user.info",),
    )


def registry_ca_file() -> str | None:
    return supported(
        "{side}.converter.schema.registry.ssl.truststore.location",
        _CA_FILE,
        default_note="those of the system",
        doc="PEM file of the trusted authorities.",
    )


def registry_client_certificate() -> str | None:
    return supported(
        "{side}.converter.schema.registry.ssl.keystore.location",
        _CLIENT_CERTIFICATE,
        doc="PEM file with the client's certificate and private key.",
    )


def registry_key_password() -> SecretStr | None:
    return supported(
        "{side}.converter.schema.registry.ssl.key.password", SECRET_TEXT, doc="Password of that private key."
    )


def split_user_info(url: str) -> tuple[str, str]:
    """Return a URL without its user and password, and ``user:password`` (empty for none)."""
    parts = urlsplit(url)
    user_info, at, host = parts.netloc.rpartition("@")
    return (urlunsplit(parts._replace(netloc=host)), unquote(user_info)) if at else (url, "")


def rejected_stores(side: Side) -> tuple[Property, ...]:
    """Return the properties of Java key stores, and the format of decimals, which cannot be chosen."""
    tls, stores = f"{side}.converter.schema.registry.ssl", "Java key stores are not supported; set PEM files"
    return (
        *rejected(stores, f"{tls}.truststore.type", f"{tls}.keystore.type", no_op_values=("pem",)),
        *rejected(stores, f"{tls}.truststore.password", f"{tls}.keystore.password", no_op_values=("",)),
        *rejected("decimals are base64", f"{side}.converter.decimal.format", no_op_values=("base64",)),
    )
