"""The core of a MariaDB source on the other long-term versions."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.integration import test_mariadb as core
from tests.integration import test_mariadb_types as types
from tests.support.capture import CaptureThread, verified_rows
from tests.support.database import Database
from tests.support.mariadb import modes, source_settings, wait_position

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mariadb import MariaDbServer

_VERSIONS = ("10.11", "11.8")
pytestmark = [
    pytest.mark.mariadb(*_VERSIONS),
    pytest.mark.kafka,
    pytest.mark.long,
    pytest.mark.parametrize("mariadb_server", _VERSIONS, indirect=True, scope="module"),
]


def test_rows_changes_and_a_restart(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    core.test_rows_changes_and_a_restart(mariadb_server, kafka_broker, prefix, maria)


def test_changes_during_a_snapshot(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    core.test_changes_during_a_snapshot(mariadb_server, kafka_broker, prefix, maria)


def test_low_watermark_waits_for_what_is_not_visible(mariadb_server: MariaDbServer, maria: Database) -> None:
    core.test_low_watermark_waits_for_what_is_not_visible(mariadb_server, maria)


def test_values_of_declared_types(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    types.test_values(mariadb_server, kafka_broker, prefix, maria)


def test_compressed_columns(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    types.test_compressed_columns(mariadb_server, kafka_broker, prefix, maria)


def test_vectors(mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database) -> None:
    """They are arrays of floats, from the snapshot and from the binlog, which has them as binary strings."""
    if mariadb_server.version == "10.11":
        pytest.skip("it has no VECTOR")
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, v VECTOR(3) NOT NULL, w VECTOR(300), x VARBINARY(12))")
    long = "[" + ",".join(map(str, range(300))) + "]"
    insert = "INSERT INTO t VALUES (%s, VEC_FromText('[1,-2.5,0]'), VEC_FromText(%s), x'0000803F00000000000020C0')"
    maria.execute(insert, (1, long))
    with CaptureThread(source_settings(mariadb_server, kafka_broker, prefix, maria.name)) as capture:
        capture.wait_snapshot()
        maria.execute(insert, (2, long))
        maria.execute("UPDATE t SET w = NULL WHERE id = 1")
        wait_position(capture, maria)
        assert modes(capture) == {"t": "streaming"}
    found = {row["id"]: row for row in verified_rows(kafka_broker.bootstrap, prefix, maria.name, "t").values()}
    assert (found[1]["v"], found[1]["w"]) == ([1.0, -2.5, 0.0], None)
    assert (found[2]["v"], found[2]["w"]) == ([1.0, -2.5, 0.0], list(map(float, range(300))))
    assert found[2]["x"] == found[1]["x"] == "AACAPwAAAAAAACDA"


def test_generated_columns(
    mariadb_server: MariaDbServer, kafka_broker: KafkaBroker, prefix: str, maria: Database
) -> None:
    """Where an UPDATE has their values, they are captured; else the table is in error, and the columns are named."""
    maria.execute("CREATE TABLE t (id INT PRIMARY KEY, a INT, v INT AS (a + 1) VIRTUAL, s INT AS (a + 2) STORED)")
    maria.execute("INSERT INTO t (id, a) VALUES (1, 1), (2, 2)")
    with CaptureThread(source_settings(mariadb_server, kafka_broker, prefix, maria.name)) as capture:
        capture.wait_snapshot()
        maria.execute("INSERT INTO t (id, a) VALUES (3, 3)")
        maria.execute("UPDATE t SET a = 10 WHERE id = 1")
        wait_position(capture, maria)
        [table] = capture.status.snapshot()["tables"].values()
    found = verified_rows(kafka_broker.bootstrap, prefix, maria.name, "t").values()
    values = {row["id"]: (row["a"], row["v"], row["s"]) for row in found}
    if mariadb_server.version == "10.11":
        assert table["mode"] == "streaming"
        assert values == {1: (10, 11, 12), 2: (2, 3, 4), 3: (3, 4, 5)}
    else:
        assert table["mode"] == "error"
        assert "without some of their columns" in str(table)
        assert values == {1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 5)}
