"""What the server says when it ends a dump, as an error that tells whether to try again."""

from __future__ import annotations

from typing import Any, Final

from tailrace.producer.errors import BinlogError, SourceError, SourceUnavailableError
from tailrace.runtime.errors import TailraceError

_FATAL_READING_LOG: Final = 1236
_ACCESS_DENIED: Final = frozenset({1045, 1227})


def from_err_packet(packet: bytes, file: str, pos: int) -> TailraceError:
    """Return the error for an EOF or ERR packet (without its header) of the dump connection."""
    if packet[0] != 0xFF:
        return SourceUnavailableError("the source ended the stream of its log", file=file, pos=pos)
    code = int.from_bytes(packet[1:3], "little")
    text = packet[3:].decode("utf-8", "replace")
    text = text[6:] if text.startswith("#") else text
    return from_code(code, text, file, pos)


def from_code(code: int, text: str, file: str, pos: int) -> TailraceError:
    """Return the error for an error code of the dump connection."""
    facts: dict[str, Any] = {"code": code, "answer": text, "file": file, "pos": pos}
    if code == _FATAL_READING_LOG:
        return BinlogError("the source cannot send its log from the stored position", hint=hint_for(text), **facts)
    if code in _ACCESS_DENIED:
        return SourceError(
            "the account may not read the log",
            hint="GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* to the account",
            **facts,
        )
    return SourceUnavailableError("the source ended the stream of its log", **facts)


def hint_for(text: str) -> str:
    said = text.lower()
    if "purged" in said or "could not find" in said:
        return (
            "the log was purged past the stored position: take a new snapshot, and keep the log longer "
            "(binlog_expire_logs_seconds)"
        )
    if "server_uuid/server_id" in said or "same server" in said:
        return "give database.server.id a value that no replica and no other reader of this server uses"
    if "more gtids than" in said:
        return "the server is not the one, or not the state, that was followed before: take a new snapshot"
    if "checksum" in said:
        return "set binlog_checksum to CRC32 or NONE"
    return "see the answer; if the log is damaged, take a new snapshot"
