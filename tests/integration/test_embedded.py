"""The test servers: they start, keep their data after a kill, and leave no process."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import uuid
from pathlib import Path
from typing import TYPE_CHECKING

import pymysql
import pytest
from confluent_kafka import Producer

from tests.embedded.java import EmbeddedServerError
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import CAPTURE_PASSWORD, CAPTURE_USER, MySqlServer
from tests.embedded.postgresql import PostgresServer
from tests.embedded.supervised import wait_until
from tests.support.capture import eventually
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.support.database import Database


def test_mysql_is_set_up_for_capture(database: Database) -> None:
    """The binlog has full row images with full metadata, unless the environment asks for MINIMAL, under GTIDs."""
    [row] = database.execute("SELECT @@binlog_format, @@binlog_row_image, @@binlog_row_metadata, @@gtid_mode")

    assert row == ("ROW", "FULL", os.environ.get("TAILRACE_METADATA", "FULL"), "ON")


def test_the_capture_user_reads_and_never_writes(database: Database) -> None:
    """It may select rows and read the binlog position, and nothing else."""
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with database.connect(user=CAPTURE_USER, password=CAPTURE_PASSWORD) as session, session.cursor() as cursor:
        cursor.execute("SELECT * FROM t")
        cursor.execute("SHOW MASTER STATUS")
        assert len(cursor.fetchall()) == 1
        with pytest.raises(pymysql.err.OperationalError, match="denied"):
            cursor.execute("INSERT INTO t VALUES (1)")


def test_mysql_keeps_its_rows_after_a_kill() -> None:
    """A SIGKILL loses no committed row; two servers never share a UUID."""
    with MySqlServer() as server, MySqlServer() as other:
        with server.connect() as session, session.cursor() as cursor:
            cursor.execute("CREATE DATABASE d")
            cursor.execute("CREATE TABLE d.t (id INT PRIMARY KEY)")
            cursor.execute("INSERT INTO d.t VALUES (7)")
        server.kill()
        server.start()

        with server.connect() as session, session.cursor() as cursor:
            cursor.execute("SELECT id FROM d.t")
            assert cursor.fetchall() == ((7,),)
        uuids = set()
        for each in (server, other):
            with each.connect() as session, session.cursor() as cursor:
                cursor.execute("SELECT @@server_uuid")
                uuids.add(cursor.fetchone())
        assert len(uuids) == 2


def test_kafka_keeps_its_records_after_a_kill() -> None:
    """A SIGKILL of the broker loses no committed transaction."""
    with KafkaBroker() as broker:
        broker.create_topic("t")
        producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "x", "log_level": 0})
        producer.init_transactions(120)
        producer.begin_transaction()
        producer.produce("t", b"value")
        producer.commit_transaction(120)
        broker.kill()
        broker.start()

        # A coordinator of groups would have to come up first.
        eventually(lambda: [record.value for record in read_topic(broker.bootstrap, "t")] == [b"value"], "the record")


def test_the_spark_session_writes_delta(spark: SparkSession, tmp_path: Path) -> None:
    """The jars and extensions fit each other: a Delta table can be written and read."""
    path = str(tmp_path / "t")
    spark.range(3).write.format("delta").save(path)

    assert spark.read.format("delta").load(path).count() == 3


@pytest.mark.mysql
def test_server_ends_with_its_killed_parent(tmp_path: Path) -> None:
    """SIGKILL of the process that started a server ends the server."""
    log = tmp_path / f"{uuid.uuid4().hex}.pid"
    program = (
        "import sys, pathlib, time\n"
        "from tests.embedded.mysql import MySqlServer\n"
        "server = MySqlServer(directory=pathlib.Path(sys.argv[2])).start()\n"
        "pathlib.Path(sys.argv[1]).write_text(str(server.pid) + '\\n')\n"
        "time.sleep(600)\n"
    )
    (tmp_path / "server").mkdir()
    parent = subprocess.Popen(
        [sys.executable, "-c", program, log, tmp_path / "server"], cwd=Path(__file__).parents[2], start_new_session=True
    )
    try:
        wait_until(lambda: log.is_file() and log.read_text().endswith("\n"), what="the server's start", deadline_s=300)
    finally:
        parent.kill()
        parent.wait()

    pid = int(log.read_text())
    wait_until(lambda: not _alive(pid), what="the server's end", deadline_s=120)


@pytest.mark.skipif(os.geteuid() != 0, reason="PostgreSQL runs as the user of the tests, unless that is root")
def test_postgresql_in_a_folder_of_root_alone_is_refused(tmp_path: Path) -> None:
    """Its user could not read the libraries there, and the error of the loader would not say why."""
    tmp_path.chmod(0o700)
    with pytest.raises(EmbeddedServerError, match="set TMPDIR") as raised:
        PostgresServer(directory=tmp_path / "server").start()
    assert str(tmp_path) in str(raised.value)


def _alive(pid: int) -> bool:
    try:
        os.kill(pid, signal.SIGCONT)  # it has no effect on a running process
    except ProcessLookupError:
        return False
    # A zombie runs nothing.
    return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
