"""XA commits that are executed and not visible yet.

Servers before 8.0.33 add the GTID of some XA commits to ``gtid_executed`` before the engine commits: of XA COMMIT in
another session than that of the XA PREPARE, and of XA COMMIT … ONE PHASE, also if a replica applies them. The thread
that commits shows that it does until the rows are visible. The order was measured on 8.0.15 (this one) and 8.0.33
(the engine first); a version between them is taken for one of this order. MySQL 5.7 (5.7.22) has it for ONE PHASE only,
and shows no commit of a replica that does (``hides_applied``). There the engine commits before the binlog has an XA
COMMIT of another session: a high watermark waits for those too.
"""

from __future__ import annotations

import re
import time
from typing import Any, Final

from pymysql.connections import Connection
from pymysql.constants import ER

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.mysql.connection import query, server_version
from tailrace.producer.mysql.text.server_version import version_number

_ENGINE_FIRST: Final = 80_033
_LOG_FIRST: Final = 80_000
_PAUSE_S: Final = 0.02

# No text that the pattern finds: other readers ask the same. A thread that applies ONE PHASE has no such statement.
_APPLIES: Final = "USER = 'system user' AND STATE = 'waiting for handler commit'"
_CANDIDATES: Final = (
    f"SELECT ID, IF({_APPLIES}, NULL, CAST(INFO AS BINARY)) FROM information_schema.PROCESSLIST "
    f"WHERE INFO LIKE '%X%A%COMMIT%' OR ({_APPLIES})"
)
_GROUP: Final = "SHOW GLOBAL VARIABLES WHERE Variable_name = 'group_replication_group_name' AND Value <> ''"
_XA: Final = re.compile(rb"\bXA\b", re.IGNORECASE)
_COMMIT: Final = re.compile(rb"\bCOMMIT\b", re.IGNORECASE)


def commits_early(version: str) -> bool:
    """Return whether a server of this version may execute the GTID of an XA commit before its rows are visible."""
    return version_number(version) < _ENGINE_FIRST


def sees_commits(session: Connection[Any]) -> bool:
    """Return whether the account sees what all threads of the server do: it has PROCESS."""
    try:
        query(session, "SELECT 1 FROM information_schema.INNODB_CMP LIMIT 1")
    except SourceError as error:
        if error.context.get("code") != ER.SPECIFIC_ACCESS_DENIED_ERROR:
            raise
        return False
    return True


def wait_until_visible(session: Connection[Any], timeout_s: float) -> bool:
    """Wait until the rows of every XA transaction that is executed now are visible; return ``commits_early``.

    Raises SourceError if that cannot be known: the account lacks PROCESS, and the server has run XA transactions.
    Raises SourceUnavailableError after ``timeout_s``.
    """
    if not commits_early(version := server_version(session)):
        return False
    if sees_commits(session):
        wait_for_commits(session, timeout_s)
    else:
        _require_no_xa(session, version)
    return True


def hides_applied(session: Connection[Any]) -> bool:
    """Return whether a replica may apply an XA COMMIT … ONE PHASE that nothing but InnoDB's list shows: MySQL 5.7.

    SHOW SLAVE STATUS does not have the channel by which a member of a group applies.
    """
    if version_number(server_version(session)) >= _LOG_FIRST or not sees_commits(session):
        return False
    return bool(query(session, "SHOW SLAVE STATUS") or query(session, _GROUP))


def wait_until_logged(session: Connection[Any], timeout_s: float) -> None:
    """Wait until the binlog has every XA transaction that is visible now; raises as ``wait_until_visible``."""
    if version_number(server_version(session)) < _LOG_FIRST:
        wait_until_visible(session, timeout_s)


def wait_for_commits(session: Connection[Any], timeout_s: float) -> None:
    """Wait until no XA commit that runs now is left; needs PROCESS. Raises SourceUnavailableError on timeout."""
    deadline = time.monotonic() + timeout_s
    committing = _committing(session)
    while committing:
        if time.monotonic() >= deadline:
            raise SourceUnavailableError(
                "an XA commit on the server does not end, so a snapshot cannot tell what its rows contain",
                hint="look at these sessions in SHOW PROCESSLIST: a semi-synchronous replica may not respond",
                sessions=", ".join(sorted(str(thread) for thread, _ in committing)),
                waited_s=timeout_s,
            )
        time.sleep(_PAUSE_S)
        committing &= _committing(session)


def _committing(session: Connection[Any]) -> set[tuple[int, bytes | None]]:
    """Return the threads that may be in an XA commit, each with its statement; None: it applies a transaction."""
    found = query(session, _CANDIDATES)
    return {(thread, text) for thread, text in found if text is None or may_commit(text)}


def may_commit(statement: bytes) -> bool:
    """Return whether a statement of any session may be XA … COMMIT.

    Anyone can run a statement of megabytes: one pattern with anything between both words would take hours for it.
    """
    begin = _XA.search(statement)
    return begin is not None and _COMMIT.search(statement, begin.end()) is not None


def _require_no_xa(session: Connection[Any], version: str) -> None:
    """Raise if the server has begun or ended an XA transaction since its start; its counters need no grant."""
    counted = query(session, "SHOW GLOBAL STATUS WHERE Variable_name IN ('Com_xa_start', 'Com_xa_commit')")
    if any(int(count) for _, count in counted):
        user, _, host = str(query(session, "SELECT CURRENT_USER()")[0][0]).rpartition("@")
        raise SourceError(
            "XA transactions are used on the server, and the account may not see when their rows become visible",
            hint=f"GRANT PROCESS ON *.* TO '{user}'@'{host}'; or upgrade the server to 8.0.33 or newer",
            version=version,
        )
