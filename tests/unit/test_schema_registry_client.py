"""The schema registry client: the difference of two schemas, and secrets in its settings."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from tailrace.producer.serialization import schema_registry
from tailrace.producer.serialization.schema_registry import SchemaRegistryClient, difference
from tailrace.runtime.errors import KafkaRequestError, SchemaError, TailraceError
from tailrace.spark_consumer.source.formats import registry
from tailrace.spark_consumer.source.formats.registry import RegistrySettings, SchemaRegistry
from tests.support.values import registry_settings


def _record(**fields: Any) -> dict[str, Any]:
    row = {"type": "record", "name": "Value", "fields": [{"name": n, "type": t} for n, t in fields.items()]}
    return {"type": "record", "name": "Envelope", "fields": [{"name": "before", "type": ["null", row]}]}


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        (_record(a="int"), _record(a="string"), "Value.a: int -> string"),
        (_record(a="int"), _record(a="int", b=["null", "long"]), "Value.b was added: null or long"),
        (_record(a="int", b="int"), _record(a="int"), "Value.b was removed"),
        (
            _record(a="int"),
            _record(a={"type": "bytes", "logicalType": "decimal"}),
            "Value.a: int -> bytes (decimal)",
        ),
        (_record(a="int"), _record(a="int"), "only in properties"),
    ],
)
def test_difference_names_each_changed_field(old: Any, new: Any, said: str) -> None:
    """Fields are named by record, also within unions."""
    assert difference(old, new) == said


def test_settings_do_not_print_passwords() -> None:
    """Neither that of the URL nor that of the separate setting."""
    settings = registry_settings("https://me:hush-1@one:8081/x,http://two", user_info="me:hush-2")

    assert repr(settings) == "RegistrySettings(https://one:8081/x, http://two)"


@contextmanager
def _server(
    status: int, body: bytes, location: str = "", latest: bytes | None = None
) -> Iterator[tuple[str, list[str | None]]]:
    """A server with one answer, but ``latest`` to a GET; yields its URL and the Authorization of each request."""
    seen: list[str | None] = []

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            self.rfile.read(int(self.headers.get("Content-Length", 0)))
            seen.append(self.headers.get("Authorization"))
            is_latest = latest is not None and self.command == "GET"
            answer = (latest or b"") if is_latest else body
            self.send_response(200 if is_latest else status)
            if location:
                self.send_header("Location", location + self.path)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        do_GET = do_POST  # noqa: N815 - the name is defined by the base class

        def log_message(self, *_: Any) -> None:
            """Print nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_address[1]}", seen
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@pytest.mark.parametrize("status", [301, 302, 303, 307, 308])
def test_redirects_do_not_get_the_password(status: int) -> None:
    """They are an error that says so; the other host sees no request."""
    with _server(200, b'{"id": 1}') as (other, seen), _server(status, b"", other) as (url, received):
        client = SchemaRegistryClient(registry_settings(url, user_info="me:hush"))
        with pytest.raises(KafkaRequestError, match="redirects the request for the schema of t-value") as caught:
            client.schema_id("t-value", _record(a="int"))

    assert caught.value.hint.startswith("set schema.registry.url to that URL: redirects are not followed")
    assert len(received) == 1
    assert seen == []


def test_answers_have_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    """An answer that no registry gives is not kept in memory."""
    monkeypatch.setattr(schema_registry, "_RETRY_FOR_S", 0.0)
    with _server(200, b'{"id": 1}' + b" " * (5 * 1024 * 1024)) as (url, _):
        client = SchemaRegistryClient(registry_settings(url))
        with pytest.raises(KafkaRequestError, match=r"(?s)longer than.*hint: start the registry, or check schema"):
            client.schema_id("t-value", _record(a="int"))


def _deep(levels: int) -> str:
    return '{"type":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize("schema", [_deep(200), _deep(100_000), "no JSON"])
def test_reader_refuses_schemas_that_it_cannot_read(schema: str) -> None:
    """Before anything that would call itself for each level of it."""
    body = json.dumps({"schema": schema}).encode()
    remedy = r"check schema\.registry\.url, and who may register schemas there"
    with _server(200, body) as (url, _), pytest.raises(SchemaError, match=rf"schema 7 of the registry(?s:.*){remedy}"):
        SchemaRegistry(RegistrySettings(url)).schema(7)
    with _server(200, json.dumps({"schema": _deep(50)}).encode()) as (url, _):
        assert SchemaRegistry(RegistrySettings(url)).schema(7)


@pytest.mark.parametrize(
    ("status", "body", "problem", "hint"),
    [
        (401, "{}", "denies access to schema 7", "check basic.auth.user.info and the rights of that user"),
        (404, "{}", "has no schema 7, which records name", "it must be the root URL of the registry that the writer"),
        (200, '{"schema": "x", "schemaType": "JSON"}', "schema 7 of .* is not an Avro", "confluent.connect.avro.Avro"),
        (500, "{}", "the schema registry did not respond", "start the registry, or check schema.registry.url and "),
    ],
)
def test_reader_says_why_it_has_no_schema_and_what_to_do(
    status: int, body: str, problem: str, hint: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registry, "_RETRY_FOR_S", 0.0)
    with _server(status, body.encode()) as (url, _), pytest.raises(TailraceError, match=problem) as caught:
        SchemaRegistry(RegistrySettings(url)).schema(7)
    assert hint in caught.value.hint


@pytest.mark.parametrize("found", [_deep(100_000), "no JSON", '{"type": "record", "fields": [{}]}'])
def test_writer_names_its_error_whatever_the_registry_has(found: str) -> None:
    """The error is that the schema is not compatible."""
    with _server(409, b"{}", latest=json.dumps({"schema": found}).encode()) as (url, _):
        client = SchemaRegistryClient(registry_settings(url))
        with pytest.raises(SchemaError, match="as incompatible") as caught:
            client.schema_id("t-value", _record(a="int"))
    assert caught.value.context["difference"] == "the latest version is not readable"
    assert caught.value.hint.startswith("set the compatibility of subject t-value to NONE (PUT /config/t-value) if its")


@pytest.mark.parametrize(
    ("status", "kind", "message", "hint"),
    [
        (404, SchemaError, "does not know the schema of t-value", "register it, or set auto.register.schemas to true"),
        (
            422,
            SchemaError,
            "schema of t-value as invalid",
            "read its message; if a name is invalid, set schema.name.adj",
        ),
        (403, KafkaRequestError, "denies access to t-value", "check basic.auth.user.info and the rights of that user"),
        (
            400,
            KafkaRequestError,
            "no id for the schema of t-value",
            "check schema.registry.url: it must be the root URL",
        ),
    ],
)
def test_refusals_have_a_way_on(status: int, kind: type[TailraceError], message: str, hint: str) -> None:
    with _server(status, b'{"error_code": 1, "message": "no"}') as (url, _):
        client = SchemaRegistryClient(registry_settings(url, auto_register=False))
        with pytest.raises(kind, match=message) as caught:
            client.schema_id("t-value", _record(a="int"))
        assert caught.value.hint.startswith(hint)
        with pytest.raises(KafkaRequestError) as caught:
            client.require_answer("t-value")
    denied = status == 403
    assert caught.value.message.startswith("the schema registry denies" if denied else "what answers is no schema")
    assert denied or caught.value.hint == "check schema.registry.url: it must be the root URL, without /subjects"
