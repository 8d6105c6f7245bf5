"""A TCP proxy in front of a server: a test moves it to another server, as a failover behind one address does."""

from __future__ import annotations

import socket
import threading
from types import TracebackType
from typing import Final

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

    def __enter__(self) -> TcpProxy:
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
            for source, sink in ((client, server), (server, client)):
                threading.Thread(target=_forward, args=(source, sink), daemon=True).start()


def _forward(source: socket.socket, sink: socket.socket) -> None:
    try:
        while data := source.recv(_BLOCK):
            sink.sendall(data)
    except OSError:
        pass
    _end(source)
    _end(sink)


def _end(connection: socket.socket) -> None:
    """Close a connection; a thread that is reading from it ends."""
    try:
        connection.shutdown(socket.SHUT_RDWR)
    except OSError:
        return
    finally:
        connection.close()
