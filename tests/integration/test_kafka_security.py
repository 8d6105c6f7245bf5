"""Kafka over TLS with SASL and access control lists: the documented rights are enough, and errors name their cause."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest
from confluent_kafka.admin import (  # type: ignore[attr-defined]
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from tailrace.producer.app.capture import run
from tailrace.runtime.errors import KafkaRequestError, exit_code_of
from tailrace.runtime.exit_code import ExitCode
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.support.capture import CaptureThread, configured, eventually, properties
from tests.support.registry_proxy import CertificateAuthority
from tests.support.topics import last_rows, read_topic

if TYPE_CHECKING:
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

TOPIC_RIGHTS: Final = ("READ", "WRITE", "DESCRIBE", "CREATE", "DESCRIBE_CONFIGS")
TRANSACTION_RIGHTS: Final = ("WRITE", "DESCRIBE")
"""What docs/operations.md lists."""

ACL_FIELDS: Final = (
    "restype",
    "name",
    "resource_pattern_type",
    "principal",
    "host",
    "operation",
    "permission_type",
)

MODULES: Final = "org.apache.kafka.common.security"

pytestmark = pytest.mark.kafka  # the class of the broker has another name here


class SecureBroker(KafkaBroker):
    """A broker with a second listener: TLS, SASL with PLAIN and SCRAM; every account needs rights."""

    def __init__(self, folder: Path) -> None:
        authority = CertificateAuthority(folder, "kafka")
        self.trusted = authority.trusted
        port, self.secure_port, controller = (supervised.free_port() for _ in range(3))
        listeners = f"PLAINTEXT://127.0.0.1:{port},SECURE://127.0.0.1:{self.secure_port}"
        super().__init__(
            port=port,
            controller_port=controller,
            settings={
                "listeners": f"{listeners},CONTROLLER://127.0.0.1:{controller}",
                "advertised.listeners": listeners,
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SECURE:SASL_SSL",
                "listener.name.secure.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
                "listener.name.secure.plain.sasl.jaas.config": f"{MODULES}.plain.PlainLoginModule required "
                'user_plain="plain-sesame";',
                "listener.name.secure.scram-sha-256.sasl.jaas.config": f"{MODULES}.scram.ScramLoginModule required;",
                "listener.name.secure.scram-sha-256.connections.max.reauth.ms": "3000",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": authority.identity("broker"),
                "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
                # The listener without TLS belongs to the broker itself and to the test.
                "super.users": "User:ANONYMOUS",
            },
        )

    def add_scram_user(self, name: str, password: str) -> None:
        """Create an account without rights."""
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096)
        admin = self.admin()
        change = UserScramCredentialUpsertion(name, credential, password.encode())
        admin.alter_user_scram_credentials([change])[name].result(60)

    def grant(self, user: str, prefix: str) -> None:
        """Give a user the documented rights for a topic prefix."""
        granted = [
            AclBinding(
                kind, name, ResourcePatternType.PREFIXED, f"User:{user}", "*", operation, AclPermissionType.ALLOW
            )
            for kind, name, rights in (
                (ResourceType.TOPIC, prefix, TOPIC_RIGHTS),
                (ResourceType.TRANSACTIONAL_ID, f"{prefix}-tailrace-", TRANSACTION_RIGHTS),
            )
            for operation in (AclOperation[right] for right in rights)
        ]
        admin = self.admin()
        for result in admin.create_acls(granted).values():
            result.result(60)

    def login(self, mechanism: str, user: str, password: str) -> Mapping[str, object]:
        """Return the properties of a producer that logs in, in Java's names as a Debezium connector has them."""
        module = "plain.PlainLoginModule" if mechanism == "PLAIN" else "scram.ScramLoginModule"
        jaas = f'{MODULES}.{module} required username="{user}" password="{password}";'
        return {
            "bootstrap.servers": f"127.0.0.1:{self.secure_port}",
            "producer.override.security.protocol": "SASL_SSL",
            "producer.override.sasl.mechanism": mechanism,
            "producer.override.sasl.jaas.config": jaas,
            "producer.override.ssl.truststore.type": "PEM",
            "producer.override.ssl.truststore.location": self.trusted,
        }


@pytest.fixture(scope="module")
def secure_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    """One for this module."""
    with SecureBroker(tmp_path_factory.mktemp("certificates")) as broker:
        broker.add_scram_user("scram", "scram-sesame")
        yield broker


def test_documented_rights_are_enough(
    mysql_server: MySqlServer, secure_broker: SecureBroker, database: Database, prefix: str
) -> None:
    """A snapshot under SCRAM, then a restart under PLAIN, which checks the topics that exist."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    database.execute("INSERT INTO t VALUES (1)")
    for mechanism, user in (("SCRAM-SHA-256", "scram"), ("PLAIN", "plain")):
        secure_broker.grant(user, prefix)
        login = secure_broker.login(mechanism, user, f"{user}-sesame")
        with CaptureThread(properties(mysql_server, secure_broker, prefix, database.name, login)) as capture:
            capture.wait_snapshot()
            database.execute("INSERT INTO t SELECT MAX(id) + 1 FROM t")
            capture.wait_position(mysql_server)

    records = read_topic(secure_broker.bootstrap, f"{prefix}.{database.name}.t")
    assert [(record.json["op"], record.json["after"]["id"]) for record in records] == [("r", 1), ("c", 2), ("c", 3)]


def test_a_topic_that_may_not_be_created_concerns_its_table_alone(
    mysql_server: MySqlServer, secure_broker: SecureBroker, database: Database, prefix: str
) -> None:
    """The topic of a captured table was deleted. The table is read when the account has the right."""
    for table in ("lost", "well"):
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v INT)")
        database.execute(f"INSERT INTO {table} VALUES (1, 1), (2, 2)")
    topic = f"{prefix}.{database.name}.lost"
    secure_broker.grant("plain", prefix)
    login = secure_broker.login("PLAIN", "plain", "plain-sesame")
    settings = properties(mysql_server, secure_broker, prefix, database.name, login)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
    admin = secure_broker.admin()
    denied = AclBinding(
        ResourceType.TOPIC,
        topic,
        ResourcePatternType.LITERAL,
        "User:plain",
        "*",
        AclOperation.CREATE,
        AclPermissionType.DENY,
    )
    admin.create_acls([denied])[denied].result(60)
    admin.delete_topics([topic])[topic].result(60)
    eventually(lambda: topic not in admin.list_topics(timeout=60).topics, "the end of the topic")
    with CaptureThread(settings) as capture:
        database.execute("UPDATE well SET v = 3 WHERE id = 2")
        capture.wait_position(mysql_server)
        tables = capture.status.snapshot()["tables"]
        found = tables[f"{database.name}.lost"]
        assert (found["mode"], tables[f"{database.name}.well"]["mode"]) == ("error", "streaming")
        assert found["error"].startswith("Kafka denied access")
        assert topic not in admin.list_topics(timeout=60).topics
        [removed] = admin.delete_acls([AclBindingFilter(*(getattr(denied, name) for name in ACL_FIELDS))]).values()
        removed.result(60)

        def is_read() -> bool:
            database.execute("UPDATE lost SET v = v + 1")
            return bool(capture.status.snapshot()["tables"][f"{database.name}.lost"]["mode"] == "streaming")

        eventually(is_read, "the table is taken up with a change")

        def differs(table: str) -> bool:
            rows = last_rows(secure_broker.bootstrap, f"{prefix}.{database.name}.{table}")
            return {row["id"]: row["v"] for row in rows.values()} != dict(
                database.execute(f"SELECT id, v FROM {table}")
            )

        eventually(lambda: not differs("lost") and not differs("well"), "equal tables")


@pytest.mark.long  # the client finds out when the broker asks it to log in again
def test_a_running_producer_names_a_password_that_is_no_longer_valid_and_goes_on_with_a_valid_one(
    mysql_server: MySqlServer, secure_broker: SecureBroker, database: Database, prefix: str
) -> None:
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    secure_broker.add_scram_user("rotated", "scram-sesame")
    secure_broker.grant("rotated", prefix)
    login = secure_broker.login("SCRAM-SHA-256", "rotated", "scram-sesame")
    with CaptureThread(properties(mysql_server, secure_broker, prefix, database.name, login)) as capture:
        capture.wait_snapshot()
        secure_broker.add_scram_user("rotated", "other-sesame")
        database.execute("INSERT INTO t VALUES (1)")

        def is_refused() -> bool:
            error = capture.status.snapshot()["last_error"]
            return error is not None and error["class"] == "KafkaAuthenticationError"

        eventually(is_refused, "the refused login in /status")
        assert "sesame" not in str(capture.status.snapshot()["last_error"])
        secure_broker.add_scram_user("rotated", "scram-sesame")
        capture.wait_position(mysql_server)

    records = read_topic(secure_broker.bootstrap, f"{prefix}.{database.name}.t")
    assert [(record.json["op"], record.json["after"]["id"]) for record in records] == [("c", 1)]


@pytest.mark.parametrize(
    ("user", "password", "authority", "reason", "code"),
    [
        ("plain", "plain-sesame", "kafka", "denied", ExitCode.ERROR),
        ("plain", "wrong-sesame", "kafka", "uthentication failed", ExitCode.CONFIG),
        ("plain", "plain-sesame", "other", "certificate verify failed", ExitCode.TEMPFAIL),
    ],
    ids=["no rights", "wrong password", "unknown authority"],
)
def test_reasons_are_named(  # noqa: PLR0917 - fixtures
    mysql_server: MySqlServer,
    secure_broker: SecureBroker,
    database: Database,
    prefix: str,
    tmp_path: Path,
    user: str,
    password: str,
    authority: str,
    reason: str,
    code: ExitCode,
) -> None:
    """The first start ends soon with the cause, without a password."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    login = dict(secure_broker.login("PLAIN", user, password))
    if authority == "other":
        login["producer.override.ssl.truststore.location"] = CertificateAuthority(tmp_path, "other").trusted
    config = configured(properties(mysql_server, secure_broker, prefix, database.name, login))

    with pytest.raises(KafkaRequestError) as caught:
        run(config, threading.Event())

    assert reason in str(caught.value)
    assert exit_code_of(caught.value) == code
    assert "sesame" not in str(caught.value)
