"""Table definitions by the bytes of their TABLE_MAP events, so that each definition is read once."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import ClassVar, Final

from tailrace.producer.errors import BinlogError
from tailrace.producer.model.binlog_events import QueryEvent, TableVersion
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.event_types import FileFormat
from tailrace.producer.mysql.binlog.proven_definitions import ProvenDefinitions, UnprovenError, UnsettledError, Wanted
from tailrace.producer.mysql.binlog.table_map import (
    DefinitionDiffersError,
    MapFormat,
    packed,
    read_id,
    read_table_map,
    unnamed,
)
from tailrace.runtime.errors import SchemaError


class CachedTable:
    """A captured table, and the bytes before the images in its rows events, taken from the first event of each form.

    They are those of an event without extra data.
    """

    __slots__ = ("count", "double", "error", "present", "refused", "single", "table")

    def __init__(self, table: TableVersion, error: SchemaError | None = None) -> None:
        """``error``: the definition cannot be read, so its rows cannot either."""
        self.table = table
        self.error = error
        self.refused = False
        """Rows were refused with the error, and not in an XA transaction, which may be rolled back."""
        self.count = len(table.columns)
        self.present = (1 << self.count) - 1
        self.single = self.double = b"\xff\xff"  # no event begins like this

    def drop_hidden_columns(self, present: int) -> bool:
        """Drop hidden columns of functional indexes: servers before 8.0.18 describe them but do not log them."""
        kept = present.bit_length()
        if present != (1 << kept) - 1 or not all(_is_hidden_column(c.name) for c in self.table.columns[kept:]):
            return False
        table = self.table
        self.table = table._replace(columns=table.columns[:kept], fingerprint=table.fingerprint + b"%d" % kept)
        self.present = present
        return True

    def row_start(self, data: bytes, at: int, *, update: bool) -> int | SchemaError:
        """Return where the images begin in a rows event whose header was not seen before, or why it is refused."""
        extra = int.from_bytes(data[at : at + 2], "little")
        start = self.check_columns(data, at + extra, update=update)
        if isinstance(start, int):
            head = b"\2\0" + data[at + extra : start]
            if update:
                self.double = head
            else:
                self.single = head
        return start

    def check_columns(self, data: bytes, at: int, *, update: bool) -> int | SchemaError:
        """Check that rows have all columns of their table; return where the images begin, or why they are refused."""
        if self.error is not None:
            return type(self.error)(self.error.message, hint=self.error.hint, **self.error.context)
        count, at = packed(data, at)
        if count != self.count:
            raise BinlogError(
                f"rows of {self.table.id} have {count} columns, but their TABLE_MAP event has {self.count}"
            )
        size = (count + 7) // 8
        for _ in range(2 if update else 1):
            # The bits after the last column have no meaning.
            present = int.from_bytes(data[at : at + size], "little") & ((1 << count) - 1)
            if present != self.present and not self.drop_hidden_columns(present):
                columns = self.table.columns
                absent = [column.name for at, column in enumerate(columns) if not present >> at & 1]
                return SchemaError(
                    f"rows of {self.table.id} are logged without some of their columns",
                    hint="SET GLOBAL binlog_row_image=FULL, also for sessions that set it; if the columns are "
                    "generated, MariaDB never logs them in an UPDATE or a DELETE: exclude the table, or drop them",
                    columns=", ".join(absent),
                )
            at += size
        return at


_is_hidden_column: Final = re.compile(r"[0-9a-f]{32}").fullmatch
_MAX_DEFINITIONS: Final = 20_000
"""Definitions before those without a recent event are dropped: a server may create tables continuously."""


class DefinitionCache:
    """The definitions that one parser has read; None for tables that are not captured."""

    _shape_has_charset: ClassVar[bool] = False

    def __init__(self, captures: Callable[[TableId], bool], proven: ProvenDefinitions | None = None) -> None:
        """``proven`` completes TABLE_MAP events without names."""
        self._captures = captures
        self._proven = proven
        self._unnamed = unnamed if proven is None else proven.of
        self._format = MapFormat()
        self._unused: dict[bytes, CachedTable | None] = {}
        self._unproven: dict[TableId, CachedTable] = {}
        """The last one of each table that had no proven definition: a transaction may have many such events."""
        self.recent: dict[bytes, CachedTable | None] = {}
        """Always the same object, so that the parser finds most definitions without a call."""
        if proven is not None:
            proven.on_ended = self.forget

    def __len__(self) -> int:
        return len(self.recent) + len(self._unused)

    def add(self, body: bytes, at: tuple[str, int, int] = ("", 0, 0)) -> CachedTable | None:
        """Return the definition in a TABLE_MAP event that is not in ``recent``, and put it there.

        ``at``: file and position of the event, and where its transaction begins. Raises UnsettledError.
        """
        if len(self.recent) >= _MAX_DEFINITIONS:
            # Those in use are taken over one by one.
            self._unused = self.recent.copy()
            self.recent.clear()
        try:
            cached = self._unused.pop(body) if body in self._unused else self._read(body)
        except UnsettledError:
            assert self._proven is not None
            self._proven.want(Wanted(read_id(body), *at))
            raise
        if cached is not None and isinstance(cached.error, DefinitionDiffersError) and self._proven is not None:
            self._proven.differs(Wanted(cached.table.id, *at), cached.error)
        if cached is None or not isinstance(cached.error, UnprovenError | DefinitionDiffersError):
            self.recent[body] = cached
        return cached

    def on_statement(self, event: QueryEvent) -> tuple[TableId, ...]:
        """Forget the definitions that a statement may change; return the tables that had one which was proven."""
        changed = () if self._proven is None else self._proven.on_statement(event)
        if changed:
            self.forget()
        return changed

    def forget(self) -> None:
        """Read each definition again."""
        self.recent.clear()
        self._unused.clear()

    def on_format(self, file_format: FileFormat) -> None:
        """Drop all definitions if a new file describes columns in another way."""
        read = MapFormat(file_format.year_has_sign, self._shape_has_charset, file_format.bare_doubles)
        if read != self._format:
            self._format = read
            self.forget()

    def _read(self, body: bytes) -> CachedTable | None:
        table = read_id(body)
        if not self._captures(table):
            return None
        former = self._unproven.get(table)
        if former is not None and former.refused and former.error is not None and self._proven is not None:
            self._proven.on_refused(table, former.error)
        try:
            described = self._describe(body)
            return None if described is None else CachedTable(described)
        except UnprovenError as error:
            if former is None or former.error is None or str(former.error) != str(error):
                former = self._unproven[table] = CachedTable(TableVersion(table, (), (), b""), error)
            return former
        except SchemaError as error:
            return CachedTable(TableVersion(table, (), (), b""), error)

    def _describe(self, body: bytes) -> TableVersion | None:
        """Return the definition in a TABLE_MAP event; None: what it describes has no changes. Raises SchemaError."""
        return read_table_map(body, self._format, self._unnamed)
