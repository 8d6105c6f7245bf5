"""Access to a schema registry by Confluent's properties: TLS, certificates, passwords, several URLs."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Final

import pytest

from tailrace.producer.config import load
from tailrace.producer.serialization.schema_registry import SchemaRegistryClient
from tailrace.runtime.errors import ConfigError, KafkaRequestError
from tests.embedded.registry import SchemaRegistry
from tests.support.registry_proxy import CertificateAuthority, RegistryProxy
from tests.support.values import registry_settings

RECORD: Final = {"type": "record", "name": "R", "fields": [{"name": "a", "type": "int"}]}


@pytest.fixture(scope="module")
def registry() -> Iterator[SchemaRegistry]:
    """One registry for this module."""
    with SchemaRegistry() as server:
        yield server


def _client(url: str, more: dict[str, str]) -> SchemaRegistryClient:
    """Return the client of a configuration."""
    flags = {
        "database.hostname": "h",
        "database.user": "u",
        "database.server.id": "1",
        "topic.prefix": "p",
        "bootstrap.servers": "b:1",
        "value.converter": "io.confluent.connect.avro.AvroConverter",
        "value.converter.schema.registry.url": url,
        **{f"value.converter.{name}": value for name, value in more.items()},
    }
    return SchemaRegistryClient(load(None, {}, flags).converters.registry("value"))


def test_certificates_and_a_password_by_their_properties(registry: SchemaRegistry, tmp_path: Path) -> None:
    """A registry with a certificate of another authority, which requires a client certificate and a password."""
    authority = CertificateAuthority(tmp_path, "ours")
    theirs = CertificateAuthority(tmp_path, "others")
    mine = authority.identity("client", password="hush-key")
    trusted = {"schema.registry.ssl.truststore.location": str(authority.trusted)}
    known = {
        "schema.registry.ssl.keystore.location": str(mine),
        "schema.registry.ssl.key.password": "hush-key",
        "schema.registry.ssl.truststore.type": "PEM",
    }
    user = {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "me:hush"}
    with RegistryProxy(
        registry.url, identity=authority.identity("server"), clients=authority.trusted, user_info="me:hush"
    ) as gate:
        schema_id = _client(gate.url, {**trusted, **known, **user}).schema_id("access-value", RECORD)
        assert registry.schema(schema_id)["name"] == "R"
        in_url = gate.url.replace("://", "://me:hush@")
        assert _client(in_url, {**trusted, **known}).schema_id("access-value", RECORD) == schema_id

        wrong = {**user, "basic.auth.user.info": "me:wrong"}
        with pytest.raises(KafkaRequestError, match="denies access"):
            _client(gate.url, {**trusted, **known, **wrong}).schema_id("access-value", RECORD)
        before = gate.requests
        for lacking in (
            {**known, **user},
            {**trusted, **user},
            {**known, **user, "schema.registry.ssl.truststore.location": str(theirs.trusted)},
        ):
            with pytest.raises(KafkaRequestError, match=r"no TLS connection|did not respond") as caught:
                _client(gate.url, lacking).schema_id("access-value", RECORD)
            assert "hush" not in str(caught.value)
        assert gate.requests == before


def test_wrong_password_of_private_key(tmp_path: Path) -> None:
    """Reported before the first request, without the password."""
    mine = CertificateAuthority(tmp_path, "ours").identity("client", password="right")
    lines = {"schema.registry.ssl.keystore.location": str(mine), "schema.registry.ssl.key.password": "hush-wrong"}

    with pytest.raises(ConfigError, match=r"ssl\.keystore\.location") as caught:
        _client("https://127.0.0.1:1", lines)

    assert "hush" not in str(caught.value)


def test_next_url_is_used_if_one_fails(registry: SchemaRegistry) -> None:
    """A closed port, and a server that responds with an error."""
    with RegistryProxy(registry.url, out_of_service=True) as broken, RegistryProxy(registry.url) as whole:
        urls = f"http://127.0.0.1:1,{broken.url},{whole.url}"
        schema_id = SchemaRegistryClient(registry_settings(urls)).schema_id("failover-value", RECORD)

        assert registry.schema(schema_id)["name"] == "R"
        assert (broken.requests, whole.requests) == (1, 1)


def test_concurrent_registration_gives_one_id(registry: SchemaRegistry) -> None:
    """The registry answers some requests with a conflict because the subject was created meanwhile."""
    readers = 8
    together = threading.Barrier(readers)

    def register(subject: str) -> int:
        client = SchemaRegistryClient(registry_settings(registry.url))
        together.wait(300)
        return client.schema_id(subject, RECORD)

    with ThreadPoolExecutor(readers) as pool:
        for n in range(10):
            ids = set(pool.map(register, [f"together-{n}-value"] * readers))
            assert len(ids) == 1
