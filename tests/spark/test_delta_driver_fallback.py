"""Small Delta tables in a running query: the driver writes them; what fails there is left to the other ways."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from py4j.protocol import Py4JError  # type: ignore[import-untyped]
from structlog.testing import capture_logs

from tailrace.spark_consumer import in_driver
from tailrace.spark_consumer.sink import delta_driver_rewrite, delta_files, delta_log, delta_sink
from tailrace.spark_consumer.sink.delta_driver_rewrite import RowForm
from tailrace.spark_consumer.sink.delta_log import LogTransaction
from tailrace.spark_consumer.sink.delta_small import merge_small
from tailrace.spark_consumer.sink.target_table import TargetTable
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, table_schema
from tests.spark.running import consume, run_query, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]

BATCHES = 5
"""After the first one, each has ten records of each of two tables."""
NAMES = ("t0", "t1")
ADDED = "ADD COLUMN extra INT"
EXPECTED = {key: {"id": key, "name": f"{BATCHES}.{key}"} for key in range(8)} | {100: {"id": 100, "name": "last"}}


@pytest.fixture(name="given")
def written_topics(kafka_broker: KafkaBroker, prefix: str, tmp_path: Path) -> dict[str, str]:
    """Write two topics and return the configuration of a query that needs several batches for them."""
    feed = Feed(kafka_broker, prefix)
    tables = [feed.table(table_schema(prefix, name)) for name in NAMES]
    for number in range(BATCHES + 1):
        for table in tables:
            for key in range(8):
                row = {"id": key, "name": f"{number}.{key}"}
                feed.write(table.change("u" if number else "c", row if number else None, row, pos=1000 * number + key))
            # A key that is deleted and inserted again in each batch.
            feed.write(table.change("d", {"id": 100, "name": "x"}, None, pos=1000 * number + 90))
            feed.write(table.change("c", None, {"id": 100, "name": "last"}, pos=1000 * number + 91))
    return settings(kafka_broker, prefix, tmp_path, maxOffsetsPerTrigger=36)


def operations(spark: SparkSession, tmp_path: Path, name: str) -> Counter[str]:
    """Count the operations that the history of a table has."""
    history = spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/tables/shop/{name}`").collect()
    return Counter(row["operation"] for row in history)


def test_a_running_query(
    spark: SparkSession, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The driver writes each batch, the first one of a table that exists too."""
    found: list[bool] = []

    def rewritten(*arguments: Any) -> bool:
        found.append(delta_driver_rewrite.rewrite_in_driver(*arguments))
        return found[-1]

    monkeypatch.setattr(delta_sink, "rewrite_in_driver", rewritten)
    consume(spark, given)
    assert [table_rows(spark, tmp_path, name) for name in NAMES] == [EXPECTED, EXPECTED]
    assert all(found)
    assert len(found) >= 2 * len(NAMES)
    assert sum(operations(spark, tmp_path, name)["STREAMING UPDATE"] for name in NAMES) == len(found)


def fails(*_: object) -> Any:
    """Fail as a call of a method that the JVM does not have."""
    raise Py4JError("An error occurred while calling o1.none. Trace: Method none([]) does not exist")


def fails_after(step: Callable[..., Any]) -> Callable[..., Any]:
    """Return a step that fails when all is done."""

    def run(*arguments: Any) -> Any:
        step(*arguments)
        return fails()

    return run


@pytest.mark.parametrize(
    "failure", ["written", *(pytest.param(each, marks=pytest.mark.long) for each in ("class", "form", "layout"))]
)
def test_a_failure_before_the_commit(
    spark: SparkSession, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failure: str
) -> None:
    """The batch is written in another way, as are those that follow; one line tells it."""
    if failure == "class":
        monkeypatch.setattr(delta_files, "_SOURCES", "org.apache.nothing")
    elif failure == "form":
        monkeypatch.setattr(delta_driver_rewrite, "RowForm", fails)
    elif failure == "layout":
        monkeypatch.setattr(delta_log, "RowLayout", fails)
    else:
        monkeypatch.setattr(delta_log, "write_rows", fails_after(delta_files.write_rows))
    monkeypatch.setattr(in_driver, "PAUSE_S", 3600.0)
    with capture_logs() as logs:
        consume(spark, given)
    assert [table_rows(spark, tmp_path, name) for name in NAMES] == [EXPECTED, EXPECTED]
    warnings = [line for line in logs if line["event"].startswith("small tables are")]
    assert [line["log_level"] for line in warnings] == ["warning"]
    assert warnings[0]["cause"]
    for name in NAMES:
        assert operations(spark, tmp_path, name)["STREAMING UPDATE"] >= 2


@pytest.mark.long
def test_a_failure_that_passes(
    spark: SparkSession, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the pause, which has no length here, the driver writes the tables again."""
    failed: list[bool] = []
    written: list[bool] = []

    def fails_once(*arguments: Any) -> Any:
        if not failed:
            failed.append(True)
            fails()
        return RowForm(*arguments)

    def rewritten(*arguments: Any) -> bool:
        done = delta_driver_rewrite.rewrite_in_driver(*arguments)
        if done and failed:
            written.append(done)
        return done

    monkeypatch.setattr(in_driver, "PAUSE_S", 0.0)
    monkeypatch.setattr(delta_driver_rewrite, "RowForm", fails_once)
    monkeypatch.setattr(delta_sink, "rewrite_in_driver", rewritten)
    with capture_logs() as logs:
        consume(spark, given)
    assert [table_rows(spark, tmp_path, name) for name in NAMES] == [EXPECTED, EXPECTED]
    assert len([line for line in logs if line["event"].startswith("small tables are")]) == 1
    assert len(written) >= len(NAMES)


@pytest.mark.parametrize("by_statement", [pytest.param(False, marks=pytest.mark.long), True])
def test_a_batch_that_no_way_can_write(
    spark: SparkSession, given: dict[str, str], monkeypatch: pytest.MonkeyPatch, *, by_statement: bool
) -> None:
    """It says nothing about the driver: the query may have been stopped."""
    unreadable: list[bool] = []

    def read(*_: object) -> Any:
        unreadable.append(True)
        return fails()

    monkeypatch.setattr(delta_driver_rewrite, "row_sequence", read)
    if by_statement:
        # As without deletion vectors: the statement is the next way.
        monkeypatch.setattr(delta_sink, "merge_small", lambda *_: False)
        monkeypatch.setattr(TargetTable, "merge", fails)
    else:
        monkeypatch.setattr(delta_sink, "merge_small", lambda *given: fails() if unreadable else merge_small(*given))
    with capture_logs() as logs:
        _, error = run_query(spark, given)
    assert error is not None
    assert unreadable
    assert not [line for line in logs if line["event"].startswith("small tables are")]


@pytest.mark.parametrize(
    "change",
    [
        "SET TBLPROPERTIES ('delta.logRetentionDuration' = 'interval 8 days')",
        pytest.param(ADDED, marks=pytest.mark.long),
    ],
)
def test_alter_table_during_the_commit(
    spark: SparkSession, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, change: str
) -> None:
    """The batch is written again, as after another conflict."""
    commit = LogTransaction.commit_staged
    changed: list[str] = []

    def alter_once(self: LogTransaction, *arguments: Any) -> Any:
        if not changed:
            changed.append(Path(self._path).name)
            with ThreadPoolExecutor(1) as other:
                other.submit(spark.newSession().sql, f"ALTER TABLE delta.`{self._path}` {change}").result()
        return commit(self, *arguments)

    monkeypatch.setattr(LogTransaction, "commit_staged", alter_once)
    with capture_logs() as logs:
        consume(spark, given)
    assert [line["event"] for line in logs if line["log_level"] in {"warning", "error"}] == [
        "a concurrent command changed the table: the batch is written again"
    ]
    for name in NAMES:
        added = {"extra": None} if change == ADDED and name in changed else {}
        assert table_rows(spark, tmp_path, name) == {key: {**row, **added} for key, row in EXPECTED.items()}


@pytest.mark.parametrize("committed", [True, pytest.param(False, marks=pytest.mark.long)])
def test_a_commit_whose_result_is_not_known(
    spark: SparkSession, given: dict[str, str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, committed: bool
) -> None:
    """No other way is tried: the next attempt asks the ledger."""
    commit = LogTransaction.commit_staged
    written: list[str] = []
    with monkeypatch.context() as patched:
        patched.setattr(LogTransaction, "commit_staged", fails_after(commit) if committed else fails)
        patched.setattr(delta_sink, "merge_small", noted(merge_small, written))
        with capture_logs() as logs:
            _, error = run_query(spark, given)
    states = [line for line in logs if line["event"].startswith("small tables are")]
    assert error is not None
    assert not states
    assert not written
    before = {name: operations(spark, tmp_path, name)["STREAMING UPDATE"] for name in NAMES}
    assert sum(before.values()) > 0 if committed else sum(before.values()) == 0

    consume(spark, given)
    assert [table_rows(spark, tmp_path, name) for name in NAMES] == [EXPECTED, EXPECTED]
    for name in NAMES:
        metadata = [
            row["userMetadata"]
            for row in spark.sql(f"DESCRIBE HISTORY delta.`{tmp_path}/tables/shop/{name}`").collect()
            if row["operation"] == "STREAMING UPDATE"
        ]
        assert len(metadata) == len(set(metadata)), "a batch was applied twice"


def noted(step: Callable[..., bool], written: list[str]) -> Callable[..., bool]:
    """Return a step that is noted when it has written something."""

    def run(*arguments: Any) -> bool:
        done = step(*arguments)
        if done:
            written.append(step.__name__)
        return done

    return run
