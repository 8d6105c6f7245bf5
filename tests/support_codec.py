"""Row images from a real server's binlog file, and tables from its catalog, by code as plain as can be."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pymysql.connections import Connection

from producer.codec.contract import EventStamp, SnapshotStamp
from producer.database.table import Column, Table, TableId

SNAPSHOT_STAMP = SnapshotStamp(b',"source":{"row":0},"op":"r"}')
EVENT_STAMP = EventStamp(b',"source":{"row":', b'},"op":"', b'"}')

_KINDS = {"tinyblob": "blob", "mediumblob": "blob", "longblob": "blob"} | {
    "tinytext": "text",
    "mediumtext": "text",
    "longtext": "text",
}
_OPS = {30: "c", 31: "u", 32: "d"}


class RowsEvent(NamedTuple):
    """Row images of one event."""

    op: str
    data: bytes
    start: int
    end: int


def run(connection: Connection[Any], *statements: str) -> list[tuple[Any, ...]]:
    """Run statements; return the rows of the last."""
    with connection.cursor() as cursor:
        for statement in statements:
            cursor.execute(statement)
        return list(cursor.fetchall())


def read_table(connection: Connection[Any], database: str, table: str, key: Sequence[str] = ("id",)) -> Table:
    """Describe a table as the catalog has it."""
    rows = run(
        connection,
        "SELECT column_name, data_type, column_type, is_nullable, character_octet_length, numeric_precision,"
        " numeric_scale, datetime_precision, character_set_name FROM information_schema.columns"
        f" WHERE table_schema = '{database}' AND table_name = '{table}' ORDER BY ordinal_position",
    )
    return Table(TableId(database, table), tuple(_column(*row) for row in rows), tuple(key))


def _column(name: str, kind: str, full: str, nullable: str, octets: int | None, *rest: Any) -> Column:
    precision, scale, fsp, charset = rest
    labels = re.findall(r"'((?:[^']|'')*)'", full) if kind in {"enum", "set"} else []
    kind = _KINDS.get(kind, kind)
    length = int(precision) if kind == "bit" else int(octets or 0) if kind not in {"enum", "set", "json"} else 0
    return Column(
        name=name,
        kind=kind,
        nullable=nullable == "YES",
        unsigned="unsigned" in full,
        length=length,
        precision=int(precision) if kind == "decimal" else 0,
        scale=int(scale) if kind == "decimal" else 0,
        fsp=int(fsp or 0),
        charset=charset or ("binary" if kind in {"binary", "varbinary", "blob"} else ""),
        labels=tuple(label.replace("''", "'") for label in labels),
    )


def log_position(connection: Connection[Any]) -> tuple[Path, int]:
    """Return the binlog file and offset that the next event will have."""
    file, position = run(connection, "SHOW MASTER STATUS")[0][:2]
    base = run(connection, "SELECT @@log_bin_basename")[0][0]
    return Path(base).parent / file, int(position)


def row_events(connection: Connection[Any], since: tuple[Path, int]) -> Iterator[RowsEvent]:
    """Yield the rows events written from a position on, of whatever table."""
    file, at = since
    last_file, end = log_position(connection)
    assert last_file == file
    log = file.read_bytes()[:end]
    while at < end:
        kind = log[at + 4]
        size = int.from_bytes(log[at + 9 : at + 13], "little")
        if kind in _OPS:
            event = log[at : at + size - 4]
            p = 19 + 8
            p += int.from_bytes(event[p : p + 2], "little")
            columns = event[p]
            assert columns < 251
            bitmap = (columns + 7) // 8
            p += 1 + bitmap * (2 if kind == 31 else 1)
            yield RowsEvent(_OPS[kind], event, p, len(event))
        at += size
