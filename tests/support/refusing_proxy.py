"""A proxy in front of a broker that leads a partition not yet when its first batch arrives, but when the second does.

Produce requests and responses of version 10, as in Kafka's protocol guide: integers are big-endian, and a length in
front of a text or list is one more than it is, in a varint of seven bits a byte.
"""

from __future__ import annotations

import socket
import struct
import threading
from typing import BinaryIO, Final, NamedTuple

from tests.support.tcp_proxy import TcpProxy

_PRODUCE: Final = 0
_VERSION: Final = 10
_NOT_LEADER: Final = 6


class _Request(NamedTuple):
    correlation: int
    topic: bytes
    partition: int


class RefusingProxy(TcpProxy):
    """Refuses the first batch of a topic in the broker's place, once the second one is there, which it forwards."""

    def __init__(self, target: int, topic: str) -> None:
        super().__init__(target)
        self.held = threading.Event()
        """The first batch is there."""
        self.refused = False
        self._topic = topic.encode()
        self._sending = threading.Lock()

    def _forward_requests(self, client: socket.socket, server: socket.socket) -> None:
        first: _Request | None = None
        stream = client.makefile("rb")
        while frame := _read(stream):
            request = _produce_request(frame)
            if request is not None and request.topic == self._topic and not self.refused:
                if first is None:
                    first = request
                    self.held.set()
                    continue
                self.refused = True
                with self._sending:
                    client.sendall(_not_leader(first))
            server.sendall(struct.pack(">i", len(frame)) + frame)

    def _forward_answers(self, client: socket.socket, server: socket.socket) -> None:
        stream = server.makefile("rb")
        while frame := _read(stream):
            with self._sending:
                client.sendall(struct.pack(">i", len(frame)) + frame)


def _read(stream: BinaryIO) -> bytes:
    head = stream.read(4)
    return stream.read(int.from_bytes(head)) if len(head) == 4 else b""


def _produce_request(frame: bytes) -> _Request | None:
    key, version, correlation, client_size = struct.unpack_from(">hhih", frame)
    if key != _PRODUCE:
        return None
    assert version == _VERSION, f"a Produce request of version {version}"
    at = 10 + max(client_size, 0) + 1  # no tagged fields
    size, at = _varint(frame, at)
    at += size - 1 + 6  # the transactional id, acks, timeout
    _, at = _varint(frame, at)
    size, at = _varint(frame, at)
    topic, at = frame[at : at + size - 1], at + size - 1
    _, at = _varint(frame, at)
    return _Request(correlation, topic, int.from_bytes(frame[at : at + 4]))


def _not_leader(request: _Request) -> bytes:
    name = bytes([len(request.topic) + 1]) + request.topic
    partition = struct.pack(">ihqqq", request.partition, _NOT_LEADER, -1, -1, -1) + b"\1\0\0"
    body = struct.pack(">i", request.correlation) + b"\0\2" + name + b"\2" + partition + b"\0\0\0\0\0\0"
    return struct.pack(">i", len(body)) + body


def _varint(data: bytes, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, at
