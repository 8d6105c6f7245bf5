"""One query with several sinks: each table is exact in its own, and a sink whose engine is down stops no other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

import pytest

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.connect import ConnectField
from tests.embedded.kafka import KafkaBroker
from tests.sinks.backend import SinkBackend
from tests.sinks.jdbc_backend import JdbcBackend, postgres_database
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend
from tests.sinks.test_parquet import ParquetBackend
from tests.spark.model import Run
from tests.spark.records import Feed, Table, connect, table_schema
from tests.spark.running import consume, run_query, settings
from tests.spark.test_kill import run_killed

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.postgresql import PostgresServer

NUMBER: Final = ConnectField("n", connect("int32"))


def query(broker: KafkaBroker, prefix: str, work: Path, backends: Mapping[str, SinkBackend]) -> dict[str, str]:
    """Return the configuration of a query whose sinks have the tables whose names begin as theirs."""
    given = settings(broker, prefix, work, sink=None, maxOffsetsPerTrigger=100)
    given["sinks"] = ",".join(backends)
    for name, backend in backends.items():
        given[f"sinks.{name}.type"] = backend.sink
        given[f"sinks.{name}.table.include.list"] = rf"shop\.{name}_.*"
        given |= {f"sinks.{name}.{key}": value for key, value in backend.settings().items()}
    return given


@pytest.mark.timeout(2700)
def test_engine_that_is_down_parks_the_tables_of_its_sink_and_no_others(
    spark: SparkSession, kafka_broker: KafkaBroker, postgres_server: PostgresServer, prefix: str, tmp_path: Path
) -> None:
    class Warehouse(JdbcBackend):
        server = postgres_database(postgres_server)

    backends: dict[str, SinkBackend] = {
        name: kind(spark, kafka_broker, tmp_path)
        for name, kind in (("lake", DeltaBackend), ("log", ParquetBackend), ("pg", Warehouse))
    }
    feed = Feed(kafka_broker, prefix)
    tables = [
        feed.table(table_schema(prefix, f"{name}_{number}", NUMBER))
        for name in ("lake", "log", "pg")
        for number in (1, 2)
    ]
    row = {"id": 1, "name": "a", "n": 1}
    feed.write(message for table in tables for message in table.change("c", None, row, pos=100))
    # Settings of the query must not reach other tests.
    spark = spark.newSession()
    given = query(kafka_broker, prefix, tmp_path, backends)
    down = {**given, "sinks.pg.sink.url": "jdbc:postgresql://127.0.0.1:1/nothing"}

    _, fault = run_query(spark, {**given, "sinks.pg.table.include.list": "nothing"})
    status, error = run_query(spark, down)

    of_pg = [f"{prefix}.shop.pg_{number}" for number in (1, 2)]
    found = status.as_dict()["tables"]
    assert isinstance(fault, ConfigError)
    assert "tables without a sink: shop.pg_1, shop.pg_2;" in str(fault)
    assert error is not None
    assert sorted(error.context) == of_pg
    assert {topic for topic, each in found.items() if each["state"] == "parked"} == set(of_pg)
    assert [found[topic]["sink"] for topic in of_pg] == ["pg", "pg"]
    assert "the engine of the sink pg cannot be reached" in str(found[of_pg[0]]["parked"])
    for table in tables:
        if table.schema.topic not in of_pg:
            name = table.schema.table.partition("_")[0]
            assert backends[name].rows(table.schema) == {1: row}

    changed = {**row, "n": 2}
    feed.write(message for table in tables for message in table.change("u", row, changed, pos=200))
    consume(spark, given)

    for table in tables:
        assert backends[table.schema.table.partition("_")[0]].rows(table.schema) == {1: changed}
    moved = {"sinks.lake.table.include.list": r"shop\.lake_1", "sinks.log.table.include.list": r"shop\.(log_.|lake_2)"}
    _, fault = run_query(spark, {**given, **moved})
    assert isinstance(fault, ConfigError)
    assert f"{prefix}.shop.lake_2 went to the sink lake until now and would go to log" in str(fault)


@pytest.mark.long
@pytest.mark.timeout(5400)
def test_tables_of_all_sinks_are_exact_after_kills_at_every_step(
    spark: SparkSession, kafka_broker: KafkaBroker, postgres_server: PostgresServer, prefix: str, tmp_path: Path
) -> None:
    class Warehouse(JdbcBackend):
        server = postgres_database(postgres_server)

    class Ice(IcebergBackend):
        """Tables in the catalog of the processes that are killed."""

        def read_path(self, table: str) -> Path:
            return self.work / "iceberg" / self.schema_name.partition(".")[2] / f"shop_{table}"

    ice = Ice(spark, kafka_broker, tmp_path)
    backends: dict[str, SinkBackend] = {
        "lake": DeltaBackend(spark, kafka_broker, tmp_path),
        "ice": ice,
        "log": ParquetBackend(spark, kafka_broker, tmp_path),
        "pg": Warehouse(spark, kafka_broker, tmp_path),
    }
    feed = Feed(kafka_broker, prefix)
    runs: dict[str, list[Run]] = {name: [] for name in backends}
    for number, name in enumerate([*backends, *backends]):
        table: Table = feed.table(table_schema(prefix, f"{name}_{number}", NUMBER), partitions=2)
        run = Run(table, prefix, seed=number, keys=40, events=80)
        for transaction in run.transactions:
            feed.write(transaction)
        runs[name].append(run)
    given = query(kafka_broker, prefix, tmp_path, backends)
    given["maxOffsetsPerTrigger"] = "400"

    run_killed(
        tmp_path, given, ("after-append:2", "after-fill:1", "before-merge:2", "after-note:2", "after-write_batch:3")
    )

    for name, found in runs.items():
        for run in found:
            if name == "ice":
                frame = spark.read.format("iceberg").load(str(ice.read_path(run.table.schema.table))).drop("_seq")
                rows = [each.asDict() for each in frame.collect()]
                assert sorted(rows, key=lambda each: each["id"]) == [run.rows[key] for key in sorted(run.rows)]
            else:
                assert backends[name].rows(run.table.schema) == run.rows, name
