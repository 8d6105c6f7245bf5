"""Faults before the consumer: partitions that are added, and tables of the source that go and come back."""

from __future__ import annotations

import time
from typing import Final

from confluent_kafka.cimpl import NewPartitions

from tests.soak.consumer.context import ConsumerContext
from tests.soak.ddl import away
from tests.soak.tables import change

_MOST_PARTITIONS: Final = 6


def add_partition(context: ConsumerContext) -> None:
    """A topic gets one more partition while its table is written."""
    topic, admin = context.topic(context.any_table()), context.broker.admin()
    count = len(admin.list_topics(topic, timeout=60).topics[topic].partitions)
    if count < _MOST_PARTITIONS:
        admin.create_partitions([NewPartitions(topic, count + 1)])[topic].result(60)


def recreate_table(context: ConsumerContext) -> None:
    """DROP and CREATE of a table, and some rows of the new one."""
    table = context.any_table()
    with context.database.connect() as session, session.cursor() as cursor:
        cursor.execute(f"DROP TABLE {table.name}")
        time.sleep(context.rng.choice((0, 3)) * context.rng.random())
        cursor.execute(table.create())
        for _ in range(context.rng.choice((0, 30))):
            change(cursor, table, context.rng, 100)


def rename_table(context: ConsumerContext) -> None:
    """RENAME of a table into a database that is not captured, and back; it is changed meanwhile."""
    table, name = context.any_table(), context.database.name
    with context.database.connect(database=away(name)) as session, session.cursor() as cursor:
        cursor.execute(f"RENAME TABLE {name}.{table.name} TO {away(name)}.{table.name}")
        for _ in range(context.rng.choice((0, 30))):
            change(cursor, table, context.rng, 100)
        time.sleep(context.rng.choice((0, 3)) * context.rng.random())
        cursor.execute(f"RENAME TABLE {away(name)}.{table.name} TO {name}.{table.name}")
