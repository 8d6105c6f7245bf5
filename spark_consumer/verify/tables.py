"""Which tables are compared, and what the process ends with."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import orjson
import structlog

from tailrace.runtime.errors import ConfigError
from tailrace.spark_consumer.errors import as_tailrace_error
from tailrace.spark_consumer.query import table_topics

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.spark_consumer.config import ConsumerConfig

EQUAL: Final = 0
FAILED: Final = 1
DIFFERENT: Final = 3

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


def compare_each(topics: Iterable[str], compare: Callable[[str], int]) -> int:
    """Compare each table; return the exit code for all. One that cannot be compared is logged."""
    codes = set()
    for topic in topics:
        try:
            codes.add(compare(topic))
        except Exception as error:  # noqa: BLE001 - the other tables are compared
            log.error(
                "table not compared",
                topic=topic,
                error=str(as_tailrace_error(error, "the table cannot be compared")),
            )
            codes.add(FAILED)
    return next(code for code in (DIFFERENT, FAILED, EQUAL) if code in codes)


def print_line(line: Mapping[str, Any]) -> None:
    """Write a JSON line to standard output."""
    sys.stdout.buffer.write(orjson.dumps(line, option=orjson.OPT_APPEND_NEWLINE))
    sys.stdout.buffer.flush()
