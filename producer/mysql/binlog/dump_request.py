"""The requests by which a replica asks for the binlog: from a set of GTIDs on, or from the beginning of a file on.

A request is a command of the protocol and what follows it. The server answers with a packet for each event
(``packets.py``), and waits for further events at the end of its log.
"""

from __future__ import annotations

import struct
from typing import Final
from uuid import UUID

from pymysql.constants import COMMAND

from tailrace.producer.mysql.gtid import GtidSet

_THROUGH_GTID: Final = 4
"""Flag: the request has a set of GTIDs."""
_FIRST_EVENT: Final = 4
"""Position of the first event of a file, behind its magic number."""


def dump_from_gtids(executed: GtidSet, server_id: int) -> tuple[int, bytes]:
    """Return the request of all transactions that are not in a set."""
    sources = executed.intervals()
    body = [struct.pack("<Q", len(sources))]
    for source, intervals in sources:
        packed = [struct.pack("<QQ", first, last + 1) for first, last in intervals]
        body += [UUID(source).bytes, struct.pack("<Q", len(packed)), *packed]
    gtids = b"".join(body)
    name = b"\0\0\0"  # the server finds the file
    head = struct.pack("<HII", _THROUGH_GTID, server_id, len(name))
    return COMMAND.COM_BINLOG_DUMP_GTID, head + name + struct.pack("<QI", _FIRST_EVENT, len(gtids)) + gtids


def dump_from_file(name: str, server_id: int) -> tuple[int, bytes]:
    """Return the request of everything from the beginning of a file on."""
    return COMMAND.COM_BINLOG_DUMP, struct.pack("<IHI", _FIRST_EVENT, 0, server_id) + name.encode()
