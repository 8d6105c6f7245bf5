"""``tailrace verify``: compares the targets of a query with their sources, one table after another.

The source is read by ``tailrace checksums``, one process for the comparison of a table. The halves share the contract
alone, and the command may run on another host. Requests go through its standard input: no name of a column is an
argument, which a shell on another host could read.
"""

from __future__ import annotations

import math
import re
import shlex
import struct
import subprocess
import sys
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryFile
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

import structlog

from tailrace.runtime.errors import ConfigError, TailraceError
from tailrace.schemas.names import watermarks_topic
from tailrace.schemas.verification import (
    BUCKETS,
    NULL,
    BucketSum,
    ChosenKeys,
    ComparedRow,
    ComparedTable,
    Keys,
    Record,
    RepairRequest,
    Request,
    SumsProgress,
    TextForm,
    Window,
    from_line,
    to_line,
)
from tailrace.spark_consumer import session
from tailrace.spark_consumer.app import load_sinks
from tailrace.spark_consumer.config import ConsumerConfig
from tailrace.spark_consumer.errors import SinkError
from tailrace.spark_consumer.sink.base import ComparedSink, SinkContext
from tailrace.spark_consumer.sink.ledger import LEAVE_OUT
from tailrace.spark_consumer.sink.routing import SinkRouter
from tailrace.spark_consumer.source.control import ControlTopic
from tailrace.spark_consumer.source.kafka import READ_COMMITTED
from tailrace.spark_consumer.source.watermarks import SnapshotRuns, SplitEnds
from tailrace.spark_consumer.transform.rules import Rules
from tailrace.spark_consumer.verify.compare import Difference, Outcome, TableComparison, Topics
from tailrace.spark_consumer.verify.run_metrics import DIFFERENT, EQUAL, FAILED, VerifiedTable
from tailrace.spark_consumer.verify.tables import QUERY, chosen_topics, compare_each, open_topics, print_line
from tailrace.spark_consumer.verify.topic_rows import TopicRows

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from tailrace.schemas.table import TableSchema
    from tailrace.spark_consumer.sink.base import Sink

_SHOWN: Final = 2000
_END_S: Final = 30.0
_SHOW_S: Final = 10.0

log = structlog.get_logger(__name__)


class SourceFailedError(TailraceError):
    """The command that reads the source ended with an error, or too early."""


class SourceChecksums:
    """Reads one table; the context ends the process."""

    def __init__(self, command: Sequence[str], topic: str) -> None:
        """``command`` runs ``tailrace checksums`` with the configuration of the producer."""
        self._command, self._topic = [*command, "--topic", topic], topic

    def __enter__(self) -> Self:
        self._errors = TemporaryFile()  # a pipe would have to be read meanwhile
        self._process = subprocess.Popen(
            self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
        )
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self._process.kill()
        with self._process, self._errors:
            try:
                self._process.communicate(timeout=_END_S)
            except subprocess.TimeoutExpired:
                self._process.kill()

    def plan(self) -> ComparedTable:
        """Return what of the table can be compared; the first call."""
        first = self._next()
        assert isinstance(first, ComparedTable)
        return first

    def sums(self, columns: Collection[str], sample: int) -> tuple[dict[int, BucketSum], Window]:
        """Return the sums of the first buckets, of those that have rows."""
        sums: dict[int, BucketSum] = {}
        begun = shown = time.monotonic()
        for record in self._answer(Request(tuple(columns), sample=sample)):
            if isinstance(record, Window):
                return sums, record
            if isinstance(record, SumsProgress):
                if (now := time.monotonic()) > shown + _SHOW_S:
                    rate = round(record.rows / (now - begun))
                    log.info("source read", topic=self._topic, rows=record.rows, of=record.of, rows_per_s=rate)
                    shown = now
                continue
            assert isinstance(record, BucketSum)
            if record.bucket < sample:  # an earlier release sends all
                sums[record.bucket] = record
        raise AssertionError

    def rows(self, columns: Collection[str], keys: Keys, *, texts: bool) -> tuple[dict[str, str], Window]:
        """Return the checksums of some rows, or their texts, by the text of the key."""
        rows: dict[str, str] = {}
        for record in self._answer(Request(tuple(columns), keys, texts)):
            if isinstance(record, Window):
                return rows, record
            assert isinstance(record, ComparedRow)
            if rows.setdefault(record.key, record.content) != record.content:
                raise SourceFailedError(
                    "two rows of the source have one key, and only one of them is in the target",
                    hint=f"name columns in message.key.columns whose values are unique; or {LEAVE_OUT}",
                    topic=self._topic,
                )
        raise AssertionError

    def repair(self, keys: ChosenKeys) -> None:
        """Have the rows of keys read again; on return their records are in the topic."""
        for _ in self._answer(RepairRequest(keys)):
            return

    def _answer(self, request: Request | RepairRequest) -> Iterator[Record]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(to_line(request))
            self._process.stdin.flush()
        except BrokenPipeError:
            raise self._ended() from None
        while True:
            yield self._next()

    def _next(self) -> Record:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line.endswith(b"\n"):
            raise self._ended()
        return from_line(line)

    def _ended(self) -> SourceFailedError:
        try:
            self._process.wait(_END_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
        self._errors.seek(0)
        return SourceFailedError(
            "the source could not be read",
            hint=f"run the command by hand; or {LEAVE_OUT}",
            command=" ".join(self._command),
            topic=self._topic,
            answer=self._errors.read()[-_SHOWN:].decode(errors="replace").strip(),
        )


_NOT_REPAIRED: Final = frozenset({"hudi"})
"""Sinks for which no test shows that their targets take the rows that are read again."""


@dataclass(frozen=True, slots=True)
class VerifyOptions:
    """What is compared, and how."""

    source: Sequence[str]
    """The command of the source, with its configuration."""
    tables: str = ""
    """A regular expression of ``db.table``; empty: all tables of the query."""
    wait_s: float = 600.0
    repair: bool = False
    """Whether the rows of keys that differ are read again."""
    topics: bool = False
    """Whether the topics are compared, and not the targets."""
    sample: int = BUCKETS
    """How many buckets of keys are compared."""
    metrics: Path | None = None
    """The file that gets the metrics of the run."""


def source_command(command: str | None, config: str) -> list[str]:
    """Return the command that reads the source."""
    given = [sys.executable, "-m", "tailrace.producer"] if command is None else shlex.split(command)
    return [*given, "checksums", "--config", config]


def sample_size(text: str) -> int:
    """Return how many buckets a percentage is, at least one. Raises ConfigError for another text."""
    found = re.fullmatch(r"(\d{1,3}(?:\.\d{1,4})?)%", text, re.ASCII)
    percent = float(found[1]) if found else 0.0
    if not 0 < percent <= 100:
        raise ConfigError([f"--sample {text!r} is no percentage such as 1% or 0.5%, of at most 100%"])
    return max(1, math.ceil(BUCKETS * percent / 100))


def verify(config: ConsumerConfig, options: VerifyOptions) -> int:
    """Compare in a session of its own; return the exit code."""
    sinks = [sink.plugin for sink in load_sinks(config)]
    if options.repair and not options.topics and any(plugin.name in _NOT_REPAIRED for plugin in sinks):
        raise ConfigError(
            ["--repair: targets of the sink hudi are not repaired yet; compare without it, and load the table again"]
        )
    spark = session.build(config, sinks)
    try:
        return compare_tables(spark, config, options)
    finally:
        spark.stop()


def compare_tables(spark: SparkSession, config: ConsumerConfig, options: VerifyOptions) -> int:
    """Compare the tables; print a line for each key that differs, and log a line for each table."""
    with _opened(spark, config, options) as (names, sink_of, topics):

        def compare(topic: str) -> VerifiedTable:
            topics.reading.schemas.refresh(spark)
            schema = topics.reading.schemas.versions(topic)[-1]
            if not options.topics:
                _require_equal_shape(config.transforms.rules, schema)
            with SourceChecksums(options.source, topic) as source:
                compared = TableComparison(spark, source, sink_of(topic), schema, topics, wait_s=options.wait_s)
                return _log(topic, compared.run(_print, repair=options.repair, sample=options.sample), options.sample)

        return compare_each(names, compare, options.metrics)


def _require_equal_shape(rules: Rules, schema: TableSchema) -> None:
    name = schema.database, schema.table
    if rules.transform_of(*name) is not None or rules.target_of(*name) != name:
        raise SinkError("tables with a transform or a route are not compared yet", hint=LEAVE_OUT, topic=schema.topic)


def _print(plan: ComparedTable, columns: Collection[str], difference: Difference) -> None:
    print_line(shown_difference(plan, columns, difference))


def _log(topic: str, result: Outcome, sample: int) -> VerifiedTable:
    differs, undecided = result.different.total(), result.undecided
    if result.excluded:
        log.warning("columns not compared", topic=topic, columns=dict(result.excluded))
    log.info(
        "table compared",
        topic=topic,
        result="different" if differs else "not decided" if undecided else "equal",
        rows=result.rows,
        **result.different,
        not_decided=undecided,
        **({"compared": f"{sample} of {BUCKETS} buckets of keys"} if sample < BUCKETS else {}),
        **({"repaired": result.repaired} if result.repaired else {}),
    )
    code = DIFFERENT if differs else FAILED if undecided else EQUAL
    return VerifiedTable(code, result.rows, sample, result.different, undecided)


def shown_difference(plan: ComparedTable, columns: Collection[str], difference: Difference) -> dict[str, Any]:
    """Return a difference as it is printed: with the rows that differ, without their key columns.

    If each side has one row, without the columns that are equal. ``columns`` are those that are compared.
    """
    forms = {column.name: column.form for column in plan.columns}
    key = {name: _shown(forms[name], text) for name, text in zip(plan.key, difference.key.split(","), strict=True)}
    line: dict[str, Any] = {"topic": plan.topic, "difference": difference.kind, "key": key}
    if difference.rows is None:
        return line
    names = [column.name for column in plan.columns if column.name in columns]
    row, found = difference.rows
    texts = [dict(zip(names, text.split(","), strict=True)) for text in (row, *found) if text is not None]
    equal = {name for name in names if len({text[name] for text in texts}) == 1} if len(texts) > 1 else set()
    shown = [
        {name: _shown(forms[name], value) for name, value in text.items() if name not in equal | key.keys()}
        for text in texts
    ]
    if row is not None:
        line["source"] = shown.pop(0)
    if found:
        line["target"] = shown[0] if len(shown) == 1 else shown
    return line


def _shown(form: TextForm, text: str) -> Any:
    """Return a value from its text; of bytes that are no UTF-8 the digits, of a value that can be long its SHA-256."""
    if text == NULL:
        return None
    if form is TextForm.INTEGER:
        return int(text)
    if form is TextForm.DOUBLE:
        return struct.unpack(">d", bytes.fromhex(text))[0]
    if form in {TextForm.DIGEST, TextForm.GEOMETRY}:
        return {"sha256": text}
    if form is not TextForm.BYTES:
        return text
    try:
        return bytes.fromhex(text).decode()
    except UnicodeDecodeError:
        return {"hex": text}


@contextmanager
def _opened(
    spark: SparkSession, config: ConsumerConfig, options: VerifyOptions
) -> Iterator[tuple[Sequence[str], Callable[[str], ComparedSink], Topics]]:
    """Yield the topics of the tables, the function to the sink of one, and what reads topics; the sinks are closed."""
    topics = chosen_topics(spark, config, options.tables)
    client, prefix = config.kafka_client, config.topic_prefix
    watermarks = watermarks_topic(prefix)
    router = SinkRouter(load_sinks(config), prefix)
    opened: dict[str, Sink] = {}
    with open_topics(spark, config, topics) as (reading, ids, policies):
        context = SinkContext(
            query_id=QUERY,
            prefix=prefix,
            client=client,
            runs=SnapshotRuns(ControlTopic(watermarks, client)),
            topic_id=ids.get,
        )
        compared = replace(reading, is_compacted=lambda _: True)
        topics_read = Topics(compared, SplitEnds(ControlTopic(watermarks, client, READ_COMMITTED)))

        def sink_of(topic: str) -> ComparedSink:
            if options.topics:
                policies.read(spark, [topic])
                return TopicRows(reading, ids, partial(topics_read.created, spark))
            sink = router.of(topic)
            if sink.name not in opened:
                opened[sink.name] = sink.open(spark, context)
            target = opened[sink.name]
            if not isinstance(target, ComparedSink):
                raise SinkError(f"targets of the sink {sink.plugin.name} are not compared yet", hint=LEAVE_OUT)
            return target

        try:
            yield topics, sink_of, topics_read
        finally:
            for each in opened.values():
                each.close()
