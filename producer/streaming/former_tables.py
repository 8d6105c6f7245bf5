"""A name is not an identity: which topics have rows of a former table of their table's name.

A table that is dropped, renamed, or no longer captured leaves its rows in its topic. A table that has the name later is
another one, also if it is the same one that comes back: nothing was read of it in between.

Invariant: CREATED empties a target only if every row that the table has will follow it: the stream has read the CREATE
of the table and no row of it, or all of it is read, which no signal stops. Before the first record of any other table
nothing is said: readers keep the rows of the former one, since the table may well be the same (a swap that began before
a start, a table that was included again).

Invariant: before the first record of a table whose topic may have rows of a former one, readers get a record CREATED.
Its position is behind every row of the former table, and not behind any row of the new one. So each way in which a
table leaves calls ``leave``, in the Kafka transaction of the offset behind it, and each way in which a table begins
calls ``enter``: with its plan, also one that goes on after a start, with its first change, or with the statement that
creates it or gives it its name. A table that is read again because changes of it are lost (with the binlog, or with
its topic) is another one too: it leaves in the transaction that requests the reading, and enters before the stream
goes on (``NewTables.restore``, ``SnapshotCoordinator.resume_table``).
The state has one small record for each former table. It is removed when the name is used again, and if the topic is
gone: at a start, and whenever there are twice as many as there were.

The former table ended before the position at which the new one begins, since the log has both. Neither the id that
the server gives to a table would say more (an ALTER and TRUNCATE change it, each replica has its own), nor its
definition.
"""

from __future__ import annotations

import structlog

from tailrace.producer.model.protocols import Offset
from tailrace.producer.model.table import TableId
from tailrace.producer.streaming.context import StreamContext
from tailrace.producer.streaming.stream_transaction import StreamTransaction
from tailrace.producer.streaming.topics import CaptureTopics
from tailrace.producer.streaming.watermark_record import table_created
from tailrace.schemas.names import watermarks_topic

log = structlog.get_logger(__name__)


def former_key(table: object) -> bytes:
    return f"former/{table}".encode()


def leave(context: StreamContext, table: TableId) -> None:
    """A table ends here; its rows stay in its topic."""
    context.registry.former.add(str(table))
    context.transaction.store(former_key(table), b"{}")


def forget_without_topic(transaction: StreamTransaction, former: set[str], topics: CaptureTopics) -> None:
    """Forget the former tables whose topics do not exist any more: there are not more records than topics."""
    # A name with more dots has several readings; its record stays.
    for table in topics.without_topic(TableId(*name.split(".")) for name in former if name.count(".") == 1):
        former.discard(str(table))
        transaction.store(former_key(table), None)


def enter(context: StreamContext, table: TableId, at: Offset, *, follow: bool = True, known: bool = True) -> None:
    """A table begins: tell readers that what its topic has from before ``at`` is gone, if there may be such rows.

    ``follow``: all rows that the table has will be in the topic. ``known``: the state says what the topic has.
    """
    is_another = str(table) in context.registry.former
    if is_another and not follow:
        log.warning(
            "a table has the name of a former one, and its rows are not read: readers keep those of the former one",
            table=str(table),
            hint="send a signal execute-snapshot for the table, and compare its target",
        )
    elif is_another or (follow and not known):
        topic = context.tables.topic(table)
        record = table_created(table, topic, at, partitions=context.transaction.partitions(topic))
        context.transaction.send(watermarks_topic(context.settings.prefix), record.record_key(), record.to_json())
    stay(context, table)


def stay(context: StreamContext, table: TableId) -> None:
    """A table begins whose rows the topic has: a copy that replaces the former table.

    Only once it is tracked: if its end is read before it is, nothing else says that its rows are in the topic.
    """
    if str(table) in context.registry.former:
        context.registry.former.discard(str(table))
        context.transaction.store(former_key(table), None)
