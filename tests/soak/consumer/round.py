"""One round: a new database and prefix, a producer, a consumer, random writers, faults, then the comparison."""

from __future__ import annotations

import json
import random
import shutil
import time
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pymysql
from pymysql.constants import ER

from tests.embedded import supervised
from tests.embedded.kafka import KafkaBroker
from tests.embedded.mysql import MySqlServer
from tests.embedded.spark_cluster import SparkCluster
from tests.soak.consumer.context import CHOSEN, ConsumerContext, NotRecoveredError, complaints
from tests.soak.consumer.faults import CLUSTER_FAULTS, FAULTS
from tests.soak.consumer.process import LocalConsumer, stop
from tests.soak.consumer.progress import has_applied, parked_reason, stable_ends
from tests.soak.consumer.stored import damage_sinks
from tests.soak.consumer.targets import forget_tables
from tests.soak.consumer.verify import ConsumerVerdict, verify
from tests.soak.ddl import away
from tests.soak.tables import Row, SoakTable, change, from_source, key_text
from tests.spark.running import settings
from tests.support.background_writes import writing
from tests.support.capture import CaptureProcess, properties
from tests.support.database import Database
from tests.support.driver_process import DriverProcess
from tests.support.submitted import SubmittedConsumer

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

[LOSES_TOPIC] = [table for table in CHOSEN if table.name == "by_decimal"]
"""The table whose topic is deleted."""
OTHERS: Final = tuple(table for table in CHOSEN if table is not LOSES_TOPIC)
_INTERRUPTED: Final = frozenset({ER.NO_SUCH_TABLE, ER.TABLE_DEF_CHANGED, ER.LOCK_DEADLOCK})
"""Errors of a statement whose table is away, or was."""


class ConsumerRound(NamedTuple):
    """What happened in a round."""

    faults: Counter[str]
    longest_s: float
    slowest: str
    starts: int
    verdict: ConsumerVerdict
    complaints: Counter[str]
    """Why tables were parked and drivers ended."""


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
        self._port = supervised.free_port()
        self._deck: list[str] = []
        self._database: Database

    def run(self, spark: Callable[[], SparkSession], cluster: SparkCluster | None, archive: Path) -> ConsumerRound:
        """Run; ``spark`` returns the session that reads the tables at the end."""
        with ExitStack() as stack:
            for name in (away(self._name), self._name):
                self._database = Database(self._server, name)
                stack.callback(self._database.drop)
            self._fill()
            producer = stack.enter_context(CaptureProcess(self._producer(), self._folder / "producer"))

            def new_consumer(folder: Path, checkpoint: Path) -> DriverProcess:
                consumer = self._consumer(cluster, archive, folder, checkpoint)
                stack.callback(_end, consumer)
                return consumer

            context = ConsumerContext(
                self._rng,
                self._broker,
                producer,
                new_consumer(self._folder / "driver", self._folder / "checkpoint"),
                new_consumer,
                self._folder,
                self._database,
                self._prefix,
                spark,
                cluster,
            )
            seen, longest, slowest = Counter[str](), 0.0, ""
            with writing(self._database, self._change, pause_s=0.5):
                context.start()
                self._recovered(context, "the start")
                context.end()
                context.copy()
                context.start()
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
            code = stop(context.consumer)
            if code:
                raise NotRecoveredError(f"the stop at the end gave exit code {code}; log: {context.consumer.log}")
            forget_tables(context)
            verdict = verify(spark(), context.tables, self._source())
            found = complaints(self._folder.glob("driver*/driver.log"))
            return ConsumerRound(seen, longest, slowest, context.starts, verdict, found)

    def _burst(self, context: ConsumerContext, available: Any) -> list[str]:
        """Make some faults, each while the recovery from the one before may be under way; return their names."""
        chosen = self._plan.script or [self._deal(available) for _ in range(self._rng.choice((4, 8, 12, 16)))]
        for name in chosen:
            context.note(name)
            available[name][0](context)
            time.sleep(self._rng.choice((0.5, 5, 15)) * self._rng.random())
        return list(chosen)

    def _deal(self, available: Any) -> str:
        """Return the next fault: each comes as often as its weight says before one comes again."""
        if not self._deck:
            self._deck = [name for name in sorted(available) for _ in range(available[name][1])]
            if not self._has_several_sinks:
                self._deck.remove(damage_sinks.__name__)
            self._rng.shuffle(self._deck)
        return self._deck.pop()

    @property
    def _has_several_sinks(self) -> bool:
        return self._plan.number % 2 == 0

    def _delete_topic(self, context: ConsumerContext) -> None:
        """Delete the topic of one table; the others go on. Then follow the documented remedy."""
        context.note("delete_topic")
        topic = context.topic(LOSES_TOPIC)
        context.producer.kill()
        admin = context.broker.admin()  # a reference: its requests end with it
        admin.delete_topics([topic])[topic].result(60)
        context.producer.start()
        self._recovered(context, "a deleted topic", OTHERS)
        context.wait(
            lambda: "created again" in (parked_reason(context.checkpoint, topic) or ""),
            f"{topic} was deleted and created again, and its table is parked",
        )
        self._recovered(context, "a parked table", OTHERS)
        # The query runs, and tries the table from time to time.
        shutil.move(context.tables / LOSES_TOPIC.name, self._folder / "moved")

    def _recovered(self, context: ConsumerContext, what: str, tables: Iterable[SoakTable] = CHOSEN) -> None:
        """Wait until the consumer has applied everything that the source has committed."""
        context.touch()  # what a target lacks shows when its table has a record
        self._wait_captured(context, what)
        wanted = stable_ends(self._broker.bootstrap, [context.topic(table) for table in tables])
        context.wait(lambda: has_applied(context.checkpoint, wanted), f"recovery from: {what}")

    def _wait_captured(self, context: ConsumerContext, what: str) -> None:
        """Wait until the producer has written what is committed now, and no table waits to be read."""
        [[wanted]] = self._database.execute("SELECT @@global.gtid_executed")

        def captured() -> bool:
            if not context.producer.running():
                context.producer.start()
            status = self._status()
            gtids = (status.get("stream") or {}).get("gtids") or ""
            modes = {table["mode"] for table in (status.get("tables") or {}).values()}
            return modes == {"streaming"} and self._database.execute("SELECT GTID_SUBSET(%s, %s)", (wanted, gtids)) == [
                (1,)
            ]

        context.wait(captured, f"the producer goes on after: {what}")

    def _status(self) -> dict[str, Any]:
        """Return the status of the producer; {} if it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/status", timeout=5) as answer:
                return dict(json.load(answer))
        except (URLError, OSError, ValueError):
            return {}

    def _change(self, cursor: Any, number: int) -> None:
        rng = random.Random(f"{self._plan.seed}/{self._plan.number}/{number}")
        for table in rng.sample(CHOSEN, 2):
            for _ in range(rng.choice((1, 2, 10))):
                try:
                    change(cursor, table, rng, self._plan.rows)
                except pymysql.MySQLError as error:
                    if error.args[0] not in _INTERRUPTED:
                        raise

    def _fill(self) -> None:
        for table in CHOSEN:
            self._database.execute(table.create())
            columns = ", ".join((*table.key_columns, "v", "n", "d"))
            marks = ", ".join(["%s"] * (len(table.key_columns) + 3))
            values = [(*table.key(n), f"v{n}", n, "2023-01-02 03:04:05") for n in range(self._plan.rows)]
            self._database.executemany(f"INSERT IGNORE INTO {table.name} ({columns}) VALUES ({marks})", values)

    def _producer(self) -> dict[str, str]:
        changes = {"tailrace.missing.topic.handling.mode": "snapshot", "topic.creation.default.partitions": "2"}
        changes["tailrace.http.port"] = str(self._port)
        return properties(self._server, self._broker, self._prefix, self._name, changes)

    def _consumer(self, cluster: SparkCluster | None, archive: Path, folder: Path, checkpoint: Path) -> DriverProcess:
        own = {"trigger.availableNow": "false", "trigger.processingTime": "1 second", "maxOffsetsPerTrigger": "2000"}
        own |= {"tailrace.parked.table.retry.ms": "5000", "checkpointLocation": str(checkpoint)}
        given = settings(self._broker, self._prefix, self._folder, sink=None, **own)
        sink = {"sink.path": str(self._folder / "tables"), "sink.optimize.batches": "5"}
        if self._has_several_sinks:
            given["sinks"] = "some,others"
            for name, tables in (("some", r".*\.by_t.*"), ("others", r".*\.by_[^t].*")):
                given |= {f"sinks.{name}.type": "delta", f"sinks.{name}.table.include.list": tables}
                given |= {f"sinks.{name}.{key}": value for key, value in sink.items()}
        else:
            given |= {"sink": "delta", **sink}
        if cluster is None:
            return LocalConsumer(given, folder)
        return SubmittedConsumer(cluster, archive, given, folder)

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
