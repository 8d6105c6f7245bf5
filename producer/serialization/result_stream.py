"""Reads a SELECT in blocks: raw row packets go from the socket to the codec, whole stretches at a time.

The driver sends the query and reads the head of the result set; the rows it never sees. Memory is one buffer, which
grows only to hold the longest row.
"""
# ruff: noqa: SLF001 - the driver has no public way to the packets; its version is pinned and every use is in this file.

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from pymysql.connections import Connection
from pymysql.constants import COMMAND
from pymysql.err import MySQLError

from tailrace.producer.model.codec import SnapshotEnvelope, SnapshotRows, TableCodec
from tailrace.producer.mysql.connection import translate_error
from tailrace.runtime.errors import SchemaError, SourceError, SourceUnavailableError

BLOCK_BYTES: Final = 512 * 1024
_WHOLE_PACKET: Final = 0xFFFFFF


def read_rows(
    connection: Connection[Any], sql: str, codec: TableCodec, stamp: SnapshotEnvelope
) -> Iterator[SnapshotRows]:
    """Run a SELECT of ``codec.select_list`` and yield its rows, encoded, a block at a time.

    The session must be in UTC and utf8mb4. After the last block the connection is free for the next query; when an
    error comes up, or the iterator is closed before its end, the connection is closed.
    Raises SourceError when the server refuses, SourceUnavailableError when it is gone, SchemaError when the result does
    not fit the codec.
    """
    session: Any = connection
    finished = False
    try:
        _start(session, sql, len(codec.schema.columns))
        for block in _blocks(session._rfile, codec, stamp):
            if block.finished:
                # The rows bypassed the driver; its next command numbers its packets from 0 again.
                finished = True
            yield block
    except MySQLError as error:
        raise translate_error(error, f"{session.host}:{session.port}", _user(session), sql) from error
    except OSError as error:
        raise SourceUnavailableError(
            "the connection broke while a table was read", hint="look at the server's log", cause=str(error)
        ) from error
    finally:
        if not finished:
            session._force_close()


def _user(session: Any) -> str:
    user = session.user
    return user.decode("utf-8", "replace") if isinstance(user, bytes) else str(user)


def _start(session: Any, sql: str, columns: int) -> None:
    """Send the query and read the head of its result set up to the first row."""
    if session.charset != "utf8mb4":
        raise SourceError(
            "the session's character set is not utf8mb4", hint="connect with charset=utf8mb4", seen=session.charset
        )
    session._execute_command(COMMAND.COM_QUERY, sql)
    head = session._read_packet()
    if head.is_ok_packet() or head.is_load_local_packet():
        raise SourceError("the statement that should read rows has no result set", hint="pass a SELECT")
    seen = head.read_length_encoded_integer()
    if seen != columns:
        raise SchemaError(
            "the result set has another number of columns than the table",
            hint="let the producer read the table's definition again",
            expected=columns,
            seen=seen,
        )
    for _ in range(columns):
        session._read_packet()
    if not session._read_packet().is_eof_packet():
        raise SourceError("the head of a result set does not end where it should")


def _blocks(stream: Any, codec: TableCodec, stamp: SnapshotEnvelope) -> Iterator[SnapshotRows]:
    buffer = bytearray(BLOCK_BYTES)
    # What the driver has read ahead comes first; then its buffer is empty, and the rest comes straight from the socket.
    # Not readinto1: with a large view it waits for the socket although bytes are at hand.
    ahead = stream.read(len(stream.peek(1)))
    buffer[: len(ahead)] = ahead
    got = filled = len(ahead)
    wanted = 0
    while True:
        if not got:
            raise SourceUnavailableError(
                "the server closed the connection while a table was read", hint="look at the server's log"
            )
        if filled >= wanted:
            with memoryview(buffer) as view:
                block = codec.snapshot(view, 0, filled, stamp)
                rest = filled - block.consumed
                if block.consumed:
                    view[:rest] = view[block.consumed : filled]
                    filled = rest
                wanted = _end_of_first_row(view, filled)
            if block.finished:
                if rest:
                    raise SourceError("bytes follow the end of a result set", bytes=rest)
                yield block
                return
            if block.records:
                yield block
            size = max(BLOCK_BYTES, wanted + BLOCK_BYTES // 2)
            if size > len(buffer):
                buffer += bytes(size - len(buffer))
            elif size < len(buffer):
                del buffer[size:]
        with memoryview(buffer) as view:
            got = stream.raw.readinto(view[filled:])
        filled += got


def _end_of_first_row(view: memoryview, filled: int) -> int:
    """Return how many bytes are at least needed before the first row can be read."""
    at = 0
    while at + 4 <= filled:
        size = int.from_bytes(view[at : at + 3], "little")
        at += 4 + size
        if size < _WHOLE_PACKET:
            return at
    return at + 4
