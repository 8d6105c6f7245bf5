"""A server that speaks just enough of the protocol to ask a client for its password, and keeps what it receives."""

from __future__ import annotations

import socket
import struct
import threading
from types import TracebackType
from typing import Final, Self

SALT: Final = b"abcdefghijklmnopqrst"
_CAPABILITIES: Final = 0x00000200 | 0x00008000 | 0x00080000
"""Protocol 4.1, secure connection, plugins; no TLS."""


class HostileMySql:
    """Asks each client for one authentication method; ``received`` is all that clients have sent. A context manager."""

    def __init__(self, method: str) -> None:
        self._method = method.encode()
        self.received = b""
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        self._thread = threading.Thread(target=self._serve, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.join(timeout=30)
        self._listener.close()
        assert not self._thread.is_alive(), "the client keeps its connection open"

    def _serve(self) -> None:
        client, _ = self._listener.accept()
        with client:
            client.settimeout(20)
            client.sendall(_packet(0, self._greeting()))
            self._receive(client)
            client.sendall(_packet(2, b"\xfe" + self._method + b"\0" + SALT + b"\0"))
            if self._receive(client) and self._method == b"caching_sha2_password":
                client.sendall(_packet(4, b"\x01\x04"))  # the hash is not in the cache: send the password
                self._receive(client)

    def _greeting(self) -> bytes:
        return (
            b"\x0a8.0.15\0"
            + struct.pack("<I", 7)
            + SALT[:8]
            + b"\0"
            + struct.pack("<H", _CAPABILITIES & 0xFFFF)
            + b"\xff\x02\x00"
            + struct.pack("<H", _CAPABILITIES >> 16)
            + bytes([len(SALT) + 1])
            + bytes(10)
            + SALT[8:]
            + b"\0mysql_native_password\0"
        )

    def _receive(self, client: socket.socket) -> bytes:
        try:
            data = client.recv(4096)
        except ConnectionResetError:
            return b""
        self.received += data
        return data


def _packet(sequence: int, body: bytes) -> bytes:
    return struct.pack("<I", len(body))[:3] + bytes([sequence]) + body
