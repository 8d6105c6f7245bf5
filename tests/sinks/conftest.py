"""Databases for the JDBC sink; marks the cases of the conformance suite that a sink runs with ``--all`` only."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.embedded.spark import LINE
from tests.sinks.conformance import INTEGER, SinkConformance
from tests.sinks.conformance_recovery import LONG
from tests.sinks.conformance_results import code_of, digest
from tests.sinks.conformance_schema import OTHER_MODES, SCHEMA
from tests.support.conformance_plugin import CONFORMANCE

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.connect import ConnectField
    from tests.embedded.iceberg_rest import IcebergRestCatalog
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.embedded.postgresql import PostgresServer
    from tests.sinks.backend import SinkBackend
    from tests.sinks.harness import BatchRunner
    from tests.sinks.jdbc_backend import JdbcServer, Open


@pytest.fixture(params=["postgresql", "mysql"])
def jdbc_server(
    postgres_server: PostgresServer, mysql_server: MySqlServer, request: pytest.FixtureRequest
) -> JdbcServer:
    """Each database."""
    from tests.sinks.jdbc_backend import mysql_database, postgres_database  # noqa: PLC0415

    return postgres_database(postgres_server) if request.param == "postgresql" else mysql_database(mysql_server)


@pytest.fixture
def backend(request: pytest.FixtureRequest) -> type[SinkBackend]:
    """Each backend that a test names with ``indirect=True``; its database runs."""
    from tests.sinks.jdbc_backend import serve  # noqa: PLC0415 - not for tests of other sinks

    serve(request.param, request)
    found: type[SinkBackend] = request.param
    return found


@pytest.fixture(scope="session")
def iceberg_catalog() -> Iterator[IcebergRestCatalog]:
    """One REST catalog of Iceberg for all tests of this process; tests that stop it start their own."""
    from tests.embedded.iceberg_rest import IcebergRestCatalog  # noqa: PLC0415 - not for tests of other sinks

    with IcebergRestCatalog() as server:
        yield server


@pytest.fixture
def opened(
    spark: SparkSession, kafka_broker: KafkaBroker, jdbc_server: JdbcServer, prefix: str, tmp_path: Path
) -> Iterator[Open]:
    """Opens queries into one schema of each database; the schema is dropped afterwards."""
    from tests.sinks.harness import BatchRunner  # noqa: PLC0415 - not for tests of other sinks
    from tests.sinks.jdbc_backend import JdbcBackend  # noqa: PLC0415
    from tests.spark.records import Feed, table_schema  # noqa: PLC0415

    class Backend(JdbcBackend):
        server = jdbc_server

    backends: list[JdbcBackend] = []
    feed = Feed(kafka_broker, prefix)

    def run(table: str, *extra: ConnectField, **settings: str) -> BatchRunner:
        schema = table_schema(prefix, table, *(extra or (INTEGER,)))
        found = feed.table(replace(schema, topic=re.sub(r"[^\w.]", "_", schema.topic, flags=re.ASCII)))
        backend = Backend(spark, kafka_broker, tmp_path)
        backend.more = settings
        backends.append(backend)
        return BatchRunner(feed, found, backend, tmp_path / f"query{len(backends)}")

    yield run
    if backends:
        backends[0].drop()


def _is_of_another_line(item: pytest.Item) -> bool:
    """Return whether a module of sinks needs another Spark line than that of this environment."""
    module = getattr(item, "module", None)
    return item.nodeid.startswith("tests/sinks/") and getattr(module, "SPARK_LINE", "4.1") != LINE


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The methods belong to all sinks, so a decorator cannot mark them. Cases that a sink cannot have are left out."""
    for item in list(items):
        if _is_of_another_line(item):
            items.remove(item)
            continue
        sink = getattr(item, "cls", None)
        params = getattr(getattr(item, "callspec", None), "params", {})
        database = getattr(getattr(sink, "backend_type", params.get("backend")), "database", "")
        if database:
            item.add_marker(database)
        if sink is None or not issubclass(sink, SinkConformance):
            continue
        case = getattr(item, "originalname", "")
        if case in sink.not_applicable:
            items.remove(item)
            continue
        if case in sink.long | LONG | OTHER_MODES:
            item.add_marker(pytest.mark.long)
        if case in {SCHEMA, *OTHER_MODES}:
            item.add_marker(pytest.mark.timeout(1800))
        if case in LONG:
            item.add_marker(pytest.mark.timeout(5400))
        item.user_properties.append(
            (CONFORMANCE, [sink.label(), case, digest(sink, case), code_of(sink.backend_type.sink)])
        )
