"""One round: a new database and prefix, a producer, random writers, faults one after another, then the comparison."""

from __future__ import annotations

import argparse
import json
import random
import re
import time
from collections import Counter
from contextlib import ExitStack, suppress
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple
from urllib.error import URLError
from urllib.request import urlopen

import pymysql

from tests.embedded.kafka import KafkaBroker
from tests.embedded.supervised import free_port
from tests.soak.audit import BinlogAudit
from tests.soak.ddl import away
from tests.soak.faults import (
    FAULTS,
    SIGNALS,
    XA_FAULTS,
    RoundContext,
    SoakError,
    SupervisedProcess,
    resume_snapshots,
    stop_producer,
)
from tests.soak.gtids import Gtids
from tests.soak.moving import moving, source_rows, verify_moving
from tests.soak.moving_faults import MOVING, XA_MOVING, impossible, include
from tests.soak.tables import FORMER, TABLES, Row, from_source, key_text
from tests.soak.verify import Verdict, total, verify
from tests.soak.writer import Writers, finish_prepared
from tests.support.incremental_checks import pending_requests
from tests.support.producer_log import complaints
from tests.support.replication import Cluster
from tests.support.tcp_proxy import TcpProxy

RECOVERY_S: Final = 180.0
"""A fault that is not survived within this time ends the soak with an error."""


class RoundResult(NamedTuple):
    """The faults of a round, the longest recovery in seconds, and what the topics show."""

    faults: Counter[str]
    signals: Counter[str]
    longest_s: float
    slowest: str
    transactions: int
    ends: Counter[str]
    takeover_s: float
    verdict: Verdict


class Round:
    """A running round."""

    def __init__(
        self, number: int, options: argparse.Namespace, cluster: Cluster, broker: KafkaBroker, folder: Path
    ) -> None:
        """``options`` has ``seed`` and ``rows``."""
        seed = options.seed
        self.rng = random.Random(f"{seed}/{number}")
        self.number = number
        self._rows = options.rows
        self.cluster = cluster
        self._broker = broker
        self._folder = folder / f"round{number}"
        self._folder.mkdir()
        self.database = f"soak_{seed}_{number}"
        self.prefix = f"soak{seed}x{number}"
        self._port = free_port()
        self.audit: BinlogAudit
        # Before 8.0.29 a crash between XA PREPARE and its binlog event leaves server and binlog different.
        self.has_xa = number % 2 == 1

    def run(self, faults: int, until: float) -> RoundResult:
        """Run until so many faults happened, or the time (monotonic) is over."""
        with ExitStack() as stack:
            # Writers and producer use one address; a failover moves it to the other server.
            proxy = stack.enter_context(TcpProxy(self.cluster.primary.port))
            self._fill()
            self._broker.create_topic(f"{self.prefix}-signal")
            settings = self._settings(proxy)
            producer = SupervisedProcess(settings, self._folder)
            stack.enter_context(producer)
            login: dict[str, Any] = {
                "user": "root",
                "password": self.cluster.primary.password,
                "database": self.database,
            }
            login |= {"autocommit": True, "charset": "utf8mb4"}
            # A prepared transaction whose writer lost its connection holds its locks until the faults are over.
            login["init_command"] = "SET lock_wait_timeout = 3, innodb_lock_wait_timeout = 3"
            seed = self.rng.randrange(10**6)
            writers = stack.enter_context(Writers(proxy, login, seed=seed, rows=self._rows, xa=self.has_xa))
            context = RoundContext(self, self._broker, proxy, producer, writers, settings, self._folder)
            seen, signals = Counter[str](), Counter[str]()
            longest, slowest = 0.0, ""
            while seen.total() < faults and time.monotonic() < until:
                names = self._burst(context, seen, signals, until)
                started = time.monotonic()
                self._recovered(context, names)
                if time.monotonic() - started > longest:
                    longest, slowest = time.monotonic() - started, names
            writers.pause()
            if include(context):
                stop_producer(context)
            resume_snapshots(context)
            with self._session() as session, session.cursor() as cursor:
                finish_prepared(cursor)
            self._recovered(context, "the end of the round")
            self._idle(context)
            context.producer.stop()
            transactions = writers.transactions
        self.audit.read(self.cluster.primary)
        first = Gtids(self._first_offset())
        with self._session() as session:
            moved = source_rows(session, self.database)
        verdict = verify(
            self._broker.bootstrap, self.prefix, self.database, self._source(), audit=self.audit, first_offset=first
        )
        others = verify_moving(self._broker, self.prefix, self.database, moved, audit=self.audit)
        takeover = max(context.takeovers, default=0.0)
        return RoundResult(
            seen, signals, longest, slowest, transactions, context.ends, takeover, total([verdict, *others])
        )

    def _burst(self, context: RoundContext, seen: Counter[str], signals: Counter[str], until: float) -> str:
        """Make some faults, each while the recovery from the one before may be under way; return their names."""
        available = {**XA_FAULTS, **XA_MOVING} if self.has_xa else {**FAULTS, **MOVING}
        names: list[str] = []
        for _ in range(self.rng.choice((1, 4, 8, 10, 12, 16))):
            if self.rng.random() < 0.3:
                name = self.rng.choice(sorted(SIGNALS))
                SIGNALS[name](context)
                signals[name] += 1
                names.append(name)
            # A broker takes long to start; the other faults have more to break meanwhile.
            possible = sorted(available)
            weights = [1 if name == "kill_kafka" else 4 for name in possible]
            [name] = self.rng.choices(possible, weights)
            with (self._folder / "faults.txt").open("a") as file:
                file.write(f"{datetime.now(UTC):%H:%M:%S} {name}\n")
            try:
                available[name](context)
            except pymysql.err.OperationalError as error:
                if not impossible(error):
                    raise
                continue
            seen[name] += 1
            names.append(name)
            if time.monotonic() >= until:
                break
            time.sleep(self.rng.random())
        return ", ".join(names)

    def _first_offset(self) -> str:
        """Return the GTIDs at which the stream began; a start that stored nothing is repeated, maybe by the other."""
        logs = [log.read_text() for log in self._folder.rglob("producer.log")]
        lines = [line for text in logs for line in text.splitlines() if '"event":"the stream starts at the end' in line]
        return str(max(map(json.loads, lines), key=lambda line: str(line["timestamp"]))["gtids"])

    def status(self) -> dict[str, Any]:
        """Return the status of the producer; {} if it does not answer."""
        try:
            with urlopen(f"http://127.0.0.1:{self._port}/status", timeout=5) as answer:
                return dict(json.load(answer))
        except (URLError, OSError, ValueError):
            return {}

    def _settings(self, proxy: TcpProxy) -> dict[str, str]:
        return {
            "database.hostname": proxy.host,
            "database.port": str(proxy.port),
            "database.user": self.cluster.primary.capture_user,
            "database.password": self.cluster.primary.capture_password,
            "database.server.id": str(20_000 + self.number),
            "topic.prefix": self.prefix,
            "database.include.list": f"{self.database},{moving(self.database)}",
            "bootstrap.servers": self._broker.bootstrap,
            "snapshot.max.threads": "2",
            "incremental.snapshot.chunk.size": "100",
            "decimal.handling.mode": "string",
            "skipped.operations": "none",
            # TRUNCATE has an order to changes only within its partition.
            "topic.creation.default.partitions": "3" if self.has_xa else "1",
            "signal.enabled.channels": "kafka",
            "signal.kafka.topic": f"{self.prefix}-signal",
            "tailrace.http.port": str(self._port),
        }

    def _fill(self) -> None:
        with pymysql.connect(**self._root()) as session, session.cursor() as cursor:
            cursor.execute(f"CREATE DATABASE {self.database}")
            cursor.execute(f"CREATE DATABASE {away(self.database)}")
            cursor.execute(f"CREATE DATABASE {moving(self.database)}")
            cursor.execute("SELECT @@global.gtid_executed")
            self.audit = BinlogAudit(cursor.fetchone()[0], 30_000 + self.number)
            cursor.execute(f"USE {self.database}")
            for table in TABLES:
                cursor.execute(table.create())
                columns = ", ".join((*table.key_columns, "v", "n", "d"))
                marks = ", ".join(["%s"] * (len(table.key_columns) + 3))
                values = [(*table.key(n), f"v{n}", n, "2023-01-02 03:04:05") for n in range(self._rows)]
                cursor.executemany(f"INSERT IGNORE INTO {table.name} ({columns}) VALUES ({marks})", values)
        self.cluster.wait_replicated()

    def _root(self) -> dict[str, Any]:
        primary = self.cluster.primary
        return {"host": primary.host, "port": primary.port, "user": "root", "password": primary.password} | {
            "autocommit": True,
            "charset": "utf8mb4",
        }

    def _session(self) -> Any:
        return pymysql.connect(**self._root(), database=self.database)

    def _recovered(self, context: RoundContext, what: str) -> None:
        """Wait until the producer has written everything, with no transaction prepared."""
        if what == "the end of the round" or self.has_xa:
            with self._session() as session, session.cursor() as cursor:
                finish_prepared(cursor)
        self.wait_read(context, what)

    def wait_read(self, context: RoundContext, what: str) -> None:
        """Wait until the producer has written everything that was committed when the fault was over."""
        with self._session() as session, session.cursor() as cursor:
            cursor.execute("SELECT @@global.gtid_executed")
            wanted = cursor.fetchone()[0]
            until = time.monotonic() + RECOVERY_S
            while time.monotonic() < until:
                if not context.producer.running():
                    context.start()
                stream = self.status().get("stream") or {}
                cursor.execute("SELECT GTID_SUBSET(%s, %s)", (wanted, stream.get("gtids") or ""))
                if cursor.fetchone()[0]:
                    return
                time.sleep(0.2)
        raise self._error(context, f"not recovered within {RECOVERY_S:.0f} s from: {what}; missing: {wanted}")

    def _idle(self, context: RoundContext) -> None:
        """Wait until all snapshots are complete and the last change is written."""
        until = time.monotonic() + RECOVERY_S
        while time.monotonic() < until:
            status = self.status()
            tables = status.get("tables") or {}
            if tables and not self._unread() and not pending_requests(self._broker, self.prefix):
                self._recovered(context, "the end of the round")
                return
            time.sleep(0.2)
        raise self._error(context, "a snapshot does not end")

    def _unread(self) -> dict[str, Any]:
        tables = self.status().get("tables") or {}
        return {name: table for name, table in tables.items() if table["mode"] != "streaming"}

    def _error(self, context: RoundContext, what: str) -> SoakError:
        """Return an error that shows what the producer said: the log may be gone when it is read."""
        return SoakError(
            f"round {self.number}: {what}; stream: {self.status().get('stream')}; tables: "
            f"{self._unread()}; ends: {dict(context.ends)}; log: {context.log}\n{complaints(context.log)}"
        )

    def _source(self) -> dict[str, dict[str, Row]]:
        """Return the rows of all tables; the former table of an online schema change is not captured."""
        found: dict[str, dict[str, Row]] = {}
        with self._session() as session, session.cursor(pymysql.cursors.DictCursor) as cursor:
            cursor.execute("SHOW TABLES")
            names = [name for row in cursor.fetchall() for name in row.values()]
            for name in names:
                if re.fullmatch(rf"_.*_({FORMER})", name):
                    continue
                cursor.execute(f"SELECT * FROM {name}")
                rows = [from_source(row) for row in cursor.fetchall()]
                found[name] = {key_text(name, row): row for row in rows}
            for database in (self.database, away(self.database), moving(self.database)):
                with suppress(pymysql.MySQLError):
                    cursor.execute(f"DROP DATABASE {database}")
        return found
