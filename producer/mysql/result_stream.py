"""Reads the result of a SELECT in blocks: the codec decodes the raw row packets of a whole buffer at once.

The driver sends the query and reads the column definitions; the rows bypass it. Memory is one buffer, which only grows
to hold the longest row.
"""
# ruff: noqa: SLF001 - the driver has no public way to the packets; its version is pinned and every use is in this file.

from __future__ import annotations

import select
import socket
import ssl
from collections.abc import Iterator
from typing import Any, Final

from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import MySQLError

from tailrace.producer.errors import SourceError, SourceUnavailableError
from tailrace.producer.model.codec import SnapshotEncoder, SnapshotEnvelope, SnapshotRows
from tailrace.producer.mysql.connection import disconnect, translate_error
from tailrace.runtime.errors import SchemaError

BLOCK_BYTES: Final = 512 * 1024
_ENOUGH_BYTES: Final = 128 * 1024
"""Less is not decoded while more may come: each block costs some tens of microseconds of Python."""
_MORE_MS: Final = 20
"""How long more may take to come, so that a slow query does not hold back the rows that are here."""
_EOF_BYTES: Final = 9
_EOF: Final = 0xFE
_EOF_START: Final = b"\x05\x00\x00"
_WHOLE_PACKET: Final = 0xFFFFFF


def read_rows(
    connection: Connection[Any], sql: str, codec: SnapshotEncoder, envelope: SnapshotEnvelope
) -> Iterator[SnapshotRows]:
    """Run a SELECT of ``codec.select_list`` and yield its encoded rows in blocks.

    The session must be in UTC and utf8mb4. After the last block the connection is free for the next query; after an
    error, or if the iterator is closed early, the connection is closed.
    Raises SourceError if the server rejects the query, SourceUnavailableError if it is gone, SchemaError if the result
    does not match the codec.
    """
    session: Any = connection
    finished = False
    try:
        _start(session, sql, len(codec.schema.columns))
        for block in _blocks(session._rfile, session._sock, codec, envelope):
            if block.finished:
                # The rows bypassed the driver; its next command starts a new packet sequence.
                finished = True
            yield block
    except MySQLError as error:
        raise translate_error(error, f"{session.host}:{session.port}", _user(session), sql) from error
    except OSError as error:
        raise SourceUnavailableError(
            "the connection broke while a table was read", hint="check the server's log", cause=str(error)
        ) from error
    finally:
        if not finished:
            disconnect(session)


def _user(session: Any) -> str:
    user = session.user
    return user.decode("utf-8", "replace") if isinstance(user, bytes) else str(user)


def _start(session: Any, sql: str, columns: int) -> None:
    """Send the query and read its result set up to the first row."""
    if session.charset != "utf8mb4":
        raise SourceError(
            "the session's character set is not utf8mb4", hint="connect with charset=utf8mb4", seen=session.charset
        )
    session._execute_command(COMMAND.COM_QUERY, sql)
    head = session._read_packet()
    if head.is_ok_packet() or head.is_load_local_packet():
        raise SourceError("the statement has no result set", hint="pass a SELECT")
    seen = head.read_length_encoded_integer()
    if seen != columns:
        raise SchemaError(
            "the result set and the table have different numbers of columns",
            hint="restart the producer to read the table's definition again",
            expected=columns,
            seen=seen,
        )
    for _ in range(columns):
        session._read_packet()
    if not session._read_packet().is_eof_packet():
        raise SourceError("no EOF packet follows the column definitions of a result set")


def _blocks(
    stream: Any, sock: socket.socket, codec: SnapshotEncoder, envelope: SnapshotEnvelope
) -> Iterator[SnapshotRows]:
    input_of = select.poll()
    input_of.register(sock, select.POLLIN)
    buffer = bytearray(BLOCK_BYTES)
    # The bytes that the driver has buffered come first, the rest comes from the socket. Not readinto1: with a large
    # view it waits for the socket although bytes are buffered.
    ahead = stream.read(len(stream.peek(1)))
    buffer[: len(ahead)] = ahead
    received = filled = len(ahead)
    needed = 0
    while True:
        if not received:
            raise SourceUnavailableError(
                "the server closed the connection while a table was read", hint="check the server's log"
            )
        if filled >= needed:
            with memoryview(buffer) as view:
                block = codec.snapshot(view, 0, filled, envelope)
                rest = filled - block.consumed
                if block.consumed:
                    view[:rest] = view[block.consumed : filled]
                    filled = rest
                needed = _end_of_first_row(view, filled)
            if block.finished:
                if rest:
                    raise SourceError("bytes follow the end of a result set", bytes=rest)
                yield block
                return
            if block.records:
                yield block
            size = max(BLOCK_BYTES, needed + BLOCK_BYTES // 2)
            if size > len(buffer):
                buffer += bytes(size - len(buffer))
            elif size < len(buffer):
                del buffer[size:]
        with memoryview(buffer) as view:
            received = stream.raw.readinto(view[filled:])
            filled += received
            enough = min(_ENOUGH_BYTES, len(buffer))
            while received and filled < enough and not _may_end(view, filled) and _has_more(sock, input_of):
                received = stream.raw.readinto(view[filled:])
                filled += received


def _may_end(view: memoryview, filled: int) -> bool:
    """Return whether the last bytes are those of an EOF packet. A row may end with them too."""
    start = filled - _EOF_BYTES
    return start >= 0 and bytes(view[start : start + 3]) == _EOF_START and view[start + 4] == _EOF


def _has_more(sock: socket.socket, input_of: select.poll) -> bool:
    """Return whether more bytes are here or come soon. After an ERR packet none come."""
    return (isinstance(sock, ssl.SSLSocket) and sock.pending() > 0) or bool(input_of.poll(_MORE_MS))


def _end_of_first_row(view: memoryview, filled: int) -> int:
    """Return the least number of bytes that the buffer must contain before the first row can be decoded."""
    at = 0
    while at + 4 <= filled:
        size = int.from_bytes(view[at : at + 3], "little")
        at += 4 + size
        if size < _WHOLE_PACKET:
            return at
    return at + 4
