"""Statements with any bytes, in any database and from any client, do not stop the capture."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.database import Database
from tests.support.reference_model import final_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

_CLIENTS = ("big5", "cp932", "eucjpms", "euckr", "gb18030", "gb2312", "gbk", "sjis", "ujis", "latin1", "utf8", "binary")


def test_the_stream_goes_on_behind_bytes_that_are_no_text(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Comments, literals, routines, defaults, rows as text, savepoints and XA, of clients of each character set."""
    elsewhere = Database(mysql_server, f"{database.name}_other")
    database.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    settings = properties(mysql_server, kafka_broker, prefix, database.name)
    with CaptureThread(settings) as capture, elsewhere.connect() as session:
        capture.wait_snapshot()
        for number, client in enumerate(_CLIENTS):
            session.query(f"SET NAMES utf8mb4, character_set_client = {client}")
            for statement in (
                b"CREATE TABLE o%d (id INT PRIMARY KEY, b VARBINARY(4) DEFAULT _binary'\xff\xfe') /* \xff\xfe */",
                b"ALTER TABLE o%d ADD COLUMN c VARBINARY(4) DEFAULT _binary'\xfe' # \xff",
                b"CREATE PROCEDURE p%d() SELECT _binary'\xff\xfe'",
                b"SET SESSION binlog_format = STATEMENT",
                b"INSERT INTO o%d VALUES (1, _binary'\xff\xfe', _binary'\xff')",
                b"SET SESSION binlog_format = ROW",
            ):
                session.query(statement.replace(b"%d", str(number).encode()))
        session.query(f"CREATE TABLE `{database.name}`.d (id INT PRIMARY KEY) /* \xff */".encode("latin-1"))
        session.query(f"INSERT INTO `{database.name}`.d VALUES (1)")
        session.query("SET NAMES utf8mb4")
        database.execute("INSERT INTO t VALUES (1)")
        capture.wait_position(mysql_server)
        eventually(lambda: _ids(kafka_broker, prefix, database) == {"t": {1}, "d": {1}}, "the rows", 60)
        assert capture.status.snapshot()["stream"]["refused"] == 0
    elsewhere.drop()


def _ids(broker: KafkaBroker, prefix: str, database: Database) -> dict[str, set[int]]:
    return {
        table: {row["id"] for row in final_rows(records_of(broker.bootstrap, prefix, database.name, table)).values()}
        for table in ("t", "d")
    }
