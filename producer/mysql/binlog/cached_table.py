"""A captured table of the stream, with what its rows events have in common."""

from __future__ import annotations

import re
from typing import Final

from tailrace.producer.model.binlog_events import TableVersion


class CachedTable:
    """A captured table, and the bytes before the images in its rows events, taken from the first event of each form."""

    __slots__ = ("count", "double", "present", "single", "table")

    def __init__(self, table: TableVersion) -> None:
        self.table = table
        self.count = len(table.columns)
        self.present = (1 << self.count) - 1
        self.single = self.double = b"\xff\xff"  # no event begins like this

    def drop_hidden_columns(self, present: int) -> bool:
        """Drop hidden columns of functional indexes: servers before 8.0.18 describe them but do not log them."""
        kept = present.bit_length()
        if present != (1 << kept) - 1 or not all(_is_hidden_column(c.name) for c in self.table.columns[kept:]):
            return False
        self.table = self.table._replace(columns=self.table.columns[:kept])
        self.present = present
        return True


_is_hidden_column: Final = re.compile(r"[0-9a-f]{32}").fullmatch
