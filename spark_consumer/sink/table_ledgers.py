"""What the tables of a sink have applied, as this process knows it, and the commits that advance it.

A commit with a ledger follows the ledger that is known. A table format tells in its own way that another process has
committed in between: Delta counts the commits with a ledger, and of two with one number it refuses the later one or
leaves it out. So a commit is done when its ledger is the newest one.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final, Generic

from tailrace.spark_consumer.sink.ledger import Ledger, changed_meanwhile
from tailrace.spark_consumer.sink.table_upkeep import Table

_ATTEMPTS: Final = 5


class TableLedgers(dict[str, Ledger | None], Generic[Table]):
    """By topic, for tables that exist; None if the history of a table does not tell what it has applied."""

    def __init__(self, topic_id: Callable[[str], str], run: Callable[[Callable[[], Any], Table], Any]) -> None:
        """``topic_id``: Kafka's id of a topic, '' if not known. ``run``: runs a commit, again after a conflict."""
        super().__init__()
        self._topic_id = topic_id
        self._run = run
        self._writer = uuid.uuid4().hex[:12]
        """Tells the commits of this process from those of others."""

    def advance(
        self, table: Table, topic: str, after: Callable[[Ledger], Ledger], commit: Callable[[Ledger], None]
    ) -> None:
        """Make the commit with the ledger ``after(the one of the newest version)``.

        Raises SinkError if another process has made one since this one read or wrote the ledger: its batch is not the
        one that follows. Of a shared table, the commits of other topics are none of another process, and their ledgers
        go on as they are in the newest version.
        """

        def attempt() -> bool:
            ledger = after(self.followed(table, topic, table.newest_ledger(topic)))
            commit(ledger)
            stored = table.newest_ledger(topic) or Ledger(topic)
            if not stored.is_same(ledger):
                # It was left out, because another commit was made before.
                stored.require_known(self[topic], table.name)
                return False
            self[topic] = ledger
            return True

        for _ in range(_ATTEMPTS):
            if self._run(attempt, table):
                return
        raise changed_meanwhile(table.name, attempts=_ATTEMPTS)

    def followed(self, table: Table, topic: str, newest: Ledger | None) -> Ledger:
        """Return the ledger of the newest version, for the commit that follows it. Raises SinkError as ``advance``."""
        found, topic_id = newest or Ledger(topic), self._topic_id(topic)
        if found.is_of_another_topic(topic_id):
            found = Ledger(topic, others=found.others)  # none of its rows is left: the sink has looked
        found.require_known(self[topic], table.name)
        if table.shard is not None:
            found = replace(found, others=found.others or {})
        return replace(found, id=topic_id or found.id, writer=self._writer)
