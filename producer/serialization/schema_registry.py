"""Client of a schema registry with Confluent's interface: registers schemas and returns their ids.

It sends three kinds of requests, which the standard library can do; Confluent's own client would add ten packages.
"""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Callable, Mapping
from typing import Any, Final, Literal
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from tailrace.producer.config import ConvertersConfig
from tailrace.producer.config.sections.converters import RegistrySettings
from tailrace.producer.serialization.avro_schema import avro_schema
from tailrace.runtime.config.converters import split_user_info
from tailrace.runtime.errors import ConfigError, KafkaRequestError, KafkaUnavailableError, SchemaError
from tailrace.schemas.connect import ConnectSchema

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 30.0
_RETRY_FOR_S: Final = 8.0
"""Time to wait for a registry that restarts."""
_RETRY_INTERVAL_S: Final = 0.5
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_NO_SUBJECT: Final = 40401
_UNPROCESSABLE: Final = 422
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_DENIED: Final = frozenset({401, 403})
_REDIRECTS: Final = frozenset({301, 302, 303, 307, 308})


Side = Literal["key", "value"]
SchemaId = Callable[[Side, str, ConnectSchema], int]
"""``(side, topic, schema)`` -> the id of the schema."""


class SchemaIdSource:
    """Returns schema ids under one configuration: one client per registry, subjects named after topics."""

    def __init__(self, config: ConvertersConfig) -> None:
        self._config = config
        self._clients: dict[RegistrySettings, SchemaRegistryClient] = {}

    def schema_id(self, side: Side, topic: str, schema: ConnectSchema) -> int:
        """Return the id of a schema under ``<topic>-<side>``. Raises what ``SchemaRegistryClient.schema_id`` raises."""
        settings = self._config.registry(side)
        if settings not in self._clients:
            self._clients[settings] = SchemaRegistryClient(settings)
        return self._clients[settings].schema_id(f"{topic}-{side}", avro_schema(schema))


class SchemaRegistryClient:
    """Requests schema ids from one registry and caches them."""

    def __init__(self, settings: RegistrySettings) -> None:
        servers = [split_user_info(each.strip().rstrip("/")) for each in settings.url.split(",") if each.strip()]
        self._urls = [url for url, _ in servers]
        user_info = settings.user_info or next((found for _, found in servers if found), "")
        self._headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Content-Type": _MEDIA_TYPE}
        if user_info:
            self._headers["Authorization"] = f"Basic {b64encode(user_info.encode()).decode()}"
        # Like Kafka Connect, ignores the proxies of the environment.
        self._opener = build_opener(ProxyHandler({}), _NoRedirect(), HTTPSHandler(context=_context(settings)))
        self._auto_register = settings.auto_register
        self._ids: dict[tuple[str, str], int] = {}

    def require_answer(self, subject: str) -> None:
        """Raise KafkaRequestError if the registry does not respond, or not to a question about a subject."""
        try:
            status, response = self._send(f"/subjects/{quote(subject, safe='')}/versions", None)
        except OSError as error:
            raise KafkaUnavailableError(
                "the schema registry did not respond",
                hint="start the registry, or check schema.registry.url and its TLS settings",
                urls=", ".join(self._urls),
                cause=error,
            ) from error
        code = response.get("error_code") if isinstance(response, dict) else None
        if status in _DENIED | _REDIRECTS:
            raise self._refused(status, response, subject)
        if status >= 300 and code != _NO_SUBJECT:
            raise KafkaRequestError(
                "what answers is no schema registry",
                hint="check schema.registry.url: it must be the root URL, without /subjects",
                urls=", ".join(self._urls),
                status=status,
            )

    def schema_id(self, subject: str, schema: Any) -> int:
        """Return the id of an Avro schema (parsed JSON) under a subject; register the schema if it is new.

        Raises SchemaError if the registry rejects the schema, KafkaRequestError if it rejects the request or does not
        respond.
        """
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        known = self._ids.get((subject, text))
        if known is None:
            known = self._ids[subject, text] = self._request_id(subject, text)
        return known

    def _request_id(self, subject: str, text: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        status, response = self._post(f"{path}/versions" if self._auto_register else path, {"schema": text}, subject)
        found = _id(status, response)
        if found is None and status == _CONFLICT:
            # If readers register the same schema at the same time, a registry that creates a subject and its first
            # version in two steps may answer the later request with a conflict.
            found = _id(*self._post(path, {"schema": text}, subject))
        if found is not None:
            return found
        message = response.get("message", response) if isinstance(response, dict) else response
        if status == _CONFLICT:
            raise SchemaError(
                f"the schema registry rejects the schema of {subject} as incompatible",
                hint=f"set the compatibility of subject {subject} to NONE (PUT /config/{subject}) if its readers "
                "accept the change, or undo the change of the table; then restart: nothing was written after it",
                registry=message,
                difference=self._difference(path, text),
            )
        if status == _NOT_FOUND and not self._auto_register:
            raise SchemaError(
                f"the schema registry does not know the schema of {subject}, and auto.register.schemas is false",
                hint="register it, or set auto.register.schemas to true",
                registry=message,
                schema=text,
            )
        if status == _UNPROCESSABLE:
            raise SchemaError(
                f"the schema registry rejects the schema of {subject} as invalid",
                hint="read its message; if a name is invalid, set schema.name.adjustment.mode or "
                "field.name.adjustment.mode",
                registry=message,
            )
        raise self._refused(status, message, subject)

    def _refused(self, status: int, message: Any, subject: str) -> KafkaRequestError:
        if status in _DENIED:
            return KafkaRequestError(
                f"the schema registry denies access to {subject}",
                hint="check basic.auth.user.info and the rights of that user",
                status=status,
                registry=message,
            )
        if status in _REDIRECTS:
            return KafkaRequestError(
                f"the schema registry redirects the request for the schema of {subject} to another URL",
                hint="set schema.registry.url to that URL: redirects are not followed, since requests have a password",
                status=status,
            )
        return KafkaRequestError(
            f"the schema registry returned no id for the schema of {subject}",
            hint="check schema.registry.url: it must be the root URL, without /subjects",
            status=status,
            registry=message,
        )

    def _difference(self, path: str, text: str) -> str:
        status, response = self._send(f"{path}/versions/latest", None)
        if status >= 300 or not isinstance(response, dict):
            return "the latest version is not readable"
        try:
            return difference(json.loads(response["schema"]), json.loads(text))
        except (LookupError, TypeError, ValueError, RecursionError):  # anything that the registry has under the name
            return "the latest version is not readable"

    def _post(self, path: str, body: Mapping[str, str], subject: str) -> tuple[int, Any]:
        data = json.dumps(body, ensure_ascii=False).encode()
        until = time.monotonic() + _RETRY_FOR_S
        while True:
            try:
                return self._send(path, data)
            except OSError as error:
                if isinstance(getattr(error, "reason", error), ssl.SSLError):
                    raise KafkaRequestError(
                        f"no TLS connection to the schema registry for the schema of {subject}",
                        hint="check schema.registry.ssl.truststore.location, and ssl.keystore.location where the "
                        "registry requires a client certificate; then restart: nothing was written after it",
                        urls=", ".join(self._urls),
                        cause=error,
                    ) from error
                if time.monotonic() < until:
                    time.sleep(_RETRY_INTERVAL_S)
                    continue
                raise KafkaRequestError(
                    f"the schema registry did not respond to the request for the schema of {subject}",
                    hint="start the registry, or check schema.registry.url; then restart: nothing was written after it",
                    urls=", ".join(self._urls),
                    cause=error,
                ) from error

    def _send(self, path: str, body: bytes | None) -> tuple[int, Any]:
        """Return status and body from the first URL that responds. Raises OSError if none does."""
        last_error: OSError | None = None
        for url in self._urls:
            request = Request(url + path, data=body, headers=self._headers)  # noqa: S310 - the scheme was checked
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                    return response.status, _parsed(_bounded(response))
            except HTTPError as error:
                if error.code < 500:
                    with error:
                        return error.code, _parsed(_bounded(error))
                last_error = OSError(f"{url} responded {error.code}: {_parsed(_bounded(error))}")
                error.close()
            except OSError as error:
                last_error = error
        raise last_error or OSError("no URL is configured")


def _id(status: int, response: Any) -> int | None:
    """Return the id in a successful response, else None."""
    found = status < 300 and isinstance(response, dict) and isinstance(response.get("id"), int)
    return int(response["id"]) if found else None


def _context(settings: RegistrySettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    if settings.client_certificate:
        try:
            # Never None: OpenSSL would prompt for it.
            context.load_cert_chain(settings.client_certificate, password=settings.key_password)
        except (OSError, ValueError) as error:
            fault = (
                f"schema.registry.ssl.keystore.location: {settings.client_certificate!r} has no certificate with a "
                f"private key that schema.registry.ssl.key.password decrypts ({error}); put both into that PEM file"
            )
            raise ConfigError([fault]) from error
    return context


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the request has the password, and the other host may not be meant to see it."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request: the answer is an error then."""


def _bounded(response: Any) -> bytes:
    """Read an answer. Raises OSError if it is longer than any answer of a registry."""
    data: bytes = response.read(_MAX_ANSWER_BYTES + 1)
    if len(data) > _MAX_ANSWER_BYTES:
        raise OSError(f"the answer is longer than {_MAX_ANSWER_BYTES} bytes")
    return data


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return data.decode("utf-8", "replace")[:500]


def difference(old: Any, new: Any) -> str:
    """Return which fields of a schema's records were added, removed, or changed their type."""
    before, after = _fields(old), _fields(new)
    found = [f"{name} was removed" for name in before if name not in after]
    found += [f"{name} was added: {after[name]}" for name in after if name not in before]
    found += [
        f"{name}: {before[name]} -> {after[name]}" for name in after if before.get(name, after[name]) != after[name]
    ]
    return "; ".join(found) or "only in properties"


def _fields(schema: Any) -> dict[str, str]:
    """Return the types of the fields of all records by ``record.field``."""
    if isinstance(schema, list):
        return {name: type_name for each in schema for name, type_name in _fields(each).items()}
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return {}
    found: dict[str, str] = {}
    for field in schema["fields"]:
        found[f"{schema['name']}.{field['name']}"] = _type_name(field["type"])
        found |= _fields(field["type"])
    return found


def _type_name(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_type_name, schema))
    if isinstance(schema, dict):
        name = str(schema.get("name") or schema.get("type"))
        return f"{name} ({schema['logicalType']})" if "logicalType" in schema else name
    return str(schema)
