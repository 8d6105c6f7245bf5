"""The JDBC sink passes the conformance suite on PostgreSQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.sinks.conformance import SinkConformance, row
from tests.sinks.conformance_recovery import RECOVERY
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import AS_TEXT, JdbcBackend, postgres_database

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
    variant = "PostgreSQL"
    long: ClassVar = frozenset(
        {
            "test_schema_changes",
            "test_insert",
            "test_delete",
            "test_key_change",
            "test_empty_batch",
            "test_snapshot_with_backfill",
            "test_wider_number",
        }
        | (RECOVERY - {"test_extremes", "test_restored_checkpoint"})
    )
    schema_differences: ClassVar = AS_TEXT
    not_claimed: ClassVar = {"test_type_change": "numbers that are stored become text with their column"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The column becomes text, and the number in it too."""
        self.change_type(run)

        self.expect(run, row(1, "0"), row(2, "text"))
