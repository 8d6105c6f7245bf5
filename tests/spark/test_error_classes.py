"""An error is judged by the classes of its exceptions, SQLSTATE and Spark's conditions: a message can quote a row."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, cast

import pytest
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.sql import functions as fn
from pyspark.util import InheritableThread

from tailrace.runtime.errors import KafkaUnavailableError
from tailrace.spark_consumer.errors import SinkError, as_tailrace_error, concerns_all_tables, is_unreachable
from tailrace.spark_consumer.java_errors import ends_executors, summary
from tailrace.spark_consumer.sink.base import Sink, TableBatch
from tailrace.spark_consumer.sink.plugin import SinkPlugin
from tailrace.spark_consumer.source.kafka_admin import TopicPolicies, _says_missing
from tailrace.spark_consumer.tables.reasons import bad_record, known_reason, unknown_reason
from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.spark.records import Feed, table_schema
from tests.spark.running import run_query, settings, table_rows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

WORDS: Final = (
    "OutOfMemoryError ExecutorLostFailure JOB_CANCELLED java.net.ConnectException Cannot call methods on a stopped "
    "SparkContext org.apache.kafka.common.errors.TimeoutException KAFKA_DATA_LOSS [USER_RAISED_EXCEPTION] a value of x"
)
MakeError = Callable[["SparkSession"], Exception]
KAFKA: Final = "org.apache.kafka.common.errors"


def thrown(spark: SparkSession, name: str, *arguments: object) -> Exception:
    """Return the error of a call in which an exception of Java is thrown."""
    jvm: Any = spark._jvm
    kind = jvm
    for part in name.split("."):
        kind = getattr(kind, part)
    return failed(jvm, kind(*arguments))


def failed(jvm: Any, exception: Any) -> Exception:
    """Return the error of a call in which an exception of Java is thrown."""
    try:
        jvm.scala.util.Failure(exception).get()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return error
    raise AssertionError


def failure_of(action: Callable[[], object]) -> Exception:
    """Return the error of an action."""
    try:
        action()
    except Exception as error:  # noqa: BLE001 - it is what is asked for
        return error
    raise AssertionError


def cast_failure(spark: SparkSession, text: str) -> Exception:
    """Return the error of a task whose message quotes a text."""
    rows = spark.range(1).select(fn.lit(text).alias("v")).repartition(2).select(fn.col("v").cast("int"))
    return failure_of(rows.collect)


def test_words_of_a_row_decide_nothing(spark: SparkSession) -> None:
    error = cast_failure(spark, WORDS)

    assert "OutOfMemoryError" in str(error)
    assert not concerns_all_tables(error)
    assert not is_unreachable(error)
    assert bad_record(error, "p.d.t") is None
    assert known_reason(spark, {}, "p.d.t", None, error, same=True) is None
    assert summary(error) == "[CAST_INVALID_INPUT] (SQLSTATE 22018)"
    reason = unknown_reason("p.d.t", error)
    assert reason.message == "the records of topic p.d.t cannot be applied: [CAST_INVALID_INPUT] (SQLSTATE 22018)"
    assert reason.hint == "read the log above for the complete error, and remove its cause"


@pytest.mark.parametrize(
    ("name", "arguments", "all_tables", "unreachable"),
    [
        (f"{KAFKA}.TimeoutException", ("60000 ms",), True, True),
        (f"{KAFKA}.SaslAuthenticationException", ("no",), True, True),
        (f"{KAFKA}.RecordTooLargeException", ("1 MB",), False, False),
        ("java.net.ConnectException", ("refused",), True, True),
        ("java.net.SocketTimeoutException", ("read",), False, False),
        ("java.sql.SQLException", ("x", "08006"), True, True),
        ("java.sql.SQLException", ("OutOfMemoryError", "22021"), False, False),
        ("java.lang.OutOfMemoryError", ("heap",), False, False),
        ("org.apache.spark.SparkException", ("ExecutorLostFailure: exit 137",), False, False),
    ],
)
def test_classes_say_what_an_error_concerns(
    spark: SparkSession, name: str, arguments: tuple[str, ...], all_tables: bool, unreachable: bool
) -> None:
    error = thrown(spark, name, *arguments)

    assert isinstance(error, Py4JJavaError)
    assert (concerns_all_tables(error), is_unreachable(error)) == (all_tables, unreachable)
    jvm: Any = spark._jvm
    wrapped = failed(jvm, jvm.java.lang.RuntimeException("a batch failed", error.java_exception))
    assert (concerns_all_tables(wrapped), is_unreachable(wrapped)) == (all_tables, unreachable)
    assert ("refused" in summary(error)) is False


@pytest.mark.parametrize(
    ("name", "missing", "policy"),
    [
        ("UnknownTopicOrPartitionException", True, None),
        ("TopicAuthorizationException", False, "denied"),
        ("TimeoutException", False, None),
    ],
)
def test_the_name_of_a_topic_says_nothing_of_it(
    spark: SparkSession, name: str, missing: bool, policy: str | None
) -> None:
    """The admin client's errors quote it."""
    quoted = "no answer for p.d.UnknownTopicOrPartitionException, p.d.AuthorizationException"
    error = thrown(spark, f"{KAFKA}.{name}", quoted)
    assert isinstance(error, Py4JJavaError)
    jvm: Any = spark._jvm
    failure = jvm.java.util.concurrent.ExecutionException(quoted, error.java_exception)

    assert _says_missing(failed(jvm, failure)) == missing
    assert TopicPolicies._policy(jvm.scala.util.Failure(failure)) == policy


def test_the_error_of_a_query_says_who_did_not_answer(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    cause = thrown(spark, f"{KAFKA}.TimeoutException", "Timed out waiting for a node assignment.")
    ended = as_tailrace_error(failed(jvm, jvm.java.util.concurrent.ExecutionException(cause.java_exception)))  # type: ignore[attr-defined]

    assert isinstance(ended, KafkaUnavailableError)
    assert ended.message == "the query failed: Kafka did not answer"
    assert ended.hint.startswith(
        "check that the brokers run, bootstrap.servers and the kafka. settings, and start again"
    )
    refused = as_tailrace_error(thrown(spark, "java.net.ConnectException", "refused"))
    assert (refused.message, refused.hint) == ("the query failed", "read the log above for the complete error")
    errors = jvm.org.apache.spark.sql.errors.QueryExecutionErrors
    other = as_tailrace_error(failed(jvm, errors.concurrentStreamLogUpdate(1)))
    assert "another query writes to its checkpoint" in other.message
    assert other.hint == "stop the other query, or set another checkpointLocation for this one"


def test_errors_that_end_executors_are_recognized(spark: SparkSession) -> None:
    """Of those, no record is searched: each step of the search would end executors too."""
    lost = thrown(spark, "org.apache.spark.SparkException", "Job aborted: ExecutorLostFailure")
    for error in (lost, thrown(spark, "java.lang.OutOfMemoryError", "Java heap space")):
        assert ends_executors(error)
        assert "(spark.executor.memory), or leave out the column that needs it" in unknown_reason("p.d.t", error).hint
    assert not ends_executors(cast_failure(spark, WORDS))


def test_only_kafka_denies_access(spark: SparkSession) -> None:
    jvm: Any = spark._jvm
    topics = jvm.java.util.HashSet()
    denied = jvm.org.apache.kafka.common.errors.TopicAuthorizationException
    for names, expected, rights in (
        (
            "p.d.t",
            "Kafka denies reading topic p.d.t",
            "READ and DESCRIBE on the topic, and READ on the consumer group,",
        ),
        ("latest", "denies access to latest", "READ, WRITE and DESCRIBE on that topic"),
    ):
        topics.clear()
        topics.add(names)
        reason = known_reason(spark, {}, "p.d.t", None, failed(jvm, denied(topics)), same=True)
        assert reason is not None
        assert expected in reason.message
        assert reason.hint.startswith(f"grant {rights} to the user of this client")


def test_a_value_is_not_in_the_reason(spark: SparkSession) -> None:
    text = fn.concat(fn.lit("a value of d.t, column n, does not fit the files: "), fn.lit("secret"))
    error = failure_of(spark.range(1).repartition(2).select(fn.raise_error(text)).collect)

    reason = known_reason(spark, {}, "p.d.t", None, error, same=True)

    assert reason is not None
    assert reason.message == "a value of d.t, column n, does not fit the files"
    assert reason.hint == "change the value at the source, or the column of the target so that it takes the value"
    assert "secret" in str(error)
    assert "secret" not in str(reason)


class _Failing:
    """A sink in which the batches of some tables fail in an exception of Java."""

    def __init__(self, sink: Sink, spark: SparkSession, errors: Mapping[str, MakeError]) -> None:
        self._sink, self._spark, self._errors = sink, spark, errors

    def __getattr__(self, name: str) -> Any:
        return getattr(self._sink, name)

    def write_batch(self, batch: TableBatch, batch_id: int) -> None:
        """Fail, or pass the batch on."""
        if batch.schema.table in self._errors:
            raise self._errors[batch.schema.table](self._spark)
        self._sink.write_batch(batch, batch_id)


def _failing(errors: Mapping[str, MakeError]) -> Callable[[SinkPlugin], SinkPlugin]:
    def wrap(plugin: SinkPlugin) -> SinkPlugin:
        def opened(spark: SparkSession, options: Any, context: Any) -> Any:
            return _Failing(plugin.open(spark, options, context), spark, errors)

        return replace(plugin, open=opened)

    return wrap


@pytest.mark.timeout(1800)
def test_tables_whose_tasks_fail_are_parked_and_others_go_on(
    spark: SparkSession, kafka_broker: KafkaBroker, prefix: str, tmp_path: Path
) -> None:
    """What others read, the status, the stored position and the error at the end, has no values."""
    feed = Feed(kafka_broker, prefix)
    names = ("good", "memory", "words")
    row = {"id": 1, "name": "x"}
    for table in (feed.table(table_schema(prefix, name)) for name in names):
        feed.write(table.change("c", None, row, pos=1))
    errors = {
        "memory": lambda spark: thrown(spark, "java.lang.OutOfMemoryError", "Java heap space"),
        "words": lambda spark: cast_failure(spark, f"private-value {WORDS}"),
    }

    status, ended = run_query(spark, settings(kafka_broker, prefix, tmp_path), _failing(errors))

    tables = status.as_dict()["tables"]
    assert table_rows(spark, tmp_path, "good") == {1: row}
    assert isinstance(ended, SinkError)
    assert {name for name in names if tables[f"{prefix}.shop.{name}"]["state"] == "parked"} == set(errors)
    parked = tmp_path / "checkpoint" / "tailrace" / "parked"
    for name, cause in (("memory", "java.lang.OutOfMemoryError"), ("words", "[CAST_INVALID_INPUT]")):
        stored = (parked / f"{prefix}.shop.{name}.json").read_text()
        assert cause in stored
        assert cause in str(ended)
        assert "private-value" not in stored + str(ended) + str(tables)
    assert "give executors more memory (spark.executor.memory)" in str(ended)
    assert ended.hint == "remove the causes and start again: the tables are then taken up where they stopped"


def test_cancelled_jobs_end_the_query(spark: SparkSession) -> None:
    context = spark.sparkContext
    context.setJobGroup("cancelled", "x", interruptOnCancel=True)
    endless = spark.range(0, 1 << 50, 1, 2).selectExpr("max(id % 7)")
    errors: list[Exception] = []
    thread = InheritableThread(target=lambda: errors.append(failure_of(endless.collect)))
    thread.start()
    try:
        supervised.wait_until(
            lambda: bool(context.statusTracker().getJobIdsForGroup("cancelled")), what="the job", deadline_s=120
        )
        context.cancelJobGroup("cancelled")
        thread.join(300)
    finally:
        cast("Any", context)._jsc.clearJobGroup()

    [error] = errors
    assert concerns_all_tables(error)
    assert not is_unreachable(error)
