"""The JDBC sink passes the conformance suite on MySQL."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, ClassVar

import pytest

from tests.sinks.conformance import SinkConformance, row
from tests.sinks.conformance_recovery import RECOVERY
from tests.sinks.conformance_schema import SCHEMA
from tests.sinks.harness import BatchRunner
from tests.sinks.jdbc_backend import AS_TEXT, JdbcBackend, mysql_database

if TYPE_CHECKING:
    from tests.embedded.mysql import MySqlServer

pytestmark = pytest.mark.timeout(1800)


class MySqlBackend(JdbcBackend):
    """Tables of MySQL."""


@pytest.fixture(scope="module", autouse=True)
def _server(mysql_server: MySqlServer) -> Iterator[None]:
    MySqlBackend.server = mysql_database(mysql_server)
    yield
    del MySqlBackend.server


class TestJdbcSinkOnMySql(SinkConformance):
    """Conformance of the JDBC sink on MySQL."""

    backend_type = MySqlBackend
    variant = "MySQL"
    schema_differences: ClassVar = AS_TEXT
    not_claimed: ClassVar = {"test_type_change": "numbers that are stored become text with their column"}
    # What the dialect does not change is tested quickly with PostgreSQL.
    long: ClassVar = frozenset(
        {
            "test_batch_cut_off",
            "test_insert",
            "test_delete",
            "test_key_change",
            "test_empty_batch",
            "test_insert_after_delete",
            "test_snapshot_with_backfill",
            "test_incremental_snapshot",
            "test_repeated_batch",
            "test_new_column",
            "test_wider_number",
            "test_nulls",
            "test_out_of_order",
        }
        | {SCHEMA}
        | RECOVERY
    )

    def test_type_change(self, run: BatchRunner) -> None:
        """The column becomes text, and the number in it too."""
        self.change_type(run)

        self.expect(run, row(1, "0"), row(2, "text"))
