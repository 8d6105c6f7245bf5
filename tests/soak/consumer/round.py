"""One round: a new database and prefix, a producer, a consumer, random writers, faults, then the comparison."""

from __future__ import annotations

import random
import shutil
import time
from collections import Counter
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pymysql

from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.spark_cluster import SparkCluster
from tests.soak.consumer.faults import CLUSTER_FAULTS, FAULTS, ConsumerContext
from tests.soak.consumer.process import LocalConsumer, stop
from tests.soak.consumer.progress import has_applied, parked_reason, stable_ends
from tests.soak.consumer.verify import ConsumerVerdict, verify
from tests.soak.tables import TABLES, Row, change, from_source, key_text
from tests.spark.running import settings
from tests.support.background_writes import writing
from tests.support.capture import CaptureProcess, properties
from tests.support.database import Database
from tests.support.driver_process import DriverProcess
from tests.support.submitted import SubmittedConsumer
from tests.support.topics import read_topic

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

RECOVERY_S: Final = 900.0
"""A fault that is not survived within this time ends the soak; generous for a machine that is busy with other work."""

CHOSEN: Final = tuple(table for table in TABLES if table.name in {"by_integer", "by_text", "by_two", "by_decimal"})
LOSES_TOPIC: Final = "by_decimal"
"""The table whose topic is deleted."""


class ConsumerRound(NamedTuple):
    """What happened in a round."""

    faults: Counter[str]
    longest_s: float
    slowest: str
    starts: int
    verdict: ConsumerVerdict


class NotRecoveredError(Exception):
    """The consumer did not recover."""


class Plan(NamedTuple):
    """What a round does."""

    number: int
    seed: int
    rows: int
    faults: int
    until: float
    """Monotonic time after which no fault is made."""
    script: tuple[str, ...] = ()
    """The faults, in one burst, instead of random ones."""
    deletes_topic: bool = True


class Running:
    """A running round."""

    def __init__(self, plan: Plan, server: MySqlServer, broker: KafkaBroker, folder: Path) -> None:
        self._plan = plan
        self._server, self._broker = server, broker
        self._folder = folder / f"round{plan.number}"
        self._folder.mkdir()
        self._rng = random.Random(f"consumer/{plan.seed}/{plan.number}")
        self._name = f"consumer_{plan.seed}_{plan.number}"
        self._prefix = f"consumer{plan.seed}x{plan.number}"
        self._database: Database

    def run(self, spark: Callable[[], SparkSession], cluster: SparkCluster | None, archive: Path) -> ConsumerRound:
        """Run; ``spark`` returns the session that reads the tables at the end."""
        with ExitStack() as stack:
            self._database = Database(self._server, self._name)
            stack.callback(self._database.drop)
            self._fill()
            producer = stack.enter_context(CaptureProcess(self._producer(), self._folder / "producer"))
            consumer = self._consumer(cluster, archive)
            context = ConsumerContext(self._rng, self._broker, producer, consumer, self._folder, cluster)
            stack.callback(_end, consumer)
            seen, longest, slowest = Counter[str](), 0.0, ""
            with writing(self._database, self._change, pause_s=0.5):
                context.start()
                self._recovered(context, "the start")
                available = FAULTS if cluster is None else CLUSTER_FAULTS
                while seen.total() < self._plan.faults and time.monotonic() < self._plan.until:
                    names = self._burst(context, available)
                    seen.update(names)
                    started = time.monotonic()
                    self._recovered(context, ", ".join(names))
                    if time.monotonic() - started > longest:
                        longest, slowest = time.monotonic() - started, ", ".join(names)
                if self._plan.deletes_topic:
                    self._delete_topic(context)
                    seen["delete_topic"] += 1
            self._recovered(context, "the end")
            code = stop(consumer)
            if code:
                raise NotRecoveredError(f"the stop at the end gave exit code {code}; log: {consumer.log}")
            verdict = verify(spark(), self._folder / "tables" / self._name, self._source())
            return ConsumerRound(seen, longest, slowest, context.starts, verdict)

    def _burst(self, context: ConsumerContext, available: Any) -> list[str]:
        """Make some faults, each while the recovery from the one before may be under way; return their names."""
        names = sorted(available)
        weights = [available[name][1] for name in names]
        chosen = self._plan.script or self._rng.choices(names, weights, k=self._rng.choice((1, 1, 2, 4)))
        for name in chosen:
            self._note(name)
            available[name][0](context)
            time.sleep(self._rng.choice((0.5, 5, 15)) * self._rng.random())
        return list(chosen)

    def _note(self, name: str) -> None:
        with (self._folder / "faults.txt").open("a", encoding="utf-8") as file:
            file.write(f"{time.strftime('%H:%M:%S', time.gmtime())} {name}\n")

    def _delete_topic(self, context: ConsumerContext) -> None:
        """Delete the topic of one table; the others go on. Then follow the documented remedy."""
        self._note("delete_topic")
        topic = self._topic(LOSES_TOPIC)
        context.producer.kill()
        admin = context.broker.admin()  # a reference: its requests end with it
        admin.delete_topics([topic])[topic].result(60)
        context.producer.start()
        others = [table.name for table in CHOSEN if table.name != LOSES_TOPIC]
        self._recovered(context, "a deleted topic", others)
        until = time.monotonic() + RECOVERY_S
        while "created again" not in (reason := parked_reason(context.checkpoint, topic) or ""):
            if time.monotonic() > until:
                raise NotRecoveredError(f"{topic} was deleted and created again, and its table is not parked: {reason}")
            self._keep_running(context)
            time.sleep(0.5)
        self._recovered(context, "a parked table", others)
        # The query runs, and tries the table from time to time.
        shutil.move(self._folder / "tables" / self._name / LOSES_TOPIC, self._folder / "moved")

    def _recovered(self, context: ConsumerContext, what: str, tables: list[str] | None = None) -> None:
        """Wait until the consumer has applied everything that the source has committed."""
        until = time.monotonic() + RECOVERY_S
        self._wait_captured(context, until, what)
        topics = [self._topic(name) for name in tables or [table.name for table in CHOSEN]]
        wanted = stable_ends(self._broker.bootstrap, topics)
        while not has_applied(context.checkpoint, wanted):
            if time.monotonic() > until:
                raise NotRecoveredError(
                    f"not recovered within {RECOVERY_S:.0f} s from: {what}; log: {context.consumer.log}"
                )
            self._keep_running(context)
            time.sleep(0.2)

    def _keep_running(self, context: ConsumerContext) -> None:
        if not context.consumer.running:
            self._note("the driver had ended; started again")
            context.start()

    def _wait_captured(self, context: ConsumerContext, until: float, what: str) -> None:
        """Wait until the producer has written a mark that is made now."""
        mark = self._rng.randrange(1 << 40)
        self._database.execute("REPLACE INTO by_integer (id, v) VALUES (2000000000, %s)", (str(mark),))
        topic, text = self._topic("by_integer"), f'"{mark}"'.encode()
        while not any(text in (record.value or b"") for record in read_topic(self._broker.bootstrap, topic)):
            if time.monotonic() > until:
                raise NotRecoveredError(f"the producer did not go on after: {what}")
            if not context.producer.running():
                context.producer.start()
            time.sleep(1)

    def _topic(self, table: str) -> str:
        return f"{self._prefix}.{self._name}.{table}"

    def _change(self, cursor: Any, number: int) -> None:
        rng = random.Random(f"{self._plan.seed}/{self._plan.number}/{number}")
        for table in rng.sample(CHOSEN, 2):
            for _ in range(rng.choice((1, 2, 10))):
                change(cursor, table, rng, self._plan.rows)

    def _fill(self) -> None:
        for table in CHOSEN:
            self._database.execute(table.create())
            columns = ", ".join((*table.key_columns, "v", "n", "d"))
            marks = ", ".join(["%s"] * (len(table.key_columns) + 3))
            values = [(*table.key(n), f"v{n}", n, "2023-01-02 03:04:05") for n in range(self._plan.rows)]
            self._database.executemany(f"INSERT IGNORE INTO {table.name} ({columns}) VALUES ({marks})", values)

    def _producer(self) -> dict[str, str]:
        changes = {"tailrace.missing.topic.handling.mode": "snapshot", "topic.creation.default.partitions": "2"}
        return properties(self._server, self._broker, self._prefix, self._name, changes)

    def _consumer(self, cluster: SparkCluster | None, archive: Path) -> DriverProcess:
        own = {"trigger.availableNow": "false", "trigger.processingTime": "1 second", "maxOffsetsPerTrigger": "2000"}
        own |= {"tailrace.parked.table.retry.ms": "10000", "sink.optimize.batches": "5"}
        given = settings(self._broker, self._prefix, self._folder, **own)
        if cluster is None:
            return LocalConsumer(given, self._folder / "driver")
        return SubmittedConsumer(cluster, archive, given, self._folder / "driver")

    def _source(self) -> dict[str, dict[str, Row]]:
        found: dict[str, dict[str, Row]] = {}
        with self._database.connect() as session, session.cursor(pymysql.cursors.DictCursor) as cursor:
            for table in CHOSEN:
                cursor.execute(f"SELECT * FROM {table.name}")
                rows = [from_source(row) for row in cursor.fetchall()]
                found[table.name] = {key_text(table.name, row): row for row in rows}
        return found


def _end(consumer: DriverProcess) -> None:
    if consumer.running:
        consumer.kill()
