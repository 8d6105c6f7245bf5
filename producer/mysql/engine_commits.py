"""Waits until a SELECT sees what the binlog has, on MariaDB and on a server without GTIDs.

A transaction is in the binlog before InnoDB commits it. InnoDB lists it until its rows are visible, so the wait takes
three steps: read the end of the binlog, list InnoDB's transactions, wait until those that may be in their commit have
left the list. All that precedes that end is visible then. ``performance_schema.log_status`` would not do: its position
includes transactions that wait for a semi-synchronous replica.

Not every transaction in the list is in its commit. Each of these shows that it was not, or that it has ended:

- its session is idle: what it has committed is visible, as a statement ends behind its commit;
- its session has a state that no commit has: one in its commit waits for the handler, a replica or the binlog;
- it has changed no row, or more rows since;
- it waits for a lock of InnoDB, which no commit does;
- it belongs to no session: it is an XA transaction that is prepared, and what commits it is a statement
  (``xa_commits.py``).

InnoDB makes its list when nobody has read it for a tenth of a second. So each query has a transaction of its own, whose
text in the list says where the binlog ended before: a list with such a text was made later. Readers take turns, and one
list serves all whose end of the binlog is before that. To see that a transaction has left takes a further list. A
reader that is stopped, or lost with its host, may keep its turn for hours: the others go on without it, but less often.

``tests/integration/test_engine_commits.py`` has what this rests on, for each version of the server; ``test_mariadb.py``
for MariaDB.
"""

from __future__ import annotations

import random
import re
import time
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

import structlog
from pymysql.connections import Connection

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.mysql import xa_commits
from tailrace.producer.mysql.connection import binlog_position, query
from tailrace.schemas.sequence import file_number

log = structlog.get_logger(__name__)

_LISTED: Final = (
    "SELECT /* tailrace at {file}:{pos} {number} */ trx_id, trx_mysql_thread_id, trx_rows_modified, trx_state, "
    "p.COMMAND, IF({created}, '', p.STATE), IF(trx_query LIKE 'SELECT /* tailrace at %', LEFT(trx_query, 300), NULL) "
    "FROM information_schema.INNODB_TRX LEFT JOIN information_schema.PROCESSLIST p ON p.ID = trx_mysql_thread_id"
)
_CREATED: Final = (
    "p.STATE = 'Sending data' AND p.INFO NOT LIKE 'SELECT%' "
    "AND (p.INFO LIKE '%CREATE%TABLE%' OR p.INFO LIKE '%EXECUTE%')"
)
"""CREATE TABLE … SELECT shows the same while it reads and while it commits, on MariaDB 10.11 (not on 11.4)."""
_MADE_AT: Final = re.compile(r"SELECT /\* tailrace at (\S+):(\d+) \d+ \*/")
_FIRST_READ_ONLY: Final = 1 << 48
"""InnoDB lists a transaction without changes under a number from here on; newer MariaDB under 0."""
_MOST: Final = 4000
"""Transactions in a list that is surely whole: InnoDB cuts it off at 16 MB."""
_PAUSE_S: Final = 0.11
_TURN: Final = "'tailrace innodb_trx'"
_LOST_S: Final = 5
"""A session that has kept the turn for so long may be gone."""
_PAUSES_WITHOUT_TURN_S: Final = 0.5, 1.5
_IDLE: Final = "Sleep"
_LOCK_WAIT: Final = "LOCK WAIT"
NO_COMMIT: Final = frozenset(
    {
        # Shown while a thread waits, and no longer. A commit takes its metadata lock before it writes to the binlog.
        "User sleep",
        "User lock",
        "Sending to client",
        "Waiting for table metadata lock",
        "Waiting for global read lock",
        "Waiting for commit lock",
        # Shown until the next state. A commit begins with "waiting for handler commit"; that of a prepared XA
        # transaction does not, and is known by its statement.
        "executing",
        "Sending data",
        "updating",
        "copy to tmp table",
        "altering table",
    }
)
"""States of a session in the list of processes, of which none is shown in a commit."""


class _Row(NamedTuple):
    """A transaction as InnoDB lists it, with what its session does now."""

    number: str
    thread: int
    changed: int
    state: str
    command: str | None
    session_state: str | None
    text: str | bytes | None

    @property
    def may_commit(self) -> bool:
        """Whether the transaction may be in its commit."""
        return bool(
            0 < int(self.number) < _FIRST_READ_ONLY
            and self.thread
            and self.changed
            and self.state != _LOCK_WAIT
            and self.command != _IDLE
            and self.session_state not in NO_COMMIT
        )


class _Listed(NamedTuple):
    """InnoDB's list at one moment."""

    made: frozenset[str]
    """The texts of ours in it: no two lists have the same."""
    commits: Mapping[tuple[int, int], int]
    """The transactions that may be in their commit, by number and thread, with the rows they had changed."""
    in_turn: bool


def visible_end(session: Connection[Any], timeout_s: float) -> tuple[str, int]:
    """Return an end of the binlog, once every transaction before it is visible.

    Raises SourceUnavailableError after ``timeout_s``.
    """
    until = time.monotonic() + timeout_s
    file, pos, _ = binlog_position(session)
    end = file_number(file), pos
    listed = _next_list(session, end, None, until)
    waiting = None if listed is None else dict(listed.commits)
    while waiting is None or waiting:
        if listed is None or time.monotonic() >= until:
            raise _stuck(waiting, timeout_s)
        listed = _next_list(session, end, listed, until)
        if listed is not None and waiting:
            waiting = {each: rows for each, rows in waiting.items() if listed.commits.get(each) == rows}
    xa_commits.wait_for_commits(session, max(0.0, until - time.monotonic()))
    return file, pos


def _next_list(session: Connection[Any], end: tuple[int, int], last: _Listed | None, until: float) -> _Listed | None:
    """Return a list that is not ``last`` and was made when the binlog had reached ``end``; None: not in time."""
    in_turn = (last is None or last.in_turn) and _wait_for_turn(session, until)
    try:
        while True:
            rows = _list(session)
            made = frozenset(_text(row.text) for row in rows if row.text)
            if len(rows) < _MOST and any(map(end.__le__, map(_made_at, made))) and (not last or made != last.made):
                break
            if time.monotonic() >= until:
                if len(rows) >= _MOST:
                    raise _too_long(len(rows))
                return None
            # Several that go on without the turn must leave gaps in which InnoDB renews its list.
            time.sleep(_PAUSE_S if in_turn else random.uniform(*_PAUSES_WITHOUT_TURN_S))
    finally:
        if in_turn:
            query(session, f"SELECT RELEASE_LOCK({_TURN})")
    commits = {(int(row.number), row.thread): int(row.changed) for row in rows if row.may_commit}
    return _Listed(made, commits, in_turn)


def _wait_for_turn(session: Connection[Any], until: float) -> bool:
    """Wait for the turn; return False if one session has kept it for long, or at ``until``."""
    while True:
        holder = query(session, f"SELECT IS_USED_LOCK({_TURN})")[0][0]
        # Not in smaller parts: the server keeps the order of those that wait.
        wait_s = min(_LOST_S, max(1, round(until - time.monotonic())))
        if query(session, f"SELECT GET_LOCK({_TURN}, {wait_s})")[0][0] == 1:
            return True
        if wait_s == _LOST_S and holder and query(session, f"SELECT IS_USED_LOCK({_TURN})")[0][0] == holder:
            log.warning(
                "a session keeps the turn to read InnoDB's list, so the list is read without it: KILL the session if "
                "its producer is gone",
                thread=holder,
            )
            return False
        if time.monotonic() >= until:
            return False


def _list(session: Connection[Any]) -> list[_Row]:
    """Return InnoDB's list, with the texts that say when it was made."""
    file, pos, _ = binlog_position(session)
    # Without a transaction this session would not be in the list.
    query(session, "SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    query(session, "START TRANSACTION WITH CONSISTENT SNAPSHOT, READ ONLY")
    try:
        listed = _LISTED.format(file=file, pos=pos, number=time.time_ns(), created=_CREATED)
        return list(map(_Row._make, query(session, listed)))
    finally:
        query(session, "ROLLBACK")


def _text(value: str | bytes) -> str:
    return value.decode("utf-8", "replace") if isinstance(value, bytes) else value


def _made_at(text: str) -> tuple[int, int]:
    mark = _MADE_AT.match(text)
    return (file_number(mark[1]), int(mark[2])) if mark else (0, 0)


def _too_long(transactions: int) -> SourceUnavailableError:
    return SourceUnavailableError(
        "the server has more open transactions than InnoDB surely lists",
        hint="let connection pools end their transactions, idle ones count too; or set gtid_mode=ON of MySQL",
        transactions=transactions,
        most=_MOST - 1,
    )


def _stuck(waiting: Mapping[tuple[int, int], int] | None, timeout_s: float) -> SourceUnavailableError:
    if waiting is None:
        return SourceUnavailableError(
            "the list of InnoDB's transactions cannot be read in time: other sessions read it all the time",
            hint="let nothing else query information_schema.INNODB_TRX more often than once a second",
            waited_s=timeout_s,
        )
    return SourceUnavailableError(
        "transactions that may be in the binlog did not become visible on the server",
        hint="look at these threads in SHOW PROCESSLIST: a semi-synchronous replica does not respond, the disk is "
        "slow, or a transaction that has changed rows is in a long statement that changes none",
        threads=", ".join(str(thread) for _, thread in sorted(waiting)[:20]),
        waited_s=timeout_s,
    )
