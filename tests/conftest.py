"""Fixtures on real servers. Each starts once per process, with the first test that uses it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from hypothesis import settings

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mariadb import MariaDbServer
    from tests.embedded.mysql import MySqlServer
    from tests.embedded.postgresql import PostgresServer
    from tests.support.database import Database

pytest_plugins = (
    "tests.support.conformance_plugin",
    "tests.support.prepare_plugin",
    "tests.support.duration_plugin",
    "tests.support.workers_plugin",
)

# An example has no time limit: a busy machine is no fault of the code.
settings.register_profile("tailrace", deadline=None)
settings.load_profile("tailrace")

# The servers' modules are imported where they are needed: unit tests do not load drivers that they do not use.


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySqlServer]:
    """One MySQL server for all tests of this process; tests that stop or change it start their own."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer() as server:
        yield server


@pytest.fixture(scope="session")
def newest_server() -> Iterator[MySqlServer]:
    """One MySQL server of the newest version for all tests of this process."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer(version="9.7") as server:
        yield server


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[PostgresServer]:
    """One PostgreSQL server for all tests of this process; tests that stop or change it start their own."""
    from tests.embedded.postgresql import PostgresServer  # noqa: PLC0415

    with PostgresServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One Kafka broker for all tests of this process; tests that stop or change it start their own."""
    from tests.embedded.kafka import KafkaBroker  # noqa: PLC0415

    with KafkaBroker() as broker:
        yield broker


@pytest.fixture
def database(mysql_server: MySqlServer) -> Iterator[Database]:
    """A fresh database, dropped afterwards."""
    from tests.support.database import Database  # noqa: PLC0415

    fresh = Database(mysql_server, f"db_{uuid.uuid4().hex[:8]}")
    try:
        yield fresh
    finally:
        fresh.drop()


@pytest.fixture(scope="module")
def own_server() -> Iterator[MySqlServer]:
    """A MySQL server that the tests of one module may reconfigure, restart and purge."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer() as server:
        yield server


@pytest.fixture
def own_database(own_server: MySqlServer) -> Iterator[Database]:
    """A fresh database on the module's own server, which an earlier test may have stopped."""
    from tests.support.database import Database  # noqa: PLC0415

    own_server.start()
    fresh = Database(own_server, f"own_{uuid.uuid4().hex[:8]}")
    yield fresh
    fresh.drop()


@pytest.fixture(scope="module")
def mariadb_server(request: pytest.FixtureRequest) -> Iterator[MariaDbServer]:
    """A MariaDB source for the tests of one module, which may name its version as the parameter."""
    from tests.embedded.mariadb import SOURCE, MariaDbServer  # noqa: PLC0415

    with MariaDbServer(version=getattr(request, "param", None), settings=SOURCE) as server:
        yield server


@pytest.fixture
def maria(mariadb_server: MariaDbServer, prefix: str) -> Iterator[Database]:
    """A fresh database on that server."""
    from tests.support.database import Database  # noqa: PLC0415
    from tests.support.mariadb import family  # noqa: PLC0415

    fresh = Database(family(mariadb_server), f"d_{prefix}")
    yield fresh
    fresh.drop()


@pytest.fixture
def prefix() -> str:
    """A topic prefix that nothing else uses."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark session for all tests of this process, with Kafka, Avro and Delta."""
    from tests.embedded.spark import start_session  # noqa: PLC0415

    session = start_session(tmp_path_factory.mktemp("spark"))
    try:
        yield session
    finally:
        session.stop()
