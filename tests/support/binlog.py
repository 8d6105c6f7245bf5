"""Following the log in a test: settings of a server, and all events up to what it has executed now."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import TypeVar

from tailrace.producer.config import DatabaseConfig
from tailrace.producer.model.binlog_events import Event, QueryEvent, RowsEvent, TransactionCommit
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.authentication import Tls
from tailrace.producer.mysql.binlog.stream import BinlogStream
from tailrace.producer.mysql.connection import SourceSettings, connect, executed_gtids
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.password import Password
from tailrace.producer.mysql.source import MySqlSource
from tests.embedded.mysql import MySqlServer
from tests.support.binlog_bytes import raise_refused

DEADLINE_S = 180.0
E = TypeVar("E")


def settings_of(server: MySqlServer, ssl_mode: str = "disabled") -> SourceSettings:
    """Return the settings of a connection as root."""
    return account_settings(server.host, server.port, server.user, server.password, ssl_mode=ssl_mode)


def account_settings(
    host: str, port: int, user: str = "root", password: str = "", *, ssl_mode: str = "preferred"
) -> SourceSettings:
    """Return the settings of a connection; timeouts have their default."""
    timeouts = DatabaseConfig(hostname=host, user=user, server_id=1)
    return SourceSettings(
        host=host,
        port=port,
        user=user,
        password=Password(password),
        tls=Tls(ssl_mode),
        connect_timeout_s=timeouts.connect_timeout_ms / 1000,
        read_timeout_s=timeouts.query_timeout_ms / 1000,
    )


def executed(server: MySqlServer) -> GtidSet:
    """Return what the server has executed now."""
    session = connect(settings_of(server))
    try:
        return GtidSet.parse(executed_gtids(session))
    finally:
        session.close()


def everything(_: TableId) -> bool:
    """Capture every table."""
    return True


def open_stream(
    server: MySqlServer,
    start: GtidSet,
    *,
    captures: Callable[[TableId], bool] = everything,
    server_id: int = 4711,
    ssl_mode: str = "disabled",
    silence_timeout_s: float = 60.0,
) -> BinlogStream:
    """Return an open stream; close it. It reads rows without FULL metadata too."""
    settings = settings_of(server, ssl_mode)
    stream = BinlogStream(
        settings,
        start=start,
        server_id=server_id,
        captures=captures,
        heartbeat_s=0.5,
        silence_timeout_s=silence_timeout_s,
        proven=MySqlSource(settings, server_id=server_id).proven_definitions(settings, captures, ()),
    )
    stream.open()
    return stream


def read_until(stream: BinlogStream, seen: GtidSet, until: GtidSet) -> list[Event]:
    """Return the events of a stream that had ``seen``, until it has all of ``until``."""
    events: list[Event] = []
    deadline = time.monotonic() + DEADLINE_S
    while not seen.contains(until):
        assert time.monotonic() < deadline, f"not all transactions arrived: {seen} of {until}"
        for event in raise_refused(stream.poll(1.0)):
            events.append(event)
            if isinstance(event, TransactionCommit) or (isinstance(event, QueryEvent) and not event.in_transaction):
                seen = seen.with_gtid(event.gtid)
    return events


def follow(
    server: MySqlServer,
    start: GtidSet,
    *,
    captures: Callable[[TableId], bool] = everything,
    ssl_mode: str = "disabled",
) -> list[Event]:
    """Return all events from ``start`` to what the server has executed now."""
    stream = open_stream(server, start, captures=captures, ssl_mode=ssl_mode)
    try:
        return read_until(stream, start, executed(server))
    finally:
        stream.close()


def only(kind: type[E], events: Iterable[Event]) -> list[E]:
    """Return the events of one type."""
    return [event for event in events if isinstance(event, kind)]


def images(rows: RowsEvent) -> bytes:
    """Return the row images of a rows event."""
    return rows.data[rows.start : rows.stop]


def poll_until_it_fails(stream: BinlogStream) -> None:
    """Poll until an error or the deadline."""
    deadline = time.monotonic() + DEADLINE_S
    while time.monotonic() < deadline:
        raise_refused(stream.poll(1.0))
