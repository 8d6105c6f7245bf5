"""Databases for the JDBC sink; marks the cases of the conformance suite that a sink runs with ``--all`` only."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.sinks.conformance import SinkConformance

if TYPE_CHECKING:
    from tests.embedded.mysql import MySqlServer
    from tests.embedded.postgresql import PostgresServer
    from tests.sinks.jdbc_backend import JdbcServer


@pytest.fixture(params=["postgresql", "mysql"])
def jdbc_server(
    postgres_server: PostgresServer, mysql_server: MySqlServer, request: pytest.FixtureRequest
) -> JdbcServer:
    """Each database."""
    from tests.sinks.jdbc_backend import mysql_database, postgres_database  # noqa: PLC0415

    return postgres_database(postgres_server) if request.param == "postgresql" else mysql_database(mysql_server)


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """The methods belong to all sinks, so a decorator cannot mark them."""
    for item in items:
        sink = getattr(item, "cls", None)
        if sink is not None and issubclass(sink, SinkConformance) and getattr(item, "originalname", "") in sink.long:
            item.add_marker(pytest.mark.long)
