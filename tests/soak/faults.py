"""The faults of a soak. Each returns when the fault is over; the producer may still be recovering."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson
import pymysql

from tests.bench.usage import descendants
from tests.embedded.kafka import KafkaBroker
from tests.soak.moving import COPIED, NAMES, moving
from tests.soak.tables import TABLES
from tests.soak.writer import Writers, finish_prepared
from tests.support.capture import CaptureProcess
from tests.support.incremental_checks import send
from tests.support.replication import Cluster, follow, run
from tests.support.tcp_proxy import TcpProxy

if TYPE_CHECKING:
    from tests.soak.round import Round


TAKEOVER_S: Final = 60.0
"""How long an instance may go on after another one was started, on a machine that is busy with both."""


class SoakError(Exception):
    """The producer did not recover, or ended without an error."""


class SupervisedProcess(CaptureProcess):
    """A producer that may end at any time; the soak starts it again."""

    def failure(self) -> BaseException | None:
        """Return None: a fault that waits for something else goes on."""
        return None


def last_error(log: bytes) -> str:
    """Return the error with which a producer has ended the last time; empty if there is none."""
    ends = [line for line in log.splitlines() if b'"level":"critical"' in line]
    return str(orjson.loads(ends[-1])["error"]) if ends else ""


@dataclass
class RoundContext:
    """What a fault can break."""

    round: Round
    broker: KafkaBroker
    proxy: TcpProxy
    producer: CaptureProcess
    writers: Writers
    settings: dict[str, str]
    folder: Path
    ends: Counter[str] = field(default_factory=Counter)
    """The errors with which the producer ended by itself; a supervisor starts it again."""
    takeovers: list[float] = field(default_factory=list)
    """How long after the start of a second instance the first one ended, in seconds."""
    signals: int = 0
    read: int = 0
    """How much of the log earlier ends have written."""

    @property
    def cluster(self) -> Cluster:
        """The primary and its replica."""
        return self.round.cluster

    @property
    def log(self) -> Path:
        """The log of the producer."""
        return self.producer.log

    def start(self) -> None:
        """Start the producer again, which has ended by itself: it must have said why."""
        written = self.log.read_bytes()[self.read :]
        self.read += len(written)
        error = last_error(written)
        if not error:
            text = written.decode(errors="replace")
            raise SoakError(f"the producer ended without an error; log: {self.log}\n{text[-2000:]}")
        self.ends[re.sub(r"\d+", "N", error)[:400]] += 1
        self.producer.start()

    def pids(self) -> list[int]:
        """Return the process and its readers."""
        return [self.producer.pid, *descendants(self.producer.pid)] if self.producer.running() else []


def kill_producer(context: RoundContext) -> None:
    """SIGKILL of the producer; a supervisor starts it again."""
    if context.producer.running():
        context.producer.kill()
    context.producer.start()


def stop_producer(context: RoundContext) -> None:
    """SIGTERM and a new start."""
    if context.producer.running() and context.producer.stop() != 0:
        context.start()
    else:
        context.producer.start()


def kill_reader(context: RoundContext) -> None:
    """SIGKILL of a child process: a snapshot reader, if one is running."""
    readers = context.pids()[1:]
    if readers:
        with suppress(ProcessLookupError):
            os.kill(context.round.rng.choice(readers), signal.SIGKILL)


def pause_producer(context: RoundContext) -> None:
    """SIGSTOP of all processes for some seconds, then SIGCONT."""
    pids = context.pids()
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    time.sleep(context.round.rng.uniform(0.2, 3))
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def drop_connections(context: RoundContext) -> None:
    """All connections to the source break."""
    context.proxy.drop_connections()


def kill_sessions(context: RoundContext) -> None:
    """KILL of every session of the capture user."""
    for (session,) in run(
        context.cluster.primary,
        f"SELECT ID FROM information_schema.PROCESSLIST WHERE USER = '{context.cluster.primary.capture_user}'",
    ):
        with suppress(pymysql.MySQLError):
            run(context.cluster.primary, f"KILL {session}")


def kill_mysql(context: RoundContext) -> None:
    """SIGKILL and restart of the source."""
    context.cluster.primary.kill()
    context.cluster.primary.start()


def restart_mysql(context: RoundContext) -> None:
    """Shutdown and restart of the source."""
    context.cluster.primary.stop()
    context.cluster.primary.start()


def kill_kafka(context: RoundContext) -> None:
    """SIGKILL and restart of the broker."""
    context.broker.kill()
    context.broker.start()


def rotate_and_purge(context: RoundContext) -> None:
    """Rotate the binlog, and purge what the producer has read.

    A binlog must be kept until the end of each XA transaction that it prepares is read (docs/operations.md).
    """
    primary = context.cluster.primary
    run(primary, "FLUSH BINARY LOGS")
    prepared = run(primary, "XA RECOVER") if context.round.has_xa else ()
    [(executed,)] = run(primary, "SELECT @@global.gtid_executed")
    context.round.audit.read(primary)
    context.cluster.wait_replicated()
    stream = context.round.status().get("stream") or {}
    if not stream.get("file") or prepared:
        return
    # Of the transactions that were prepared before, the end is among what was executed then.
    [(ended,)] = run(primary, f"SELECT GTID_SUBSET('{executed}', '{stream.get('gtids') or ''}')")
    if ended or not context.round.has_xa:
        with suppress(pymysql.MySQLError):
            run(primary, f"PURGE BINARY LOGS TO '{stream['file']}'")


def fail_over(context: RoundContext) -> None:
    """The replica becomes the primary, under the same address; the old primary follows it."""
    context.writers.pause()
    old, new = context.cluster
    with old.connect() as session, session.cursor() as cursor:
        finish_prepared(cursor)
    context.cluster.wait_replicated()
    run(new, "STOP SLAVE", "RESET SLAVE ALL")
    context.proxy.move(new.port)
    context.round.cluster = Cluster(new, old)
    follow(old, new)
    context.writers.resume()


REPLACED: Final = b"another producer with this topic.prefix has taken over"


def second_instance(context: RoundContext) -> None:
    """A second instance starts and takes over: the first one, if it runs, ends with an error that says so."""
    ran = bool(context.round.status().get("stream"))
    other = SupervisedProcess({**context.settings, "tailrace.http.port": "0"}, context.folder / "second")
    before = len(context.log.read_bytes())
    other.start()
    started = time.monotonic()
    while other.running() and context.producer.running() and time.monotonic() < started + TAKEOVER_S:
        time.sleep(0.1)
    both = other.running() and context.producer.running()
    taken = other.running() and REPLACED in context.log.read_bytes()[before:]
    lost = ran and not other.running() and REPLACED.decode() in last_error(other.log.read_bytes())
    other.kill()
    if both or lost:
        what = "ends the second one" if lost else f"runs for {TAKEOVER_S:.0f} s after the second one was started"
        raise SoakError(f"the first instance {what}; logs: {context.log}, {other.log}")
    if taken:
        context.takeovers.append(time.monotonic() - started)
    if not context.producer.running():
        context.start()


_HOSTILE: Final = (
    b"{",
    b"[]",
    b"\xff",
    b"[" * 5_000,
    b'{"id":"' + b"x" * 300 + b'","type":"log","data":{"message":"m"}}',
    b'{"id":1,"type":"execute-snapshot","data":{"data-collections":5}}',
    b'{"id":"h","type":"execute-snapshot","data":{"data-collections":["((a|aa)+)+$"]}}',
    b'{"id":"h","type":"execute-snapshot","data":{"data-collections":["no.such"],"type":"incremental"}}',
    b'{"id":"h","type":"no-such-type","data":{}}',
)
"""Signals that cannot be executed."""

_CONDITIONS: Final = ("", "", "n % 3 = 0", "no_such_column = 1", "n = 1) OR SLEEP(5", "v LIKE 'u%'")
"""Of these, one names no column, and one is no predicate."""


def hostile_signal(context: RoundContext) -> None:
    """A signal that is no signal."""
    send(context.broker, context.settings["topic.prefix"], context.round.rng.choice(_HOSTILE))


def incremental_snapshot(context: RoundContext) -> None:
    """A signal for an incremental snapshot of a table, or of the rows that meet a condition."""
    send_signal(context, "execute-snapshot", _any_table(context), condition=context.round.rng.choice(_CONDITIONS))


def stop_snapshot(context: RoundContext) -> None:
    """A signal that stops the incremental snapshot of a table."""
    send_signal(context, "stop-snapshot", _any_table(context))


def pause_snapshots(context: RoundContext) -> None:
    """A signal that pauses incremental snapshots; later signals wait."""
    send_signal(context, "pause-snapshot")


def resume_snapshots(context: RoundContext) -> None:
    """A signal that resumes incremental snapshots."""
    send_signal(context, "resume-snapshot")


def _any_table(context: RoundContext) -> str:
    names = [f"{context.round.database}.{table.name}" for table in TABLES]
    names += [f"{moving(context.round.database)}.{name}" for name in (*NAMES, COPIED)]
    return context.round.rng.choice(names)


def send_signal(context: RoundContext, kind: str, table: str = "", *, condition: str = "") -> None:
    """Send a signal, of ``database.table`` or of no table."""
    context.signals += 1
    data: dict[str, object] = {"data-collections": [table]} if table else {}
    if condition:
        data["additional-conditions"] = [{"data-collection": table, "filter": condition}]
    value = {"id": f"soak-{context.signals}", "type": kind, "data": {**data, "type": "incremental"}}
    send(context.broker, context.settings["topic.prefix"], orjson.dumps(value))


Fault = Callable[[RoundContext], None]

_ALWAYS: Final[tuple[Fault, ...]] = (
    kill_producer,
    stop_producer,
    kill_reader,
    pause_producer,
    drop_connections,
    kill_sessions,
    restart_mysql,
    kill_kafka,
    rotate_and_purge,
    fail_over,
    second_instance,
    hostile_signal,
)
XA_FAULTS: Final[Mapping[str, Fault]] = {fault.__name__: fault for fault in _ALWAYS if fault is not restart_mysql}
"""Faults of a round with XA transactions."""
FAULTS: Final[Mapping[str, Fault]] = {fault.__name__: fault for fault in (*_ALWAYS, kill_mysql)}
"""Faults of a round without XA transactions."""

SIGNALS: Final[Mapping[str, Fault]] = {
    sent.__name__: sent for sent in (incremental_snapshot, stop_snapshot, pause_snapshots, resume_snapshots)
}
"""No faults; sent between them."""
