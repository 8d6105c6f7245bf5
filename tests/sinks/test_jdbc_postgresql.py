"""The JDBC sink passes the conformance suite on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest

from tests.sinks.conformance import SinkConformance
from tests.sinks.jdbc_backend import JdbcBackend, postgres_database

if TYPE_CHECKING:
    from tests.embedded.postgresql import PostgresServer

pytestmark = pytest.mark.timeout(1800)


class PostgresBackend(JdbcBackend):
    """Tables of PostgreSQL."""


@pytest.fixture(scope="module", autouse=True)
def _server(postgres_server: PostgresServer) -> Iterator[None]:
    PostgresBackend.server = postgres_database(postgres_server)
    yield
    del PostgresBackend.server


class TestJdbcSinkOnPostgres(SinkConformance):
    """Conformance of the JDBC sink on PostgreSQL."""

    backend_type = PostgresBackend
