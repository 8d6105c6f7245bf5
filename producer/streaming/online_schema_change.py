"""The table swaps of online schema change tools: the copy has the same rows, in another definition.

gh-ost and pt-online-schema-change copy a table to a table of another definition, apply its changes there, and swap the
names. A swap is taken for a tool's only if that is certain, since anybody may give such names to a table with other
rows: the stream has read all statements on the copy since its CREATE, all but one of them leave columns and rows as
they are, and the tool has left its mark. gh-ost puts a comment into each of its statements, pt-online-schema-change
makes three triggers. Any other swap is that of two tables.

Invariant: the topic is taken for that of the copy only if the copy certainly has all rows, with equal values. The tools
leave out rows that the copy does not take (INSERT IGNORE), so what is not known to keep every row (``keeps_rows``), or
its values, is read, after a record CREATED. The columns of the table change as by an ALTER in either case.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

import structlog

from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId

log = structlog.get_logger(__name__)

_MAX_REMEMBERED: Final = 1000
_COPY: Final = re.compile(r"_+.*_(?:gho|new)", re.DOTALL)
_TRIGGER: Final = re.compile(
    r"CREATE\b.*?\bTRIGGER `pt_osc_[^`]+` AFTER (INSERT|UPDATE|DELETE) ON (?:`([^`]+)`\.)?`([^`]+)`\s", re.DOTALL
)
_DROPPED_TRIGGER: Final = re.compile(r"DROP TRIGGER\b.*\bpt_osc_", re.DOTALL)
_TRIGGERS: Final = 3


class ToolSwap(NamedTuple):
    """A swap of a tool."""

    alteration: DdlEffect
    """What its statements on the copy are for the table that the copy replaces; without columns: they are the same."""
    former: TableId
    """The new name of the table that was replaced."""


class OnlineSwaps:
    """Remembers the copies that tools make, and recognizes their swaps; used by the stream's thread."""

    def __init__(self, lacks_rows: Callable[[TableId], bool]) -> None:
        """``lacks_rows``: whether the topic of a table is not complete, so that its copy is not the same table."""
        self._lacks_rows = lacks_rows
        self._renamed_to: dict[TableId, TableId] = {}
        """Tables that were renamed away: gh-ost can rename in two statements."""
        self._alters: dict[TableId, list[DdlEffect]] = {}
        """Tables with the name of a copy whose CREATE was read, and the statements that altered columns or rows."""
        self._triggers: dict[TableId, set[str]] = {}
        """Tables with triggers of pt-online-schema-change."""

    def on_statement(self, event: QueryEvent, effects: Sequence[DdlEffect]) -> list[ToolSwap]:
        for remembered in (self._renamed_to, self._alters, self._triggers):
            if len(remembered) > _MAX_REMEMBERED:
                remembered.clear()
        if not effects:
            self._on_trigger(event)
        found: list[ToolSwap] = []
        for effect in effects:
            if effect.change is Change.RENAME and effect.renamed_from is not None:
                swap = self._on_rename(event, effect.renamed_from, effect)
                found += [] if swap is None else [swap]
            else:
                self._on_definition(effect)
        return found

    def _on_trigger(self, event: QueryEvent) -> None:
        created = _TRIGGER.match(event.sql)
        if created is not None:
            when, database, table = created.groups()
            self._triggers.setdefault(TableId(database or event.database, table), set()).add(when)
        elif _DROPPED_TRIGGER.match(event.sql):
            self._triggers.clear()  # the statement does not name the table

    def _on_definition(self, effect: DdlEffect) -> None:
        alters = self._alters.get(effect.table)
        if effect.change is Change.CREATE and not effect.may_exist and _COPY.fullmatch(effect.table.table):
            self._alters[effect.table] = []
        elif effect.change is not Change.ALTER:
            self._alters.pop(effect.table, None)
        elif alters is not None and (effect.columns or not effect.keeps_rows):
            alters.append(effect)

    def _on_rename(self, event: QueryEvent, renamed_from: TableId, effect: DdlEffect) -> ToolSwap | None:
        table, alters = effect.table, self._alters.pop(renamed_from, None)
        if not self._lacks_rows(renamed_from):
            self._renamed_to[renamed_from] = table
        former = self._renamed_to.pop(table, None)
        if former is None or alters is None or len(alters) > 1:
            return None
        if "/* gh-ost */" in event.sql:
            tool, copy, replaced = "gh-ost", "gho", "del"
        elif len(self._triggers.pop(table, ())) == _TRIGGERS:
            tool, copy, replaced = "pt-online-schema-change", "new", "old"
        else:
            return None
        if not (_has_name(renamed_from, table, copy) and _has_name(former, table, replaced)):
            return None
        log.info(
            "a table is replaced by the copy of an online schema change tool",
            table=str(table),
            tool=tool,
            alteration=alters[0].sql[:200] if alters else "",
        )
        statement = alters[0] if alters else effect._replace(keeps_rows=True)
        return ToolSwap(statement._replace(change=Change.ALTER, table=table, renamed_from=None), former)


def _has_name(table: TableId, of: TableId, suffix: str) -> bool:
    """Return whether a tool has named a table after ``of``: ``_t_gho``, ``_t_20260101000000_del``, ``__t_new``."""
    if table.database != of.database:
        return False
    return re.fullmatch(rf"_+{re.escape(of.table)}(?:_\d{{14}})?_{suffix}", table.table) is not None
