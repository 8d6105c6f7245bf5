"""TLS to the source: what is refused, which password leaves the process, and an account with no more than it needs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from tailrace.producer.app.connection_settings import mysql_source
from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.connection import SourceSettings, connect, query
from tailrace.producer.mysql.password import Password
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.support.capture import CaptureThread, configured, eventually, properties, verified_rows
from tests.support.database import Database
from tests.support.hostile_mysql import HostileMySql
from tests.support.registry_proxy import CertificateAuthority

PASSWORD = "open-sesame"
DURABLE = {"sync_binlog": 1, "innodb_flush_log_at_trx_commit": 1}
"""Other settings give warnings."""


def _settings(host: str, port: int, tls: Tls, user: str = "root", password: str = PASSWORD) -> SourceSettings:
    return SourceSettings(host, port, user, Password(password), tls, connect_timeout_s=10, read_timeout_s=10)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> CertificateAuthority:
    """The authority that has signed the server's certificate."""
    return CertificateAuthority(tmp_path_factory.mktemp("tls"), "good", with_rsa=True)


@pytest.fixture(scope="module")
def tls_server(authority: CertificateAuthority) -> Iterator[MySqlServer]:
    """A server with a certificate for 127.0.0.1."""
    identity = authority.identity("server")
    settings = {"ssl_ca": authority.trusted, "ssl_cert": identity, "ssl_key": identity, **DURABLE}
    with MySqlServer(settings=settings) as server:
        yield server


def test_certificate_and_host_name_are_verified(
    tls_server: MySqlServer, authority: CertificateAuthority, tmp_path: Path
) -> None:
    """verify_identity also compares the name; verify_ca does not; another authority is trusted by neither."""

    def cipher(host: str, tls: Tls) -> str:
        settings = _settings(host, tls_server.port, tls, password=tls_server.password)
        with closing(connect(settings)) as session:
            return str(query(session, "SHOW STATUS LIKE 'Ssl_cipher'")[0][1])

    ca, other = str(authority.trusted), str(CertificateAuthority(tmp_path, "other", with_rsa=True).trusted)
    assert cipher("127.0.0.1", Tls("verify_identity", ca=ca))
    assert cipher("localhost", Tls("verify_ca", ca=ca))
    assert cipher("localhost", Tls("required"))
    for host, tls in (
        ("localhost", Tls("verify_identity", ca=ca)),
        ("127.0.0.1", Tls("verify_identity", ca=other)),
        ("127.0.0.1", Tls("verify_ca", ca=other)),
        ("127.0.0.1", Tls("verify_ca")),
    ):
        with pytest.raises(SourceError, match="TLS handshake") as caught:
            cipher(host, tls)
        assert caught.value.hint.startswith("check database.ssl.mode, database.ssl.ca, and for verify_identity that")
        assert not isinstance(caught.value, SourceUnavailableError)


def test_capture_with_least_privileges_and_a_client_certificate(
    tls_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, authority: CertificateAuthority
) -> None:
    """Snapshot and stream; the account may read one database, and connects with a certificate only."""
    database = Database(tls_server, "least")
    database.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    database.execute("INSERT INTO t (v) VALUES (1), (2), (3)")
    database.execute(f"CREATE USER least IDENTIFIED BY '{PASSWORD}' REQUIRE X509")
    database.execute("GRANT SELECT ON least.* TO least")
    database.execute("GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO least")
    client = str(authority.identity("client"))
    settings = properties(
        tls_server,
        kafka_broker,
        prefix,
        "least",
        {
            "database.user": "least",
            "database.password": PASSWORD,
            "database.ssl.mode": "verify_identity",
            "database.ssl.ca": authority.trusted,
            "database.ssl.cert": client,
            "database.ssl.key": client,
        },
    )
    source = mysql_source(configured(settings))
    assert source.check(source.list_tables(lambda table: table.database == "least")) == ()
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("UPDATE t SET v = v + 10")
        capture.wait_position(tls_server)
    rows = eventually(lambda: verified_rows(kafka_broker.bootstrap, prefix, "least", "t"), "rows")
    assert len(rows) == 3


def test_server_without_tls() -> None:
    """Refused where TLS is required; elsewhere the password of a new session is not sent under a key of the server."""
    with MySqlServer(settings={"ssl": "OFF", **DURABLE}) as server:
        session = server.connect()
        with closing(session), session.cursor() as cursor:
            cursor.execute(f"CREATE USER cdc IDENTIFIED WITH caching_sha2_password BY '{PASSWORD}'")
            cursor.execute("GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO cdc")

        def open_session(tls: Tls) -> None:
            connect(_settings(server.host, server.port, tls, "cdc")).close()

        for mode in ("required", "verify_ca", "verify_identity"):
            with pytest.raises(SourceError, match="SSL") as caught:
                open_session(Tls(mode))
            assert caught.value.hint == "enable TLS on the server, or set database.ssl.mode=preferred"
        for mode in ("disabled", "preferred"):
            with pytest.raises(SourceError, match="unsafe") as caught:
                open_session(Tls(mode))
            assert "or allow it with tailrace.database.insecure.authentication=true" in caught.value.hint
        open_session(Tls("preferred", insecure_authentication=True))
        # The hash of the password is in the server's cache now, and a hash may be sent.
        open_session(Tls("preferred"))

        changes = {"database.hostname": server.host, "database.port": str(server.port), "database.user": "cdc"}
        plain = {"database.password": PASSWORD, "database.server.id": "9", "topic.prefix": "p", **changes}
        [note] = mysql_source(configured({**plain, "bootstrap.servers": "127.0.0.1:1"})).check([])
        assert "not encrypted" in note


@pytest.mark.parametrize(
    "method",
    ["mysql_clear_password", "dialog", "mysql_old_password", "sha256_password", "caching_sha2_password"],
)
@pytest.mark.parametrize("mode", ["disabled", "preferred"])
def test_password_is_not_sent_to_a_server_that_is_not_verified(method: str, mode: str) -> None:
    """A hostile server chooses the method; it gets neither the password nor a request for its key."""
    with HostileMySql(method) as server, pytest.raises(SourceError, match="unsafe"):
        connect(_settings("127.0.0.1", server.port, Tls(mode)))
    assert b"root" in server.received
    assert PASSWORD.encode() not in server.received
    assert not server.received.endswith((b"\x01\x00\x00\x03\x01", b"\x01\x00\x00\x05\x02"))


def test_password_is_sent_where_that_is_allowed() -> None:
    """The control of the test before."""
    with HostileMySql("mysql_clear_password") as server, pytest.raises(SourceUnavailableError):
        connect(_settings("127.0.0.1", server.port, Tls("preferred", insecure_authentication=True)))
    assert PASSWORD.encode() in server.received
