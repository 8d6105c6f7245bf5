"""Tables that enter the capture while it streams, with their rows; one that cannot be captured stops no other."""

from __future__ import annotations

import threading
import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tailrace.producer.snapshot.hooks import SnapshotHooks
from tailrace.schemas.alteration import Alteration, ColumnChange
from tailrace.schemas.names import schemas_topic
from tests.support.capture import CaptureThread, eventually, properties, records_of
from tests.support.database import Database
from tests.support.incremental_window import fill, rows_of_reader, source_rows
from tests.support.online_schema_change import gh_ost, pt_online_schema_change
from tests.support.topics import read_topic
from tests.support.upsert_reader import consumer_rows, creations

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer

SMALL = {"snapshot.max.threads": 2, "incremental.snapshot.chunk.size": 40, "topic.creation.default.partitions": 1}


@pytest.fixture
def outside(mysql_server: MySqlServer) -> Iterator[Database]:
    """A database that is not captured."""
    fresh = Database(mysql_server, f"out_{uuid.uuid4().hex[:8]}")
    yield fresh
    fresh.drop()


def test_tables_that_arrive_with_rows_are_read(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database, outside: Database
) -> None:
    """Renamed into the capture, swapped, exchanged with a partition, changed by online schema change tools."""
    fill(database, "ghost", "swapped", "pt", "inner_ghost", "inner_pt")
    fill(outside, "staging", "loaded", "part")
    outside.execute("UPDATE loaded SET id = id + 50, v = CONCAT(v, '!') ORDER BY id DESC")
    database.execute(
        "CREATE TABLE parted (id INT PRIMARY KEY, v VARCHAR(50)) "
        "PARTITION BY RANGE (id) (PARTITION p VALUES LESS THAN (1000), PARTITION q VALUES LESS THAN MAXVALUE)"
    )
    changes = {"inner_ghost": gh_ost, "inner_pt": pt_online_schema_change}

    one_at_a_time = threading.Lock()

    def within_snapshot(split: Split) -> None:
        with one_at_a_time:
            if split.number == 2 and (change := changes.pop(split.table.table, None)) is not None:
                change(database, split.table.table)

    settings = properties(mysql_server, kafka_broker, prefix, database.name, SMALL)
    with CaptureThread(settings, SnapshotHooks(before_low=within_snapshot)) as capture:
        capture.wait_snapshot()
        gh_ost(database, "ghost")
        pt_online_schema_change(database, "pt")
        database.execute(f"RENAME TABLE {outside.name}.staging TO arrived")
        database.execute(f"RENAME TABLE swapped TO {outside.name}.swapped, {outside.name}.loaded TO swapped")
        database.execute(f"ALTER TABLE parted EXCHANGE PARTITION p WITH TABLE {outside.name}.part")
        tables = ("ghost", "pt", "inner_ghost", "inner_pt", "arrived", "parted")
        for table in (*tables, "swapped"):
            database.execute(f"UPDATE {table} SET v = 'last' WHERE id % 10 = 0")
        eventually(
            lambda: _missing(kafka_broker, prefix, database, (*tables, "swapped")) == {}, "rows of all tables", 90
        )
        capture.wait_position(mysql_server)

    for table in (*tables, "swapped"):
        found = consumer_rows(kafka_broker, prefix, f"{database.name}.{table}").values()
        assert {row["id"]: row["v"] for row in found} == source_rows(database, table), table
        assert all(row.get("w", 5) == 5 for row in found), table
    for table in ("ghost", "pt", "inner_ghost", "inner_pt"):
        alterations = _alterations(kafka_broker, prefix, f"{prefix}.{database.name}.{table}")
        assert [(each.kind.value, each.column, each.value) for each in alterations] == [("add", "w", 5)], table
        assert creations(kafka_broker, prefix, f"{database.name}.{table}") == []


def test_table_that_the_account_could_not_see_is_read(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Also if the binlog has a CREATE of it: the server logs CREATE TABLE IF NOT EXISTS of a table that exists."""
    fill(database, "t", "hidden")
    user = f"narrow_{uuid.uuid4().hex[:8]}"
    database.execute(f"CREATE USER {user} IDENTIFIED BY 'narrow'")
    database.execute(f"GRANT PROCESS, REPLICATION SLAVE, REPLICATION CLIENT ON *.* TO {user}")
    database.execute(f"GRANT SELECT ON `{database.name}`.t TO {user}")
    account = {"database.user": user, "database.password": "narrow"}
    settings = properties(mysql_server, kafka_broker, prefix, database.name, {**SMALL, **account})
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute(f"GRANT SELECT ON `{database.name}`.hidden TO {user}")
        database.execute("CREATE TABLE IF NOT EXISTS hidden (id INT PRIMARY KEY)")
        database.execute("UPDATE hidden SET v = 'last' WHERE id = 1")
        eventually(lambda: _missing(kafka_broker, prefix, database, ("t", "hidden")) == {}, "rows of both tables", 90)
    database.execute(f"DROP USER {user}")


def test_table_without_a_key_is_taken_up_when_it_gets_one(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """It is in error, also after a restart, while the others stream; then it is read."""
    fill(database, "t")
    settings = properties(mysql_server, kafka_broker, prefix, database.name, SMALL)
    with CaptureThread(settings) as capture:
        capture.wait_snapshot()
        database.execute("CREATE TABLE keyless (id INT NOT NULL, v VARCHAR(50))")
        database.execute("INSERT INTO keyless VALUES (1, 'one'), (2, 'two')")
        database.execute("UPDATE t SET v = 'other' WHERE id = 1")
        capture.wait_position(mysql_server)
        assert _status(capture, database, "keyless")["mode"] == "error"
    database.execute("DELETE FROM keyless WHERE id = 2")
    with CaptureThread(settings) as capture:
        eventually(lambda: _status(capture, database, "t").get("mode") == "streaming", "second start")
        assert "neither a primary key" in str(_status(capture, database, "keyless")["error"])
        database.execute("INSERT INTO keyless VALUES (3, 'three')")
        database.execute("ALTER TABLE keyless ADD PRIMARY KEY (id)")
        database.execute("INSERT INTO keyless VALUES (4, 'four')")
        eventually(lambda: _missing(kafka_broker, prefix, database, ("t", "keyless")) == {}, "rows of both tables", 90)
        capture.wait_snapshot()
    for table in ("t", "keyless"):
        records = records_of(kafka_broker.bootstrap, prefix, database.name, table)
        assert rows_of_reader(records) == source_rows(database, table)


def test_swap_of_a_tool_that_changes_values_or_loses_rows_is_read(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, prefix: str, database: Database
) -> None:
    """Also of tables that are excluded; a swap under the names of a tool is that of two tables."""
    fill(database, "ghost", "cut", "looks", "_looks_new")
    database.execute("UPDATE _looks_new SET id = id + 50, v = 'new' ORDER BY id DESC")
    excluded = {**SMALL, "table.exclude.list": r".*\._.*"}
    with CaptureThread(properties(mysql_server, kafka_broker, prefix, database.name, excluded)) as capture:
        capture.wait_snapshot()
        gh_ost(database, "ghost", "add column w timestamp not null default current_timestamp")
        gh_ost(database, "cut", "partition by range (id) (partition p values less than (190))")
        database.execute("RENAME TABLE looks TO _looks_old, _looks_new TO looks")
        capture.wait_position(mysql_server)

        def equal(table: str) -> bool:
            found = consumer_rows(kafka_broker, prefix, f"{database.name}.{table}").values()
            computed = table != "ghost" or all(row.get("w") for row in found)
            return computed and {row["id"]: row["v"] for row in found} == source_rows(database, table)

        eventually(lambda: equal("ghost") and equal("cut") and equal("looks"), "the rows of all tables")
        assert max(source_rows(database, "cut")) == 189


def _alterations(broker: KafkaBroker, prefix: str, topic: str) -> list[ColumnChange]:
    records = [r.value for r in read_topic(broker.bootstrap, schemas_topic(prefix)) if b"/altered/" in (r.key or b"")]
    found = [Alteration.from_json(value) for value in records if value is not None]
    return [change for each in found if each is not None and each.topic == topic for change in each.changes]


def _missing(broker: KafkaBroker, prefix: str, database: Database, tables: tuple[str, ...]) -> dict[str, object]:
    """Return the rows of the source that the topics do not have."""
    found: dict[str, object] = {}
    for table in tables:
        rows = rows_of_reader(records_of(broker.bootstrap, prefix, database.name, table))
        if missing := source_rows(database, table).items() - rows.items():
            found[table] = missing
    return found


def _status(capture: CaptureThread, database: Database, table: str) -> dict[str, object]:
    found: dict[str, object] = capture.status.snapshot()["tables"].get(f"{database.name}.{table}", {})
    return found
