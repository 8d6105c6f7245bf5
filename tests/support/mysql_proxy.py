"""A TCP proxy in front of a MySQL server: connections vanish as those of a lost host, or statements are late."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Final, Self

from tests.embedded.mysql import MySqlServer

_BINLOG_DUMP_GTID: Final = 0x1E


class MySqlProxy:
    """Forwards connections to ``server``, without TLS. A context manager."""

    def __init__(self, server: MySqlServer) -> None:
        self._server = server
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._pairs: list[_Pair] = []
        self._late = b""
        self.reached, self._released = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._accept, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.release()
        for pair in self._pairs:
            pair.close()

    def vanish(self) -> None:
        """End the binlog streams that are open now, and answer in no other open connection any more."""
        for pair in list(self._pairs):
            pair.silent = True
        for pair in list(self._pairs):
            if pair.is_stream:
                pair.close()

    def delay(self, text: bytes) -> None:
        """Keep the next statement with this text until ``release``; ``reached`` is set meanwhile."""
        self.reached.clear()
        self._released.clear()
        self._late = text

    def release(self) -> None:
        """Forward the statement that is kept."""
        self._released.set()

    def pass_on(self, data: bytes) -> None:
        """Return when these bytes of a client may be forwarded."""
        if self._late and self._late in data:
            self._late = b""
            self.reached.set()
            self._released.wait()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection((self._server.host, self._server.port))
                self._pairs.append(_Pair(client, server, self.pass_on))


class _Pair:
    """One forwarded connection."""

    def __init__(self, client: socket.socket, server: socket.socket, pass_on: Callable[[bytes], None]) -> None:
        self._pass_on = pass_on
        self._client = client
        self._server = server
        self.silent = False
        self.is_stream = False
        for source, target in ((client, server), (server, client)):
            threading.Thread(target=self._forward, args=(source, target), daemon=True).start()

    def close(self) -> None:
        """Close both sides."""
        for side in (self._client, self._server):
            with contextlib.suppress(OSError):
                side.shutdown(socket.SHUT_RDWR)
            side.close()

    def _forward(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(1 << 16):
                if source is self._client and len(data) > 4 and data[4] == _BINLOG_DUMP_GTID:
                    self.is_stream = True
                if source is self._client:
                    self._pass_on(data)
                if not self.silent:
                    target.sendall(data)
        if not self.silent:
            self.close()
