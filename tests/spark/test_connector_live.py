"""A real Debezium connector and the producer capture the same tables: the consumer makes equal tables of both."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.debezium_parity.connect import ConnectWorker
from tests.debezium_parity.debezium import connector_config, filled
from tests.debezium_parity.topics import read_topics
from tests.debezium_parity.variants import VARIANTS
from tests.embedded.kafka import KafkaBroker
from tests.embedded.registry import API, SchemaRegistry
from tests.spark.running import consume, settings
from tests.spark.test_connector_topics import AVRO, JSON, converters, delta_rows
from tests.support.capture import CaptureThread, eventually, properties
from tests.support.connect import DistributedWorker
from tests.support.takeover_scenario import TakeoverScenario

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

pytestmark = [pytest.mark.long, pytest.mark.debezium, pytest.mark.registry, pytest.mark.timeout(1800)]

_CREATE: Final = (
    "CREATE TABLE t (id INT PRIMARY KEY, u BIGINT UNSIGNED, d DECIMAL(20,6), v VARCHAR(50), b VARBINARY(9), y YEAR, "
    "da DATE, ti TIME(3), dt DATETIME, dt6 DATETIME(6), ts TIMESTAMP NULL, e ENUM('a','b'), s SET('x','y'), j JSON, "
    "bi BIT(9), f FLOAT, dd DOUBLE, p POINT)"
)
_ROW: Final = (
    "({id}, 18446744073709551615, -12345678901234.567891, 'é😀', x'00ff', 2024, '2024-02-29', '{time}', "
    "'2024-02-29 12:34:56', '2024-02-29 12:34:56.123456', '2024-02-29 12:34:56', 'b', 'x,y', '{{\"a\": 1.50}}', "
    "b'100000001', 0.1, 1e300, POINT(1, 2))"
)
_CHANGES: Final = (
    "UPDATE t SET v = 'changed' WHERE id = 2",
    "UPDATE t SET id = 30 WHERE id = 3",
    "DELETE FROM t WHERE id = 4",
    "ALTER TABLE t ADD COLUMN more INT, MODIFY d DECIMAL(24,8)",
    (
        "INSERT INTO t SELECT 6, t.u, t.d, t.v, t.b, t.y, t.da, t.ti, t.dt, t.dt6, t.ts, t.e, t.s, t.j, t.bi, t.f, "
        "t.dd, t.p, 7 FROM t WHERE t.id = 1"
    ),
    "UPDATE t SET v = 'after the change' WHERE id = 5",
)


@pytest.mark.parametrize("name", ["schemas", "isostring", "avro"])
def test_tables_of_the_connector_and_of_the_producer_are_equal(
    spark: SparkSession, kafka_broker: KafkaBroker, database: Database, prefix: str, tmp_path: Path, *, name: str
) -> None:
    """Snapshot, changes, a change of the key, and several schemas in one batch."""
    variant = next(each for each in VARIANTS if each.name == name)
    server = database.server
    with SchemaRegistry() as registry, ConnectWorker(kafka_broker.bootstrap) as worker:
        root = registry.url.removesuffix(API)
        database.execute(_CREATE)
        # An ISO string is a time of a day.
        time = "12:34:56.789" if name == "isostring" else "-12:34:56.789"
        values = [_ROW.format(id=number, time=time) for number in range(1, 6)]
        database.execute(f"INSERT INTO t VALUES {', '.join(values)}")
        other = f"{prefix}o"
        config = connector_config(server, variant, worker, server_id=7900, registry=root)
        changed = {"topic.prefix": other, "database.include.list": database.name}
        worker.put(other, {**config, **changed})
        own = properties(server, kafka_broker, prefix, database.name, filled(variant.tailrace, root))
        with CaptureThread(own) as capture:
            capture.wait_snapshot()
            eventually(lambda: _count(kafka_broker, worker, other, database.name) >= 5, "the connector's snapshot")
            for statement in _CHANGES:
                database.execute(statement)
            capture.wait_position(server)
            # An update, two records and a tombstone each for a changed and a deleted key, an insert, an update.
            eventually(lambda: _count(kafka_broker, worker, other, database.name) >= 5 + 8, "the connector's changes")
        chosen = converters(AVRO, registry.url) if variant.avro else converters(JSON)
        tables = {}
        for each in (prefix, other):
            work = tmp_path / each
            consume(spark, settings(kafka_broker, each, work) | chosen)
            rows = delta_rows(spark, work, database.name, "t")
            # The connector's snapshot copies the server's text, with blanks.
            tables[each] = {key: {**row, "j": json.loads(row["j"])} for key, row in rows.items()}

    assert sorted(tables[prefix]) == [1, 2, 5, 6, 30]
    different = {
        (key, column): (value, tables[prefix][key][column])
        for key, row in tables[other].items()
        for column, value in row.items()
        if value != tables[prefix][key][column]
    }
    assert not different
    assert tables[other] == tables[prefix]
    assert tables[other][6]["more"] == 7
    assert tables[other][5]["v"] == "after the change"


def _count(broker: KafkaBroker, worker: ConnectWorker, prefix: str, database: str) -> int:
    worker.check(prefix)
    return sum(1 for _ in read_topics(broker.bootstrap, [f"{prefix}.{database}.t"]))


@pytest.fixture
def scenario(
    mysql_server: MySqlServer, kafka_broker: KafkaBroker, database: Database, prefix: str
) -> Iterator[TakeoverScenario]:
    """A filled table and a worker; the connector is not started yet."""
    given = properties(mysql_server, kafka_broker, prefix, database.name)
    with DistributedWorker(kafka_broker.bootstrap, f"connect-{prefix}") as worker:
        found = TakeoverScenario(mysql_server, kafka_broker, database, worker, given)
        found.fill()
        yield found


def test_table_equals_its_source_after_a_takeover(
    spark: SparkSession, kafka_broker: KafkaBroker, scenario: TakeoverScenario, tmp_path: Path
) -> None:
    """The connector stops within a transaction under load, Tailrace continues, and the consumer reads both."""
    with scenario.writer():
        scenario.start()
        eventually(scenario.flushed, "an offset after the connector's snapshot")
        scenario.stop_within_an_event()
    scenario.take_over()
    scenario.run_tailrace()
    given: Mapping[str, Any] = settings(kafka_broker, scenario.prefix, tmp_path, maxOffsetsPerTrigger=2500)

    consume(spark, {**given, **converters(JSON)})

    found = delta_rows(spark, tmp_path, scenario.database.name, "t")
    source = dict(scenario.database.execute("SELECT id, v FROM t"))
    assert {key: row["v"] for key, row in found.items()} == source
