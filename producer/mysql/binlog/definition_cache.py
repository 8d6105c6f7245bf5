"""Table definitions by the bytes of their TABLE_MAP events, so that each definition is read once.

A definition keeps its object as long as it is cached: codecs belong to the object.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from tailrace.producer.model.binlog_events import TableVersion
from tailrace.producer.model.table import TableId
from tailrace.producer.mysql.binlog.cached_table import CachedTable
from tailrace.producer.mysql.binlog.table_map import read_id, read_table_map
from tailrace.runtime.errors import SchemaError

_MAX_DEFINITIONS: Final = 20_000
"""Definitions before those without a recent event are dropped: a server may create tables continuously."""


class DefinitionCache:
    """The definitions that one parser has read; None for tables that are not captured."""

    def __init__(self, captures: Callable[[TableId], bool]) -> None:
        self._captures = captures
        self._year_has_sign = False
        self._unused: dict[bytes, CachedTable | None] = {}
        self.recent: dict[bytes, CachedTable | None] = {}
        """Always the same object, so that the parser finds most definitions without a call."""

    def __len__(self) -> int:
        return len(self.recent) + len(self._unused)

    def add(self, body: bytes) -> CachedTable | None:
        """Return the definition in a TABLE_MAP event that is not in ``recent``, and put it there."""
        if len(self.recent) >= _MAX_DEFINITIONS:
            # Those in use are taken over one by one.
            self._unused = self.recent.copy()
            self.recent.clear()
        cached = self._unused.pop(body) if body in self._unused else self._read(body)
        self.recent[body] = cached
        return cached

    def on_format(self, *, year_has_sign: bool) -> None:
        """Drop all definitions if a new file describes YEAR in another way."""
        if year_has_sign != self._year_has_sign:
            self._year_has_sign = year_has_sign
            self.recent.clear()
            self._unused.clear()

    def _read(self, body: bytes) -> CachedTable | None:
        table = read_id(body)
        if not self._captures(table):
            return None
        try:
            return CachedTable(read_table_map(body, year_has_sign=self._year_has_sign))
        except SchemaError as error:
            return CachedTable(TableVersion(table, (), (), b""), error)
