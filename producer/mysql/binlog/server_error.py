"""Translates the packet with which the server ends a dump into an error; its class says whether to retry."""

from __future__ import annotations

from typing import Any, Final

from tailrace.producer.errors import BinlogError, ServerIdInUseError, SourceError, SourceUnavailableError
from tailrace.producer.mysql.binlog.event_types import GTID_HINT
from tailrace.runtime.errors import TailraceError

_FATAL_READING_LOG: Final = 1236
_ACCESS_DENIED: Final = frozenset({1045, 1227})


def from_err_packet(packet: bytes, file: str, pos: int) -> TailraceError:
    """Return the error for an EOF or ERR packet (without its header) of the dump connection."""
    if packet[0] != 0xFF:
        return SourceUnavailableError("the source ended the binlog stream", file=file, pos=pos)
    code = int.from_bytes(packet[1:3], "little")
    text = packet[3:].decode("utf-8", "replace")
    text = text[6:] if text.startswith("#") else text
    return from_code(code, text, file, pos)


def from_code(code: int, text: str, file: str, pos: int) -> TailraceError:
    """Return the error for an error code of the dump connection."""
    context: dict[str, Any] = {"code": code, "answer": text, "file": file, "pos": pos}
    if code == _FATAL_READING_LOG and _names_server_id(text):
        return ServerIdInUseError(
            "the source ended the binlog stream, since another one with the same server id has connected",
            hint="set database.server.id to a value that no replica and no other reader of this server uses",
            **context,
        )
    if code == _FATAL_READING_LOG:
        return BinlogError("the source cannot send its binlog from the stored position", hint=hint_for(text), **context)
    if code in _ACCESS_DENIED:
        return SourceError(
            "the account may not read the binlog",
            hint="GRANT REPLICATION SLAVE, REPLICATION CLIENT ON *.* to the account",
            **context,
        )
    return SourceUnavailableError("the source ended the binlog stream", **context)


def hint_for(text: str) -> str:
    """Return the hint for the text of a fatal error."""
    lowered = text.lower()
    if "purged" in lowered or "could not find" in lowered:
        return (
            "take a new snapshot under another topic.prefix: the binlog was purged past the stored position; and keep "
            "the binlog longer (binlog_expire_logs_seconds, expire_logs_days of MySQL 5.7)"
        )
    if "more gtids than" in lowered:
        return "take a new snapshot under another topic.prefix: the server is another one, or has lost transactions"
    if "auto_position" in lowered:
        return GTID_HINT
    if "checksum" in lowered:
        return "set binlog_checksum to CRC32 or NONE"
    return "see the answer; if the binlog is damaged, take a new snapshot under another topic.prefix"


def _names_server_id(text: str) -> bool:
    lowered = text.lower()
    return "server_uuid/server_id" in lowered or "same server" in lowered
