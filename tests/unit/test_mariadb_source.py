"""What a MariaDB source makes of the answers of a server, without one."""

from __future__ import annotations

from collections.abc import Generator
from types import SimpleNamespace
from typing import Any, cast

import pytest
from pymysql import OperationalError

from tailrace.producer.errors import (
    SourceError,
    SourceUnavailableError,
    StatementTooSlowError,
    TableAccessError,
    TableLockedError,
)
from tailrace.producer.mariadb import history, offset, source
from tailrace.producer.mariadb.history import MariaDbHistory
from tailrace.producer.model.binlog_events import Event, PreparedTransactionEnded, TransactionCommit
from tailrace.producer.mysql import connection as database


def test_end_above_4_gib_is_no_sign_of_an_older_copy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The server has no answer for such a position, and every restart would be refused."""
    monkeypatch.setattr(source, "query", lambda *_: pytest.fail("asks the server"))
    source._require_end(cast("Any", None), TransactionCommit("0-1-5", "b.000001", 1 << 32, 1))


@pytest.mark.parametrize(
    ("listed", "first"), [("[]", ""), ("[0-1-100,0-2-50]", "0-2-50"), ("[0-1-7,3-1-9,0-2-8]", "0-2-8,3-1-9")]
)
def test_last_gtid_of_a_domain_precedes_the_oldest_file(
    monkeypatch: pytest.MonkeyPatch, listed: str, first: str
) -> None:
    """Its sequence number may be smaller than one before: the position of a first start has it."""
    events = [("b.1", 4, "Format_desc", 1, 256, ""), ("b.1", 256, "Gtid_list", 1, 300, listed)]
    monkeypatch.setattr(offset, "query", lambda _, sql: [("b.1", 300)] if sql == "SHOW BINARY LOGS" else events)
    assert str(offset.first_gtids(cast("Any", SimpleNamespace(escape=repr)))) == first


def test_session_of_a_server_that_is_not_mariadb(monkeypatch: pytest.MonkeyPatch) -> None:
    """It does not know the variables, and the check is to say so."""
    connection = cast("Any", object())
    monkeypatch.setattr(database, "connect", lambda _: connection)
    monkeypatch.setattr(database, "execute", lambda *_: pytest.fail("sets variables of MariaDB"))
    monkeypatch.setattr(database, "server_version", lambda _: "8.0.33")
    settings = cast("Any", None)
    assert source.MariaDbSource(settings, server_id=5).connect() is connection


_ENDED = "look on the server for what killed it, or which transaction holds the lock"
_REACH = "check database.hostname and database.port, and that the server runs and accepts connections from here"
_ACCOUNT = "check database.user and database.password, and that the account may connect from this host"


@pytest.mark.parametrize(
    ("code", "kind", "hint"),
    [
        (1927, SourceUnavailableError, _REACH),
        (1969, StatementTooSlowError, _ENDED),
        (3024, StatementTooSlowError, _ENDED),
        (1317, SourceUnavailableError, _ENDED),
        (1205, TableLockedError, _ENDED),
        (2003, SourceUnavailableError, _REACH),
        (1045, SourceError, _ACCOUNT),
        (2026, SourceError, "enable TLS on the server, or set database.ssl.mode=preferred"),
        (2061, SourceError, "check database.password, set database.ssl.mode=verify_identity, or allow it with"),
        (1044, SourceError, "grant the account access to the database"),
        (1142, TableAccessError, "GRANT SELECT on the table to the account"),
        (1143, TableAccessError, "GRANT SELECT on the column to the account"),
        (1227, SourceError, "grant the account the privilege named in the answer"),
    ],
)
def test_errors_of_the_server(code: int, kind: type[SourceError], hint: str) -> None:
    """Those that a retry may help are told from others, each with what to do."""
    error = database.translate_error(OperationalError(code, "x"), "h", "u")
    assert type(error) is kind
    assert error.hint.startswith(hint)
    assert error.context.items() >= {"server": "h", "code": code, "answer": "x"}.items()


@pytest.mark.parametrize(("file", "read"), [("b.000001", [1]), ("b.000003", [3, 4]), ("", [4])])
def test_prepared_transaction_is_read_from_its_file(
    monkeypatch: pytest.MonkeyPatch, file: str, read: list[int]
) -> None:
    """However far back that is. On another server the file does not have it, and those before the end are searched."""
    sizes = [(f"b.00000{number}", 100) for number in range(1, 6)]
    monkeypatch.setattr(history, "connect", lambda _: SimpleNamespace(close=lambda: None))
    monkeypatch.setattr(history, "query", lambda *_: sizes)
    opened: list[int] = []

    def read_from(_: object, each: str, *__: object) -> Generator[list[Event], None, bool]:
        opened.append(int(each[-1]))
        yield []
        return opened[-1] in {1, 4}

    monkeypatch.setattr(MariaDbHistory, "_read_from", read_from)
    unused = cast("Any", None)
    found = MariaDbHistory(
        unused, start=unused, server_id=5, captures=unused, tables=unused, proven=unused, max_search_bytes=100
    )
    ended = PreparedTransactionEnded("x", committed=True, file="b.000004", pos=4, end=9, ts=1, server_id=1)
    assert list(found.read("0-1-5", ended, file)) == [[] for _ in read]
    assert opened == read
