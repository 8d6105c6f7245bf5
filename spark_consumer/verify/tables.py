"""Which tables are compared, and what the process ends with."""

from __future__ import annotations

import re
import sys
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson
import structlog

from tailrace.runtime.errors import ConfigError
from tailrace.schemas.names import schemas_topic
from tailrace.spark_consumer.errors import as_tailrace_error
from tailrace.spark_consumer.query import table_topics
from tailrace.spark_consumer.small_data import with_settings
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.formats.record_format import record_format
from tailrace.spark_consumer.source.kafka import range_options
from tailrace.spark_consumer.source.kafka_admin import SharedAdmin, TopicIds, TopicPolicies
from tailrace.spark_consumer.source.schema_tracker import SchemaTracker
from tailrace.spark_consumer.tables.reading import Reading
from tailrace.spark_consumer.verify.run_metrics import (
    DIFFERENT,
    EQUAL,
    FAILED,
    RunMetrics,
    VerifiedTable,
    require_folder,
)

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.config import ConsumerConfig

QUERY: Final = "tailrace-verify"

log = structlog.get_logger(__name__)


def chosen_topics(
    spark: SparkSession, config: ConsumerConfig, tables: str, more: Callable[[], Collection[str]] = lambda: ()
) -> list[str]:
    """Return the topics of the tables that the query reads and a regular expression of ``db.table`` matches.

    An empty one matches all. ``more``: topics of the query that Kafka may not have. Raises ConfigError without any.
    """
    try:
        wanted, start = re.compile(tables), f"{config.topic_prefix}."
    except re.error as error:
        raise ConfigError([f"--tables {tables!r} is no regular expression: {error}"]) from error
    topics = [
        topic
        for topic in sorted({*table_topics(spark, config), *more()})
        if not tables or wanted.fullmatch(topic.removeprefix(start))
    ]
    if not topics:
        raise ConfigError([f"--tables {tables}: the query reads no such table"])
    return topics


class OpenTopics(NamedTuple):
    """What reads the topics of a prefix."""

    reading: Reading
    ids: TopicIds
    policies: TopicPolicies
    """Read for no topic yet."""


@contextmanager
def open_topics(spark: SparkSession, config: ConsumerConfig, topics: Sequence[str]) -> Iterator[OpenTopics]:
    """Yield it with the schemas and the ids of some topics; in the block an overflow is an error, and not NULL."""
    client = config.kafka_client
    schemas = SchemaTracker(ControlTopic(schemas_topic(config.topic_prefix), client))
    admin = SharedAdmin(client)
    ids, policies = TopicIds(admin), TopicPolicies(admin)
    source = range_options(client=client, query_id=QUERY, extra=config.source_options)
    reading = Reading(source, schemas, record_format(config.format_settings), policies.is_compacted)
    try:
        schemas.refresh(spark)
        ids.refresh(spark, topics)
        with with_settings(spark, {"spark.sql.ansi.enabled": "true"}):
            yield OpenTopics(reading, ids, policies)
    finally:
        admin.close()


def compare_each(topics: Iterable[str], compare: Callable[[str], VerifiedTable], metrics: Path | None) -> int:
    """Compare each table; return the exit code for all. One that cannot be compared is logged.

    ``metrics``: the file that gets them. Raises ConfigError, before all of that, if it has no folder.
    """
    require_folder(metrics)
    run, codes = RunMetrics(), set()
    for topic in topics:
        started, result = time.monotonic(), VerifiedTable(FAILED)
        try:
            result = compare(topic)
        except Exception as error:  # noqa: BLE001 - the other tables are compared
            log.error(
                "table not compared",
                topic=topic,
                error=as_tailrace_error(error, "the table cannot be compared"),
            )
        codes.add(result.code)
        run.add(topic, result, time.monotonic() - started)
    if metrics is not None:
        try:
            run.write(metrics)
        except OSError as error:
            log.error("the metrics are not written", hint="look at --metrics-file", file=str(metrics), error=str(error))
            codes.add(FAILED)
    return next(code for code in (DIFFERENT, FAILED, EQUAL) if code in codes)


def print_line(line: Mapping[str, Any]) -> None:
    """Write a JSON line to standard output."""
    sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()
