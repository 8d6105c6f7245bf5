"""The part of the binlog that is read a second time, behind a signal that has set the stream back.

The rows there are what they were, and the last change of a key counts, so rows need nothing. Statements do: a reader
has the columns of now, with the values of rows that are not written again. It takes an earlier definition for a new
one: a column that had another name then is gone for it, and comes back without values.

Invariant: each table that a statement in this part has altered is read as a whole as soon as the part is passed, and
readers drop what they have of it (``former_tables.py``). Until then the state has the end of the part and the names of
these tables, written in the Kafka transaction of the statement. So no other position is set meanwhile: statements that
are left out would not be known; and where changes are lost meanwhile, all tables are read.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

import structlog

from tailrace.producer.kafka.moved_position import REPLAY_KEY, ReplayedPart
from tailrace.producer.model.table import TableId
from tailrace.producer.streaming.stream_transaction import StreamTransaction

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Replay:
    """Remembers the altered tables; used by the stream's thread."""

    part: ReplayedPart | None = None
    """None: the stream reads what it has not read before."""

    def on_alteration(self, transaction: StreamTransaction, table: TableId, statement: str) -> None:
        if self.part is None or str(table) in self.part.tables:
            return
        self.part = replace(self.part, tables=(*self.part.tables, str(table)))
        transaction.store(REPLAY_KEY, self.part.to_json())
        log.warning(
            "a table was altered in the binlog that is read again: all its rows are read when the stream has passed it",
            table=str(table),
            statement=statement[:200],
            passed_at=self.part.until.to_json(),
        )

    def take_passed(self, transaction: StreamTransaction) -> tuple[str, ...]:
        """Return the tables to read, once the end of the part is reached."""
        part = self.part
        if part is None or not transaction.offset.position.reaches(part.until):
            return ()
        self.part = None
        transaction.store(REPLAY_KEY, None)
        log.info("the stream has passed what it has read again", tables=", ".join(part.tables))
        return part.tables
