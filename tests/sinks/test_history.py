"""Histories in each table format: the rows of the changelog, each of them once."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import TYPE_CHECKING

from tailrace.schemas.table import TableSchema
from tests.sinks.backend import Changelog, ChangelogBackend, WithSettings
from tests.sinks.conformance import SinkConformance
from tests.sinks.jdbc_backend import JdbcBackend
from tests.sinks.shapes import JdbcShapeConformance, ShapeConformance
from tests.sinks.test_delta import DeltaBackend
from tests.sinks.test_iceberg import IcebergBackend

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

CASES = SinkConformance.cases()
CUTS = (("before", "write_batch"), ("after", "prepare_table"), ("after", "_write_changelog"))


def changelog_of(rows: DataFrame) -> Changelog:
    """Return the rows of a history by key, ordered as its readers order them."""
    found: Changelog = defaultdict(list)
    for each in rows.orderBy("_seq", "__partition", "__offset", "__part").collect():
        values = {name: value for name, value in each.asDict().items() if not name.startswith("_")}
        found[values["id"]].append((each["__kind"], values))
    return found


class History(WithSettings, ChangelogBackend):
    """Tables with the shape; before the class of a format among the bases."""

    added: Mapping[str, str] = {"sink.shape": "history"}


class DeltaHistory(History, DeltaBackend):
    """Delta tables at a path."""

    cuts = CUTS

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the table."""
        path = self.work / "tables" / schema.database / schema.table
        return changelog_of(self.spark.read.format("delta").load(str(path))) if path.exists() else {}


class IcebergHistory(History, IcebergBackend):
    """Iceberg tables."""

    cuts = CUTS

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the table."""
        name = self.name(schema.table)
        return changelog_of(self.spark.read.table(name)) if self.spark.catalog.tableExists(name) else {}


class JdbcHistory(History, JdbcBackend):
    """Tables of a database."""

    def changelog(self, schema: TableSchema) -> Changelog:
        """Read the table."""
        return changelog_of(self.frame(schema.table)) if self.exists(schema) else {}


class PostgresHistory(JdbcHistory):
    """Tables of PostgreSQL."""

    database = "postgresql"


class MySqlHistory(JdbcHistory):
    """Tables of MySQL."""

    database = "mysql"


class TestDeltaHistory(ShapeConformance):
    """Delta."""

    backend_type = DeltaHistory
    variant = "history"
    long = CASES - {"test_truncate"}


class TestIcebergHistory(ShapeConformance):
    """Iceberg."""

    backend_type = IcebergHistory
    variant = "history"
    long = CASES - {"test_truncate"}


class TestPostgresHistory(JdbcShapeConformance):
    """PostgreSQL."""

    backend_type = PostgresHistory
    variant = "PostgreSQL, history"
    long = CASES - {"test_truncate"}


class TestMySqlHistory(JdbcShapeConformance):
    """MySQL."""

    backend_type = MySqlHistory
    variant = "MySQL, history"
    long = CASES - {"test_truncate"}
