"""BinlogStream: the dump connection. mysql-replication connects, registers and asks for the log; from there we read.

Nothing of that library's event or row handling is used: the socket is read in large blocks and cut by ``BinlogParser``.
There is no reconnecting here: a lost connection is an error, and whoever follows the log starts again from its stored
GTID set.
"""

from __future__ import annotations

import selectors
import socket
import ssl
import time
from collections.abc import Callable
from typing import Any, Final

from pymysqlreplication import BinLogStreamReader

from tailrace.producer.errors import SourceUnavailableError
from tailrace.producer.model.binlog_events import Event
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.parser import BinlogParser
from tailrace.producer.mysql.connection import SourceSettings, connect, translating_errors
from tailrace.producer.mysql.gtid import GtidSet

_BLOCK: Final = 1 << 18
_BATCH: Final = 1 << 20
"""Bytes after which ``poll`` returns even if more could be read at once."""


class BinlogStream:
    """Follows the log of one server from a GTID set on. Not thread-safe but for ``wake``."""

    def __init__(
        self,
        settings: SourceSettings,
        *,
        start: GtidSet,
        server_id: int,
        wanted: Callable[[TableId], bool],
        heartbeat_s: float = 1.0,
        silence_s: float = 60.0,
        verify_checksums: bool = True,
    ) -> None:
        """``start`` is what has been seen: the server sends all else. ``server_id`` must be unique among its readers.

        The server sends a heartbeat after ``heartbeat_s`` without an event; ``silence_s`` without anything at all
        counts as a lost connection.
        """
        self._settings = settings
        self._start = start
        self._server_id = server_id
        self._heartbeat_s = heartbeat_s
        self._silence_s = silence_s
        self._cutter = BinlogParser(wanted, verify=verify_checksums)
        self._connection: Any = None
        self._socket: socket.socket | None = None
        self._heard_at = 0.0
        self._selector = selectors.DefaultSelector()
        self._wake_here, self._wake_there = socket.socketpair()
        self._wake_here.setblocking(False)
        self._wake_there.setblocking(False)
        self._selector.register(self._wake_here, selectors.EVENT_READ)

    @property
    def file(self) -> str:
        """The log file of the place reached; '' before the first event."""
        return self._cutter.file

    @property
    def pos(self) -> int:
        """The offset behind the last event read (64-bit)."""
        return self._cutter.pos

    def open(self) -> None:
        """Connect and ask for the log; a refused position is only heard of in ``poll``.

        Raises as ``connect`` does; the stream is then closed.
        """
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def _open(self) -> None:
        reader = BinLogStreamReader(
            connection_settings={},
            server_id=self._server_id,
            blocking=True,
            auto_position=_Seen(str(self._start)),
            slave_heartbeat=self._heartbeat_s,
            pymysql_wrapper=self._dial,
            enable_logging=False,
        )
        with translating_errors(f"{self._settings.host}:{self._settings.port}", self._settings.user):
            # The library's public way in also opens a second session and reads an event; this is the part we need.
            reader._BinLogStreamReader__connect_to_stream()  # noqa: SLF001
        sock: socket.socket = self._connection._sock  # noqa: SLF001
        sock.setblocking(False)
        self._socket = sock
        self._selector.register(sock, selectors.EVENT_READ)
        self._heard_at = time.monotonic()

    def close(self) -> None:
        """Drop the connection; safe to call twice."""
        if self._socket is not None:
            self._selector.unregister(self._socket)
            self._socket = None
        if self._connection is not None:
            # No farewell: the server is busy sending and would not read it.
            self._connection._force_close()  # noqa: SLF001
            self._connection = None
        if self._selector.get_map() is not None:
            self._selector.close()
            self._wake_here.close()
            self._wake_there.close()

    def __enter__(self) -> BinlogStream:
        self.open()
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def wake(self) -> None:
        """Make a ``poll`` that waits, or the next one, return at once. For other threads."""
        try:
            self._wake_there.send(b"\0")
        except (BlockingIOError, OSError):
            return  # so many wakes are waiting already, or the stream is closed

    def poll(self, timeout_s: float) -> list[Event]:
        """Return events of what the server has sent, at most about a megabyte; [] after ``timeout_s`` or ``wake``.

        Raises SourceUnavailableError when the connection is lost or silent, LogError when the position is purged or an
        event cannot be followed, SchemaError when rows cannot be read.
        """
        sock = self._socket
        if sock is None:
            raise SourceUnavailableError("the log stream is not open")
        deadline = time.monotonic() + timeout_s
        while True:
            chunk = self._receive(sock)
            if chunk:
                self._heard_at = time.monotonic()
                events = self._cutter.feed(chunk)
                if events:
                    return events
            now = time.monotonic()
            if chunk:
                if now >= deadline:
                    return []
                continue
            if now - self._heard_at > self._silence_s:
                raise SourceUnavailableError(
                    "the source has gone silent: not even heartbeats arrive",
                    hint="check the network between here and the source",
                    silent_s=round(now - self._heard_at, 1),
                    file=self.file,
                    pos=self.pos,
                )
            patience = min(deadline, self._heard_at + self._silence_s + 0.1) - now
            if now >= deadline or self._woken(max(patience, 0.0)):
                return []

    def _woken(self, timeout_s: float) -> bool:
        """Wait for bytes or a wake; return whether it was a wake."""
        woken = False
        for key, _ in self._selector.select(timeout_s):
            if key.fileobj is self._wake_here:
                self._wake_here.recv(4096)
                woken = True
        return woken

    def _receive(self, sock: socket.socket) -> bytes:
        """Return what can be read without waiting, b'' if nothing."""
        chunks: list[bytes] = []
        size = 0
        while size < _BATCH:
            try:
                chunk = sock.recv(_BLOCK)
            except (BlockingIOError, ssl.SSLWantReadError):
                break
            except OSError as error:
                raise self._lost(str(error)) from error
            if not chunk:
                if chunks:
                    break  # what came before is cut first; the end shows again at the next call
                raise self._lost("closed by the server")
            chunks.append(chunk)
            size += len(chunk)
        return chunks[0] if len(chunks) == 1 else b"".join(chunks)

    def _lost(self, cause: str) -> SourceUnavailableError:
        return SourceUnavailableError(
            "the connection that carries the log was lost", cause=cause, file=self.file, pos=self.pos
        )

    def _dial(self, **_: object) -> Any:
        self._connection = connect(self._settings)
        with self._connection.cursor() as cursor:
            # Without it files with checksums are refused while the server's present setting is NONE.
            cursor.execute("SET @master_binlog_checksum = 'CRC32', @source_binlog_checksum = 'CRC32'")
            # The library sets it by its old name only; nanoseconds.
            cursor.execute(f"SET @source_heartbeat_period = {int(self._heartbeat_s * 1e9)}")
        return self._connection


class _Seen(list[str]):
    """A GTID set as the library wants it: a list that is true even when empty, or it would ask by file name."""

    def __init__(self, gtids: str) -> None:
        super().__init__(part for part in gtids.split(",") if part)

    def __bool__(self) -> bool:
        return True
