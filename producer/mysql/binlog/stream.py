"""Binlog stream: the dump connection. Its socket is read in large blocks, which ``BinlogParser`` parses.

The stream does not reconnect: a lost connection is an error, and the capture restarts from its stored GTID set.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable, Sequence
from typing import Any, Final

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.binlog_events import Event, QueryEvent
from tailrace.producer.model.ddl import DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.packets import dump_from_file, dump_from_gtids
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.mysql.binlog.proven_definitions import ProvenDefinitions
from tailrace.producer.mysql.binlog.transaction_parser import Names
from tailrace.producer.mysql.connection import (
    SourceSettings,
    connect,
    disconnect,
    stores_lower_case_names,
    translating_errors,
)
from tailrace.producer.mysql.gtid import GtidSet
from tailrace.producer.mysql.text.ddl import ddl_effects
from tailrace.producer.mysql.text.sql_tokens import SqlDialect

_BLOCK: Final = 1 << 18
_BATCH: Final = 1 << 20
"""Bytes after which ``poll`` returns even if more can be read."""


class BinlogStream:
    """Follows the binlog of one server from a GTID set on. Not thread-safe, except ``wake``."""

    names = Names.GTIDS

    def __init__(
        self,
        settings: SourceSettings,
        *,
        start: GtidSet,
        server_id: int,
        captures: Callable[[TableId], bool],
        heartbeat_s: float = 1.0,
        silence_timeout_s: float = 60.0,
        proven: ProvenDefinitions | None = None,
    ) -> None:
        """``start`` is executed already: the server sends all else. ``server_id`` must be unique among its readers.

        The server sends a heartbeat after ``heartbeat_s`` without an event. The connection counts as lost after
        ``silence_timeout_s`` without any data. ``proven`` completes TABLE_MAP events without names.
        """
        self._settings = settings
        self._start = start
        self._server_id = server_id
        self._heartbeat_s = heartbeat_s
        self._silence_timeout_s = silence_timeout_s
        self._proven = proven
        self._parser = BinlogParser(captures, names=self.names, proven=proven)
        self._connection: Any = None
        self._socket: socket.socket | None = None
        self._last_received_at = 0.0
        self.caught_up = False
        """Whether the last ``poll`` returned no event because the server had sent nothing more."""
        self._lower_case_names = False
        self._selector = selectors.DefaultSelector()
        self._wake_receiver, self._wake_sender = socket.socketpair()
        self._wake_receiver.setblocking(False)
        self._wake_sender.setblocking(False)
        self._selector.register(self._wake_receiver, selectors.EVENT_READ)

    @property
    def file(self) -> str:
        """The binlog file that the stream has reached; '' before the first event."""
        return self._parser.file

    @property
    def pos(self) -> int:
        """The position after the last event (64 bits)."""
        return self._parser.pos

    @property
    def has_xa(self) -> bool:
        """Whether the events of the last ``poll`` have XA statements."""
        return self._parser.has_xa

    def open(self) -> None:
        """Connect and request the binlog; ``poll`` reports a rejected position.

        Raises the errors of ``connect``; the stream is then closed.
        """
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _request(self) -> tuple[int, bytes]:
        return dump_from_gtids(self._start, self._server_id)

    def _open(self) -> None:
        with translating_errors(f"{self._settings.host}:{self._settings.port}", self._settings.user):
            self._connect()
            self._connection._execute_command(*self._request())  # noqa: SLF001 - the driver has no public way
        sock: socket.socket = self._connection._sock  # noqa: SLF001 - to a command, nor to its socket
        sock.setblocking(False)
        self._socket = sock
        self._selector.register(sock, selectors.EVENT_READ)
        self._last_received_at = time.monotonic()

    def close(self) -> None:
        """Disconnect; safe to call twice."""
        if self._proven is not None:
            self._proven.close()
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket = None
        if self._connection is not None:
            # Without COM_QUIT: the server is sending and would not read it.
            disconnect(self._connection)
            self._connection = None
        if self._selector.get_map() is not None:
            self._selector.close()
            self._wake_receiver.close()
            self._wake_sender.close()

    def __enter__(self) -> BinlogStream:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def ddl_effects(self, event: QueryEvent) -> Sequence[DdlEffect]:
        """Read the statement by its leading words."""
        return ddl_effects(event.sql, event.database, self._dialect(event))

    def _dialect(self, event: QueryEvent) -> SqlDialect:
        return SqlDialect(event.sql_mode, event.server_version, self._lower_case_names, event.has_replaced)

    def wake(self) -> None:
        """Make the running or the next ``poll`` return at once. For other threads."""
        try:
            self._wake_sender.send(b"\0")
        except (BlockingIOError, OSError):
            return  # enough wake-ups are pending, or the stream is closed

    @property
    def received_at(self) -> float:
        """When the server last sent an event or a heartbeat: seconds of ``time.monotonic``."""
        return self._last_received_at

    def poll(self, timeout_s: float) -> list[Event]:
        """Return the next events, of about a megabyte at most; [] after ``timeout_s`` or ``wake``.

        Raises SourceUnavailableError if the connection is lost or silent, BinlogError if the position is purged or an
        event is not supported, SchemaError if rows cannot be read.
        """
        sock = self._socket
        if sock is None:
            raise SourceUnavailableError("the binlog stream is not open")
        self.caught_up = False
        deadline = time.monotonic() + timeout_s
        while True:
            if self._proven is not None and not self._proven.settle():
                self._last_received_at = time.monotonic()  # what the server has sent is not read meanwhile
                return []
            if self._parser.pending:
                events = self._parser.feed(b"")
                if events:
                    self._last_received_at = time.monotonic()
                    return events
                continue
            chunk = self._receive(sock)
            if chunk:
                self._last_received_at = time.monotonic()
                events = self._parser.feed(chunk)
                if events:
                    return events
            now = time.monotonic()
            if chunk:
                if now >= deadline:
                    return []
                continue
            if now - self._last_received_at > self._silence_timeout_s:
                raise SourceUnavailableError(
                    "the source is silent: it sends no heartbeats",
                    hint="check the network between the producer and the source",
                    silent_s=round(now - self._last_received_at, 1),
                    file=self.file,
                    pos=self.pos,
                )
            wait_s = min(deadline, self._last_received_at + self._silence_timeout_s + 0.1) - now
            if now >= deadline:
                self.caught_up = True
                return []
            if self._wait_for_input(max(wait_s, 0.0)):
                return []

    def _wait_for_input(self, timeout_s: float) -> bool:
        """Wait for bytes or a wake-up; return whether it was a wake-up."""
        woke_up = False
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wake_receiver:
                self._wake_receiver.recv(4096)
                woke_up = True
        return woke_up

    def _receive(self, sock: socket.socket) -> bytes:
        """Return what can be read without waiting, b'' if there is nothing."""
        chunks: list[bytes] = []
        size = 0
        while size < _BATCH:
            try:
                chunk = sock.recv(_BLOCK)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except OSError as error:
                raise self._connection_lost(str(error)) from error
            if not chunk:
                if chunks:
                    break  # parse what was received first; the next call sees the end again
                raise self._connection_lost("closed by the server")
            chunks.append(chunk)
            size += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _connection_lost(self, cause: str) -> SourceUnavailableError:
        return SourceUnavailableError("the binlog connection was lost", cause=cause, file=self.file, pos=self.pos)

    def _connect(self) -> None:
        self._connection = connect(self._settings)
        with self._connection.cursor() as cursor:
            # Otherwise files with checksums are rejected while the current setting of the server is NONE.
            cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
            nanoseconds = int(self._heartbeat_s * 1e9)
            cursor.execute(f"SET @master_heartbeat_period = {nanoseconds}, @source_heartbeat_period = {nanoseconds}")
        self._lower_case_names = stores_lower_case_names(self._connection)


class BinlogFileStream(BinlogStream):
    """Follows the binlog of one server from a position on, whose transactions need no GTIDs."""

    names = Names.POSITIONS

    def __init__(
        self,
        settings: SourceSettings,
        start: tuple[str, int],
        *,
        server_id: int,
        captures: Callable[[TableId], bool],
        proven: ProvenDefinitions | None = None,
    ) -> None:
        """``start``: an event begins there, that of a GTID or BEGIN, or one outside a transaction."""
        super().__init__(settings, start=GtidSet({}), server_id=server_id, captures=captures, proven=proven)
        self._first_file, self._first_pos = start

    def _request(self) -> tuple[int, bytes]:
        return dump_from_file(self._first_file, self._server_id, self._first_pos)
