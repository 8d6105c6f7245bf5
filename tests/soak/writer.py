"""Random writers: transactions over all tables, XA transactions, and DDL, through every fault."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Final, Self

import pymysql
from pymysql.constants import ER

from tests.soak import moving
from tests.soak.ddl import change_created, run_random
from tests.soak.tables import TABLES, change
from tests.support.tcp_proxy import TcpProxy

_ERRORS: Final = (pymysql.MySQLError, OSError)


class Writers:
    """Threads that write while the context is open; errors of a server that is down are expected."""

    def __init__(self, proxy: TcpProxy, login: dict[str, Any], *, seed: int, rows: int, xa: bool) -> None:
        """``xa``: also XA transactions; without them also TRUNCATE."""
        self._proxy = proxy
        self._login = login
        self._rows = rows
        self._xa = xa
        self._truncate = not xa
        self._stop = threading.Event()
        self._resume = threading.Event()
        self._idle = [threading.Event() for _ in range(3)]
        self._threads = [
            threading.Thread(target=self._write, args=(seed * 10 + number, idle), name=f"writer-{number}")
            for number, idle in enumerate(self._idle)
        ]
        self.transactions = 0

    def __enter__(self) -> Self:
        self._resume.set()
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        self._resume.set()
        for thread in self._threads:
            thread.join()

    def pause(self) -> None:
        """Return when no transaction is open."""
        self._resume.clear()
        for idle in self._idle:
            idle.wait()

    def resume(self) -> None:
        """Write again."""
        for idle in self._idle:
            idle.clear()
        self._resume.set()

    def _write(self, seed: int, idle: threading.Event) -> None:
        rng = random.Random(seed)
        session: Any = None
        while not self._stop.is_set():
            if not self._resume.is_set():
                idle.set()
                self._resume.wait()
                continue
            try:
                if session is None:
                    session = pymysql.connect(host=self._proxy.host, port=self._proxy.port, **self._login)
                session = self._transaction(session, rng)
            except _ERRORS:
                if session is not None:
                    with suppress(*_ERRORS):
                        session.close()
                session = None
            self._stop.wait(0.1)
        if session is not None:
            with suppress(*_ERRORS):
                session.close()
        idle.set()

    def _transaction(self, session: Any, rng: random.Random) -> Any:
        """Run one transaction, or another statement. Return the session, None if it was closed."""
        with session.cursor() as cursor:
            kind = rng.random()
            if kind < 0.015:
                run_random(cursor, rng, self._login["database"], truncate=self._truncate)
                return session
            if kind < 0.025:
                change_created(cursor, rng)
                return session
            prepared = self._xa and kind < 0.12
            form = rng.choice(("one session", "other session", "one phase"))
            xid = f"x{rng.randrange(10**12)}"
            cursor.execute(f"XA START '{xid}'" if prepared else "START TRANSACTION")
            for table in rng.sample(TABLES, rng.randint(1, 3)):
                for _ in range(rng.choice((1, 1, 2, 20))):
                    change(cursor, table, rng, self._rows)
            if rng.random() < 0.2:
                self._change_moving(cursor, rng)
            commit = rng.random() < 0.9
            if prepared:
                cursor.execute(f"XA END '{xid}'")
                if form == "one phase":
                    cursor.execute(f"XA COMMIT '{xid}' ONE PHASE")
                else:
                    cursor.execute(f"XA PREPARE '{xid}'")
                    self._stop.wait(rng.random() / 5)
                    if form == "other session":
                        session.close()
                        session = pymysql.connect(host=self._proxy.host, port=self._proxy.port, **self._login)
                    with session.cursor() as committing:
                        commit_elsewhere(committing, f"XA {'COMMIT' if commit else 'ROLLBACK'} '{xid}'")
            else:
                cursor.execute("COMMIT" if commit else "ROLLBACK")
            self.transactions += 1
        return session

    def _change_moving(self, cursor: Any, rng: random.Random) -> None:
        table = f"{moving.moving(self._login['database'])}.{rng.choice(moving.NAMES)}"
        try:
            moving.change(cursor, rng, table)
        except pymysql.err.ProgrammingError as error:
            if error.args[0] != ER.NO_SUCH_TABLE:
                raise


def commit_elsewhere(cursor: Any, statement: str) -> None:
    """End a prepared XA transaction. The server may not have noticed yet that the session that prepared it is gone."""
    until = time.monotonic() + 30
    while True:
        try:
            cursor.execute(statement)
        except pymysql.err.OperationalError as error:
            if error.args[0] != ER.XAER_NOTA or time.monotonic() > until:
                raise
            time.sleep(0.02)
        else:
            return


def finish_prepared(cursor: Any) -> None:
    """Commit the prepared XA transactions whose writers have lost their connection."""
    cursor.execute("XA RECOVER")
    xids: Sequence[Any] = cursor.fetchall()
    for _, _, _, xid in xids:
        with suppress(pymysql.MySQLError):
            cursor.execute(f"XA COMMIT '{xid if isinstance(xid, str) else xid.decode()}'")
