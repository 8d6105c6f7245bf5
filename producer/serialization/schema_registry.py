"""A schema registry with Confluent's interface: gives a schema of a subject its id, or says why not.

Three requests of plain HTTP: the standard library does, where the client of the registry's maker brings ten packages.
"""

from __future__ import annotations

import json
import ssl
import time
from base64 import b64encode
from collections.abc import Mapping
from typing import Any, Final
from urllib.error import HTTPError
from urllib.parse import quote
from urllib.request import HTTPSHandler, ProxyHandler, Request, build_opener

from tailrace.producer.config.registry_settings import RegistrySettings, split_user_info
from tailrace.runtime.errors import ConfigError, KafkaRequestError, SchemaError

_MEDIA_TYPE: Final = "application/vnd.schemaregistry.v1+json"
_TIMEOUT_S: Final = 30.0
_PATIENCE_S: Final = 8.0
"""A registry that restarts is waited for; a shorter outage than this stops nothing."""
_PAUSE_S: Final = 0.5
_CONFLICT: Final = 409
_NOT_FOUND: Final = 404
_UNPROCESSABLE: Final = 422
_DENIED: Final = frozenset({401, 403})


class SchemaRegistryClient:
    """One registry; what it answered once is not asked again."""

    def __init__(self, settings: RegistrySettings) -> None:
        places = [split_user_info(each.strip().rstrip("/")) for each in settings.url.split(",") if each.strip()]
        self._urls = [url for url, _ in places]
        user_info = settings.user_info or next((found for _, found in places if found), "")
        self._headers = {"Accept": f"{_MEDIA_TYPE}, application/json", "Content-Type": _MEDIA_TYPE}
        if user_info:
            self._headers["Authorization"] = f"Basic {b64encode(user_info.encode()).decode()}"
        # As Kafka Connect: proxies of the environment do not count.
        self._opener = build_opener(ProxyHandler({}), HTTPSHandler(context=_context(settings)))
        self._auto_register = settings.auto_register
        self._ids: dict[tuple[str, str], int] = {}

    def schema_id(self, subject: str, schema: Any) -> int:
        """Return the id of an Avro schema (the value of its JSON) under a subject, registering it where it is new.

        Raises SchemaError where the registry refuses the schema, KafkaFailure where it refuses the request or does not
        answer.
        """
        text = json.dumps(schema, ensure_ascii=False, separators=(",", ":"))
        known = self._ids.get((subject, text))
        if known is None:
            known = self._ids[subject, text] = self._ask_id(subject, text)
        return known

    def _ask_id(self, subject: str, text: str) -> int:
        path = f"/subjects/{quote(subject, safe='')}"
        status, answer = self._post(f"{path}/versions" if self._auto_register else path, {"schema": text}, subject)
        found = _id(status, answer)
        if found is None and status == _CONFLICT:
            # Readers that meet a table at the same moment register the same schema: the later one may be told that the
            # subject has come into being meanwhile, by a registry that makes it and its first version in two steps.
            found = _id(*self._post(path, {"schema": text}, subject))
        if found is not None:
            return found
        told = answer.get("message", answer) if isinstance(answer, dict) else answer
        if status == _CONFLICT:
            raise SchemaError(
                f"the schema registry refuses the schema of {subject} as incompatible",
                hint=f"set the compatibility of subject {subject} to NONE (PUT /config/{subject}) if its readers can "
                "take the change, or undo the change of the table; then start again: nothing was written after it",
                registry=told,
                difference=self._difference(path, text),
            )
        if status == _NOT_FOUND and not self._auto_register:
            raise SchemaError(
                f"the schema registry does not know the schema of {subject}, and auto.register.schemas is false",
                hint="register it, or set auto.register.schemas to true",
                registry=told,
                schema=text,
            )
        if status == _UNPROCESSABLE:
            raise SchemaError(
                f"the schema registry does not take the schema of {subject}",
                hint="see what it says; names that Avro does not allow are mended by schema.name.adjustment.mode and "
                "field.name.adjustment.mode",
                registry=told,
            )
        if status in _DENIED:
            raise KafkaRequestError(
                f"the schema registry denies access to {subject}",
                hint="check basic.auth.user.info and the rights of that user",
                status=status,
                registry=told,
            )
        raise KafkaRequestError(
            f"the schema registry did not give an id for the schema of {subject}",
            hint="check schema.registry.url: it is the root under which /subjects is found",
            status=status,
            registry=told,
        )

    def _difference(self, path: str, text: str) -> str:
        status, answer = self._send(f"{path}/versions/latest", None)
        if status >= 300 or not isinstance(answer, dict):
            return "the latest version cannot be read"
        return difference(json.loads(answer["schema"]), json.loads(text))

    def _post(self, path: str, body: Mapping[str, str], subject: str) -> tuple[int, Any]:
        data = json.dumps(body, ensure_ascii=False).encode()
        until = time.monotonic() + _PATIENCE_S
        while True:
            try:
                return self._send(path, data)
            except OSError as error:
                if isinstance(getattr(error, "reason", error), ssl.SSLError):
                    raise KafkaRequestError(
                        f"no TLS connection to the schema registry was made when asked for the schema of {subject}",
                        hint="check schema.registry.ssl.truststore.location, and ssl.keystore.location where the "
                        "registry wants a certificate; then start again: nothing was written after it",
                        urls=", ".join(self._urls),
                        cause=error,
                    ) from error
                if time.monotonic() < until:
                    time.sleep(_PAUSE_S)
                    continue
                raise KafkaRequestError(
                    f"the schema registry did not answer when asked for the schema of {subject}",
                    hint="start the registry, or check schema.registry.url; then start again: nothing was written "
                    "after it",
                    urls=", ".join(self._urls),
                    cause=error,
                ) from error

    def _send(self, path: str, body: bytes | None) -> tuple[int, Any]:
        """Return status and answer of the first URL that answers; OSError where none does."""
        failed: OSError | None = None
        for url in self._urls:
            request = Request(url + path, data=body, headers=self._headers)  # noqa: S310 - the scheme was checked
            try:
                with self._opener.open(request, timeout=_TIMEOUT_S) as response:
                    return response.status, _parsed(response.read())
            except HTTPError as error:
                if error.code < 500:
                    with error:
                        return error.code, _parsed(error.read())
                failed = OSError(f"{url} answered {error.code}: {_parsed(error.read())}")
                error.close()
            except OSError as error:
                failed = error
        raise failed or OSError("no URL is given")


def _id(status: int, answer: Any) -> int | None:
    """Return the id in an answer, None where it is not the answer of success."""
    good = status < 300 and isinstance(answer, dict) and isinstance(answer.get("id"), int)
    return int(answer["id"]) if good else None


def _context(settings: RegistrySettings) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=settings.ca_file or None)
    if settings.client_certificate:
        try:
            # Never None: OpenSSL would ask for it at the terminal.
            context.load_cert_chain(settings.client_certificate, password=settings.key_password)
        except (OSError, ValueError) as error:
            fault = (
                f"schema.registry.ssl.keystore.location: {settings.client_certificate!r} has no certificate with a "
                f"private key that schema.registry.ssl.key.password opens ({error}); both belong into that one PEM file"
            )
            raise ConfigError([fault]) from error
    return context


def _parsed(data: bytes) -> Any:
    try:
        return json.loads(data)
    except ValueError:
        return data.decode("utf-8", "replace")[:500]


def difference(old: Any, new: Any) -> str:
    """Say which fields of the records of a schema were added, removed, or are of another type."""
    before, after = _fields(old), _fields(new)
    found = [f"{name} was removed" for name in before if name not in after]
    found += [f"{name} was added: {after[name]}" for name in after if name not in before]
    found += [
        f"{name}: {before[name]} -> {after[name]}" for name in after if before.get(name, after[name]) != after[name]
    ]
    return "; ".join(found) or "only in properties"


def _fields(schema: Any) -> dict[str, str]:
    """Return the type of every field of every record, by ``record.field``."""
    if isinstance(schema, list):
        return {name: kind for each in schema for name, kind in _fields(each).items()}
    if not isinstance(schema, dict) or schema.get("type") != "record":
        return {}
    found: dict[str, str] = {}
    for field in schema["fields"]:
        found[f"{schema['name']}.{field['name']}"] = _kind(field["type"])
        found |= _fields(field["type"])
    return found


def _kind(schema: Any) -> str:
    if isinstance(schema, list):
        return " or ".join(map(_kind, schema))
    if isinstance(schema, dict):
        kind = str(schema.get("name") or schema.get("type"))
        return f"{kind} ({schema['logicalType']})" if "logicalType" in schema else kind
    return str(schema)
