"""A package outside Tailrace adds a dialect of the JDBC sink; its database is MariaDB.

The package is the folder ``mariadb_package``: a module, and the metadata that an installation would write.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import pytest

from tailrace.spark_consumer.sink.jdbc_dialect import load_dialect
from tailrace.spark_consumer.sink.jdbc_mysql import MySqlDialect
from tests.embedded.kafka import KafkaBroker
from tests.sinks.conformance import INTEGER, SinkConformance, row
from tests.sinks.harness import BatchRunner, CutOffError
from tests.sinks.jdbc_backend import AS_TEXT, JdbcBackend, JdbcServer
from tests.spark.records import Feed, table_schema

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PACKAGE = Path(__file__).with_name("mariadb_package")

pytestmark = [pytest.mark.timeout(1800), pytest.mark.long]


class MariaDbBackend(JdbcBackend):
    """Tables of MariaDB."""

    reading: Mapping[str, str] = {"sessionVariables": "sql_mode=ANSI_QUOTES,time_zone='+00:00'"}

    def __init__(self, spark: SparkSession, broker: KafkaBroker, work: Path) -> None:
        super().__init__(spark, broker, work)
        self.is_mysql = True


@pytest.fixture(scope="module", autouse=True)
def _installed() -> Iterator[None]:
    """Install the package, for processes too, and start its database."""
    from tests.embedded.mariadb import MariaDbServer  # noqa: PLC0415

    with MariaDbServer() as server, pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(str(PACKAGE))
        patch.setenv("PYTHONPATH", os.pathsep.join(filter(None, (str(PACKAGE), os.environ.get("PYTHONPATH")))))
        MariaDbBackend.server = JdbcServer(server.url, server.user, server.password)
        yield
        del MariaDbBackend.server
    sys.modules.pop("tailrace_mariadb", None)


class TestJdbcSinkOnMariaDb(SinkConformance):
    """Conformance of the JDBC sink with the dialect of the package."""

    backend_type = MariaDbBackend
    variant = "MariaDB"
    schema_differences: ClassVar = AS_TEXT
    not_claimed: ClassVar = {"test_type_change": "numbers that are stored become text with their column"}

    def test_type_change(self, run: BatchRunner) -> None:
        """The column becomes text, and the number in it too."""
        self.change_type(run)

        self.expect(run, row(1, "0"), row(2, "text"))


def test_table_is_exact_with_the_dialect_of_another_package(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """Snapshot, changes, a batch cut off at each step, repeated batches, an older checkpoint."""
    feed = Feed(kafka_broker, prefix)
    backend = MariaDbBackend(spark, kafka_broker, tmp_path)
    assert type(backend.dialect) is not MySqlDialect
    assert type(backend.dialect).__module__ == "tailrace_mariadb"
    run = BatchRunner(feed, feed.table(table_schema(prefix, "t", INTEGER), partitions=2), backend, tmp_path)
    change = run.table.change

    rows = [row(key) for key in range(1, 6)]
    run.batch(run.table.snapshot(prefix, 0, rows, low=10, high=20), [run.table.end(prefix, 0, high=20, rows=5)])
    run.repeat()
    saved = run.save()
    for number, cut in enumerate(backend.cuts, 1):
        records = change("u", row(1, number - 1), row(1, number), pos=100 + number)
        with pytest.raises(CutOffError):
            run.batch(records, change("c", None, row(10 + number), pos=200 + number), cut=cut)
        run.repeat()
    run.batch(change("d", row(2), None, pos=300), change("u", row(3), {**row(3), "name": None}, pos=310))
    run.repeat()
    added = range(11, 11 + len(backend.cuts))
    expected = {1: row(1, len(added)), 3: {**row(3), "name": None}, 4: row(4), 5: row(5)}
    expected |= {key: row(key) for key in added}
    assert backend.rows(run.table.schema) == expected
    [ledger] = backend.texts("SELECT offsets FROM {s}.tailrace_ledger")

    run.restore(saved)
    run.batch(change("u", row(4), row(4, 1), pos=400))

    assert backend.rows(run.table.schema) == {**expected, 4: row(4, 1)}
    assert backend.texts("SELECT offsets FROM {s}.tailrace_ledger") != [ledger]
    assert backend.stages() == []
    assert load_dialect("jdbc:mysql://host/").driver == MySqlDialect.driver
