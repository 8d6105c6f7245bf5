"""The settings of converters, and a client of a schema registry with Confluent's interface.

Schemas are read by their ids; the schema of an id never changes.
"""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final
from urllib.error import HTTPError
from urllib.request import HTTPRedirectHandler, HTTPSHandler, ProxyHandler, Request, build_opener

from tailrace.runtime.config.converters import split_user_info
from tailrace.runtime.errors import ConfigError, KafkaRequestError, SchemaError


@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where a schema registry is; the representation contains no password."""

    url: str = field(repr=False)
    """One URL, or several URLs of the same registry, separated by commas."""
    user_info: str = field(default="", repr=False)
    """``user:password``; empty: that of the URL."""
    ca_file: str | None = None
    """PEM file of the trusted authorities; None: those of the system."""
    client_certificate: str | None = None
    """PEM file with the client's certificate and its private key."""
    key_password: str = field(default="", repr=False)


@dataclass(frozen=True, slots=True)
class FormatSettings:
    """The converters of a query. A registry means Avro, otherwise JSON."""

    key: RegistrySettings | None = None
    value: RegistrySettings | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    """``database.table`` -> its columns as DDL or as a StructType in JSON."""


_TIMEOUT_S: Final = 30.0
_RETRY_FOR_S: Final = 8.0
"""Time to wait for a registry that restarts."""
_RETRY_INTERVAL_S: Final = 0.5
_MAX_ANSWER_BYTES: Final = 4 * 1024 * 1024
_MAX_DEPTH: Final = 100
"""Of a schema; that of a change event has about ten levels. What reads it calls itself for each level."""
_DENIED: Final = frozenset({401, 403})


class SchemaRegistry:
    """One registry; schemas are cached."""

    def __init__(self, settings: RegistrySettings) -> None:
        servers = [split_user_info(each.strip().rstrip("/")) for each in settings.url.split(",")]
        self._urls = [url for url, _ in servers]
        user_info = settings.user_info or next((found for _, found in servers if found), "")
        self._headers = {"Accept": "application/vnd.schemaregistry.v1+json, application/json"}
        if user_info:
            self._headers["Authorization"] = f"Basic {b64encode(user_info.encode()).decode()}"
        # Like Kafka Connect, ignores the proxies of the environment.
        self._opener = build_opener(ProxyHandler({}), _NoRedirect(), HTTPSHandler(context=_context(settings)))
        self._schemas: dict[int, Any] = {}

    def schema(self, schema_id: int) -> Any:
        """Return the Avro schema of an id as parsed JSON.

        Raises SchemaError if the registry does not have it, KafkaRequestError if it does not respond.
        """
        if schema_id not in self._schemas:
            self._schemas[schema_id] = self._read(schema_id)
        return self._schemas[schema_id]

    def _read(self, schema_id: int) -> Any:
        status, body = self._get(f"/schemas/ids/{schema_id}")
        if status in _DENIED:
            raise KafkaRequestError(
                f"the schema registry denies access to schema {schema_id}",
                hint="check basic.auth.user.info and the rights of that user",
                status=status,
            )
        if status != 200 or not isinstance(body, dict) or "schema" not in body:
            raise SchemaError(
                f"the schema registry has no schema {schema_id}, which records name",
                hint="check schema.registry.url: it must be the root URL of the registry that the writer used",
                urls=", ".join(self._urls),
                status=status,
            )
        if body.get("schemaType", "AVRO") != "AVRO" or body.get("references"):
            raise SchemaError(
                f"schema {schema_id} of the registry is not an Avro schema without references",
                hint="write the topics with io.confluent.connect.avro.AvroConverter",
                type=body.get("schemaType"),
            )
        try:
            found = json.loads(body["schema"])
        except (ValueError, TypeError, RecursionError) as error:
            raise _unreadable(schema_id, error) from error
        if _depth(found) > _MAX_DEPTH:
            raise _unreadable(schema_id, f"it is nested deeper than {_MAX_DEPTH} levels")
        return found

    def _get(self, path: str) -> tuple[int, Any]:
        until = time.monotonic() + _RETRY_FOR_S
        while True:
            try:
                return self._send(path)
            except OSError as error:
                if time.monotonic() < until and not isinstance(getattr(error, "reason", error), ssl.SSLError):
                    time.sleep(_RETRY_INTERVAL_S)
                    continue
                raise KafkaRequestError(
                    "the schema registry did not respond",
                    hint="start the registry, or check schema.registry.url and schema.registry.ssl.*; then restart",
                    urls=", ".join(self._urls),
                    cause=error,
                ) from error

    def _send(self, path: str) -> tuple[int, Any]:
        """Return status and body from the first URL that responds. Raises OSError if none does."""
        last_error: OSError | None = None
        for url in self._urls:
            request = Request(url + path, headers=self._headers)  # noqa: S310 - the scheme was checked
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                    return response.status, _parsed(response.read(_MAX_ANSWER_BYTES))
            except HTTPError as error:
                with error:
                    if error.code < 500:
                        return error.code, None
                    last_error = OSError(f"{url} responded {error.code}")
            except OSError as error:
                last_error = error
        raise last_error or OSError("no URL is configured")


class _NoRedirect(HTTPRedirectHandler):
    """Follows no redirect: the request has the password, and the other host may not be meant to see it."""

    def redirect_request(self, *_: Any) -> None:
        """Return no request: the answer is an error then."""


def _context(settings: RegistrySettings) -> ssl.SSLContext:
    try:
        context = ssl.create_default_context(cafile=settings.ca_file)
        if settings.client_certificate:
            # Never None: OpenSSL would prompt for it.
            context.load_cert_chain(settings.client_certificate, password=settings.key_password)
    except (OSError, ValueError) as error:
        fault = f"schema.registry.ssl: the files {settings.ca_file!r} and {settings.client_certificate!r}: {error}"
        raise ConfigError([f"{fault}; set PEM files"]) from error
    return context


def _unreadable(schema_id: int, cause: object) -> SchemaError:
    return SchemaError(
        f"schema {schema_id} of the registry, which records name, cannot be read",
        hint="check schema.registry.url, and who may register schemas there",
        cause=cause,
    )


def _depth(schema: Any) -> int:
    depth, level = 0, [schema]
    while level:
        depth += 1
        inner = (each.values() if isinstance(each, dict) else each for each in level if isinstance(each, dict | list))
        level = [part for parts in inner for part in parts]
    return depth


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except (ValueError, RecursionError):
        return None
