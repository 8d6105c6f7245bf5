"""A TCP proxy in front of a server: a test moves it to another server, as a failover behind one address does."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from contextlib import suppress
from types import TracebackType
from typing import Final, Self

_BLOCK: Final = 1 << 16


class TcpProxy:
    """Forwards each connection to the server that ``target`` names when it is accepted."""

    host: Final = "127.0.0.1"

    def __init__(self, target: int) -> None:
        self.target = target
        """Port of the server on this host."""
        self._listener = socket.create_server((self.host, 0))
        self.port: int = self._listener.getsockname()[1]
        self._sockets: list[socket.socket] = []
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()
        self.drop_connections()

    def move(self, target: int) -> None:
        """Forward new connections to another server, and close the present ones."""
        self.target = target
        self.drop_connections()

    def drop_connections(self) -> None:
        """Close all connections."""
        with self._lock:
            sockets, self._sockets = self._sockets, []
        for each in sockets:
            _end(each)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            try:
                server = socket.create_connection((self.host, self.target))
            except OSError:
                client.close()
                continue
            with self._lock:
                self._sockets += [client, server]
            for forward in (self._forward_requests, self._forward_answers):
                threading.Thread(target=_run, args=(forward, client, server), daemon=True).start()

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        while data := client.recv(_BLOCK):
            server.sendall(data)

    def _forward_answers(self, client: socket.socket, server: socket.socket) -> None:
        while data := server.recv(_BLOCK):
            client.sendall(data)


def _run(forward: Callable[[socket.socket, socket.socket], None], client: socket.socket, server: socket.socket) -> None:
    with suppress(OSError):
        forward(client, server)
    _end(client)
    _end(server)


def _end(connection: socket.socket) -> None:
    """Close a connection; a thread that is reading from it ends."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        connection.close()
