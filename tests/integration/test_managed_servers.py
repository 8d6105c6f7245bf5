"""What managed MySQL servers are like: their defaults as settings of a server, and accounts without SUPER or RELOAD.

The services are not here; what their pages say of a new instance is (docs/managed-servers.md). Each default that
cannot be captured is refused with what to change, then the changed server is captured.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.errors import PrerequisiteError
from tailrace.producer.mysql.connection import connect
from tailrace.producer.mysql.prerequisites import check
from tests.embedded.mysql import LOWER_CASE, MySqlServer
from tests.support.binlog import account_settings
from tests.support.capture import CaptureThread, eventually, properties, verified_rows
from tests.support.replication import REPLICA_SETTINGS, follow, run

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker

VERSION = "8.0.33"
"""Generated invisible keys are of 8.0.30."""
GRANTS = "SELECT, REPLICATION SLAVE, REPLICATION CLIENT, PROCESS"
ROWS = 120
"""More than a split."""

pytestmark = [pytest.mark.long, pytest.mark.mysql(VERSION, f"{VERSION}{LOWER_CASE}")]


@dataclass(frozen=True)
class Profile:
    """A service."""

    defaults: Mapping[str, object]
    """What a new instance has, other than the servers of the tests."""
    refused: tuple[str, ...] = ()
    """How the complaints about it begin."""
    changed: Mapping[str, object] = field(default_factory=dict)
    """What an operator sets in the parameter group, the flags or the portal."""
    heartbeat: tuple[str, str] = ("", "")
    """Statements of the service itself: a table, and what writes to it all the time."""


_OF_MYSQL = {"binlog_row_metadata": "MINIMAL"}
"""The default of MySQL, which no service changes."""
PROFILES = {
    "amazon-rds": Profile(
        {
            **_OF_MYSQL,
            "performance_schema": 0,
            "gtid_mode": "OFF_PERMISSIVE",
            "enforce_gtid_consistency": "OFF",
            "binlog_format": "MIXED",
            "sync_binlog": 1,
            "sql_mode": "NO_ENGINE_SUBSTITUTION",
        },
        ("binlog_format is MIXED",),
        {"binlog_format": "ROW"},
        (
            "CREATE TABLE mysql.rds_heartbeat2 (id INT PRIMARY KEY, value BIGINT)",
            "REPLACE INTO mysql.rds_heartbeat2 VALUES (1, UNIX_TIMESTAMP() * 1000)",
        ),
    ),
    "amazon-aurora": Profile(
        {
            **_OF_MYSQL,
            "performance_schema": 0,
            "gtid_mode": "OFF_PERMISSIVE",
            "enforce_gtid_consistency": "OFF",
            "log_bin": None,
            "skip_log_bin": "",
        },
        ("log_bin is OFF",),
        {"log_bin": "mysql-bin-changelog", "skip_log_bin": None, "log_bin_use_v1_row_events": 1},
    ),
    "google-cloud-sql": Profile(
        {**_OF_MYSQL, "performance_schema": 0, "gtid_mode": "ON", "enforce_gtid_consistency": "ON", "sync_binlog": 1},
        heartbeat=(
            "CREATE TABLE mysql.heartbeat (id INT PRIMARY KEY, master_time TIMESTAMP(6))",
            "REPLACE INTO mysql.heartbeat VALUES (1, NOW(6))",
        ),
    ),
    "azure-flexible-server": Profile(
        {
            **_OF_MYSQL,
            "gtid_mode": "OFF",
            "enforce_gtid_consistency": "OFF",
            "lower_case_table_names": 1,
            "binlog_expire_logs_seconds": 0,
            "binlog_row_image": "MINIMAL",
        },
        ("binlog_row_image is MINIMAL",),
        {"binlog_row_image": "FULL", "sql_generate_invisible_primary_key": "ON"},
    ),
}


@pytest.fixture(params=PROFILES)
def profile(request: pytest.FixtureRequest) -> Profile:
    """Each service."""
    return PROFILES[request.param]


@pytest.fixture
def server(profile: Profile) -> Iterator[MySqlServer]:
    """A new instance."""
    with MySqlServer(version=VERSION, settings=profile.defaults) as started:
        grant(started)
        yield started


def grant(server: MySqlServer) -> None:
    """Create the account of the capture: managed servers give nobody SUPER."""
    run(server, "CREATE USER cdc@'%' IDENTIFIED BY 'p'", f"GRANT {GRANTS} ON *.* TO cdc@'%'")


def of_account(server: MySqlServer, broker: KafkaBroker, prefix: str) -> dict[str, str]:
    """Return the configuration."""
    return properties(server, broker, prefix, "shop", {"database.user": "cdc", "database.password": "p"})


def complaints(server: MySqlServer) -> tuple[str, ...]:
    """Return what is wrong with a server."""
    with (
        connect(account_settings(server.host, server.port, "cdc", "p")) as session,
        pytest.raises(PrerequisiteError) as caught,
    ):
        check(session, [], server_id=4711)
    return caught.value.problems


def captured(server: MySqlServer, broker: KafkaBroker, prefix: str, beat: str) -> dict[int, int]:
    """Capture a table whose rows change; return its rows in Kafka. Other tables of the server change too."""
    run(server, "CREATE DATABASE shop", "CREATE TABLE shop.Orders (id INT NOT NULL UNIQUE, v INT)")
    numbers = ", ".join(f"({number}, 0)" for number in range(ROWS))
    run(server, f"INSERT INTO shop.Orders VALUES {numbers}")
    [(table,)] = run(server, "SELECT TABLE_NAME FROM information_schema.TABLES WHERE TABLE_SCHEMA = 'shop'")

    def rows() -> dict[int, int]:
        found = verified_rows(broker.bootstrap, prefix, "shop", table)
        return {row["id"]: row["v"] for row in found.values()}

    with CaptureThread(of_account(server, broker, prefix)) as capture:
        capture.wait_snapshot()
        run(server, *(beat,) * bool(beat), "UPDATE shop.Orders SET v = 1 WHERE id < 10", *(beat,) * bool(beat))
        run(server, "DELETE FROM shop.Orders WHERE id = 0", f"INSERT INTO shop.Orders VALUES ({ROWS}, 5)")
        eventually(lambda: rows().get(ROWS) == 5, "the last change in Kafka")
    return rows()


EXPECTED = {**{number: int(number < 10) for number in range(1, ROWS)}, ROWS: 5}


def test_defaults_are_refused_with_what_to_change_and_the_rest_is_captured(
    server: MySqlServer, profile: Profile, kafka_broker: KafkaBroker, prefix: str
) -> None:
    """Without SUPER, RELOAD and performance_schema, with tables that the service writes, in each GTID mode."""
    table, beat = profile.heartbeat
    if table:
        run(server, table)
    if profile.refused:
        found = complaints(server)
        assert len(found) == len(profile.refused), found
        assert all(one.startswith(other) for one, other in zip(found, profile.refused, strict=True)), found
        server.restart(**profile.changed)

    assert captured(server, kafka_broker, prefix, beat) == EXPECTED


def test_read_only_replica_is_captured_if_it_logs_what_it_applies(kafka_broker: KafkaBroker, prefix: str) -> None:
    """A read replica is a source of its own: super_read_only does not matter, its binlog does."""
    replica_settings = {**REPLICA_SETTINGS, "log_slave_updates": "OFF", "super_read_only": "ON"}
    with ExitStack() as stack:
        primary = stack.enter_context(MySqlServer(version=VERSION))
        replica = stack.enter_context(MySqlServer(version=VERSION, settings=replica_settings))
        grant(primary)
        follow(replica, primary)
        eventually(lambda: run(replica, "SELECT 1 FROM mysql.user WHERE user = 'cdc'"), "the account on the replica")
        [problem] = complaints(replica)
        assert problem.startswith("log_replica_updates is OFF on a replica")
        replica.restart(log_slave_updates="ON")
        run(
            primary, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY)", "INSERT INTO shop.t VALUES (1)"
        )
        eventually(lambda: run(replica, "SHOW TABLES FROM shop"), "the table on the replica")

        with CaptureThread(of_account(replica, kafka_broker, prefix)) as capture:
            capture.wait_snapshot()
            run(primary, "INSERT INTO shop.t VALUES (2)")
            rows = eventually(
                lambda: len(found := verified_rows(kafka_broker.bootstrap, prefix, "shop", "t")) == 2 and found,
                "the change of the primary",
            )

    assert {row["id"] for row in rows.values()} == {1, 2}
