"""Fixtures on real servers; each starts once per run, on the first test that asks for it."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

# The servers' modules are imported where they are needed: a unit test must not pay for drivers it does not use.

NEEDS = {
    "mysql_server": "mysql",
    "own_server": "mysql",
    "database": "mysql",
    "kafka_broker": "kafka",
    "spark": "spark",
}
"""Fixture -> marker; a test that asks for a fixture is marked by it."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Mark every test by the servers it needs, so that ``-m 'not spark'`` is always right."""
    for item in items:
        for fixture, marker in NEEDS.items():
            if fixture in getattr(item, "fixturenames", ()):
                item.add_marker(getattr(pytest.mark, marker))


@pytest.fixture(scope="session")
def mysql_server() -> Iterator[MySqlServer]:
    """One MySQL server for the whole run; tests that stop or change it start their own."""
    from tests.embedded.mysql import MySqlServer  # noqa: PLC0415

    with MySqlServer() as server:
        yield server


@pytest.fixture(scope="session")
def kafka_broker() -> Iterator[KafkaBroker]:
    """One Kafka broker for the whole run; tests that stop or change it start their own."""
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
    """A fresh database on the module's own server, which a test before may have ended."""
    from tests.support.database import Database  # noqa: PLC0415

    own_server.start()
    fresh = Database(own_server, f"own_{uuid.uuid4().hex[:8]}")
    yield fresh
    fresh.drop()


@pytest.fixture
def prefix() -> str:
    """A topic prefix that nothing else uses."""
    return f"t{uuid.uuid4().hex[:8]}"


@pytest.fixture(scope="session")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """One local Spark session for the whole run, with Kafka, Avro and Delta."""
    from tests.embedded.spark import start_session  # noqa: PLC0415

    session = start_session(tmp_path_factory.mktemp("spark"))
    try:
        yield session
    finally:
        session.stop()
