"""Faults of tables and topics: they go and come back, are copied, locked, excluded, and get partitions."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

import pymysql
from confluent_kafka.cimpl import NewPartitions
from pymysql.constants import ER

from tests.soak.ddl import away
from tests.soak.faults import Fault, RoundContext, kill_producer, send_signal, stop_producer
from tests.soak.moving import COPIED, NAMES, change, create, moving
from tests.soak.tables import KEYS, TABLES
from tests.soak.tables import change as change_row
from tests.soak.writer import commit_elsewhere
from tests.support.database import Database
from tests.support.online_schema_change import gh_ost, pt_online_schema_change

_TIMEOUTS: Final = "SET lock_wait_timeout = 5, innodb_lock_wait_timeout = 5"
_MOST_PARTITIONS: Final = 6


@contextmanager
def _cursor(context: RoundContext) -> Iterator[Any]:
    database = moving(context.round.database)
    session = context.cluster.primary.connect(database=database, init_command=_TIMEOUTS)
    with session, session.cursor() as cursor:
        yield cursor


def _meanwhile(context: RoundContext) -> None:
    """The producer reads what was done, or starts again, or both, or neither."""
    rng = context.round.rng
    if rng.random() < 0.4:
        rng.choice((kill_producer, stop_producer))(context)
    if rng.random() < 0.4:
        context.round.wait_read(context, "a table that went away")


def drop_and_create(context: RoundContext) -> None:
    """DROP TABLE and CREATE TABLE."""
    rng, name = context.round.rng, context.round.rng.choice((*NAMES, COPIED))
    with _cursor(context) as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {name}")
        _meanwhile(context)
        create(cursor, rng, name)


def drop_database(context: RoundContext) -> None:
    """DROP DATABASE and its tables again."""
    rng, name = context.round.rng, moving(context.round.database)
    with _cursor(context) as cursor:
        cursor.execute(f"DROP DATABASE {name}")
        _meanwhile(context)
        cursor.execute(f"CREATE DATABASE IF NOT EXISTS {name}")
        cursor.execute(f"USE {name}")
        for table in rng.sample(NAMES, 3):
            create(cursor, rng, table)


def rename_away_and_back(context: RoundContext) -> None:
    """RENAME to a database that is not captured, or to another name, changes there, and RENAME back."""
    rng, name = context.round.rng, context.round.rng.choice(NAMES)
    other = rng.choice((f"{away(context.round.database)}.{name}", f"{name}_aside"))
    with _cursor(context) as cursor:
        cursor.execute(f"DROP TABLE IF EXISTS {other}")
        create(cursor, rng, name)
        cursor.execute(f"RENAME TABLE {name} TO {other}")
        _meanwhile(context)
        for _ in range(rng.randrange(4)):
            change(cursor, rng, other)
        _meanwhile(context)
        cursor.execute(f"RENAME TABLE {other} TO {name}")


def copy_with_gh_ost(context: RoundContext) -> None:
    """The statements of gh-ost."""
    with _copied(context) as database:
        [(has,)] = database.execute(
            "SELECT COUNT(*) FROM information_schema.COLUMNS "
            f"WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = '{COPIED}' AND COLUMN_NAME = 'w'"
        )
        gh_ost(database, COPIED, *(["modify v varchar(60)"] if has else []))


def copy_with_pt(context: RoundContext) -> None:
    """The statements of pt-online-schema-change."""
    with _copied(context) as database:
        pt_online_schema_change(database, COPIED)


@contextmanager
def _copied(context: RoundContext) -> Iterator[Database]:
    """Create the table, without what a copy that was cut off has left."""
    with _cursor(context) as cursor:
        for ending in ("gho", "del", "ghc", "new", "old"):
            cursor.execute(f"DROP TABLE IF EXISTS _{COPIED}_{ending}")
        for ending in ("del", "upd", "ins"):
            cursor.execute(f"DROP TRIGGER IF EXISTS pt_osc_{COPIED}_{ending}")
        create(cursor, context.round.rng, COPIED)
    database = Database(context.cluster.primary, moving(context.round.database), create=False)
    try:
        yield database
    finally:
        database.close()


def exclude_or_include(context: RoundContext) -> None:
    """A start with tables excluded; a later one includes them."""
    rng = context.round.rng
    excluded = "table.exclude.list" in context.settings
    include(context)
    if not excluded or rng.random() < 0.3:
        names = rng.sample((*NAMES, COPIED), rng.randint(1, 2))
        context.settings["table.exclude.list"] = rf"{moving(context.round.database)}\.({'|'.join(names)})"
    context.producer.config.write_text(json.dumps(context.settings))
    rng.choice((kill_producer, stop_producer))(context)


def include(context: RoundContext) -> bool:
    """Write the configuration without exclusions; return whether it had any."""
    had = context.settings.pop("table.exclude.list", None) is not None
    context.producer.config.write_text(json.dumps(context.settings))
    return had


def add_partition(context: RoundContext) -> None:
    """A topic gets a partition. Not that of a table with TRUNCATE, which has an order within a partition only."""
    admin = context.broker.admin()  # a reference: its requests end with it
    topics = admin.list_topics(timeout=60).topics
    ours = [f"{context.settings['topic.prefix']}.{moving(context.round.database)}."]
    if context.round.has_xa:
        ours += [f"{context.settings['topic.prefix']}.{context.round.database}.{table}" for table in KEYS]
    found = {name: len(topic.partitions) for name, topic in topics.items() if name.startswith(tuple(ours))}
    possible = sorted(name for name, partitions in found.items() if partitions < _MOST_PARTITIONS)
    if possible:
        name = context.round.rng.choice(possible)
        admin.create_partitions([NewPartitions(name, found[name] + 1)])[name].result(60)


def lock_table(context: RoundContext) -> None:
    """LOCK TABLES, or the metadata lock of an ALTER that waits, while a snapshot reads the table."""
    rng = context.round.rng
    name = rng.choice((*NAMES, *KEYS))
    table = f"{context.round.database}.{name}" if name in KEYS else f"{moving(context.round.database)}.{name}"
    with _cursor(context) as cursor:
        if name in NAMES:
            create(cursor, rng, name)
        send_signal(context, "execute-snapshot", table)
        time.sleep(rng.random())
        if rng.random() < 0.5:
            cursor.execute(f"LOCK TABLES {table} WRITE")
            time.sleep(rng.uniform(0.5, 6))
            cursor.execute("UNLOCK TABLES")
            return
        cursor.execute("BEGIN")
        cursor.execute(f"SELECT 1 FROM {table} LIMIT 1")
        altering = threading.Thread(target=_alter, args=(context, table))
        altering.start()
        time.sleep(rng.uniform(0.5, 6))
        cursor.execute("COMMIT")
        altering.join()


def _alter(context: RoundContext, table: str) -> None:
    with _cursor(context) as cursor, suppress(pymysql.err.OperationalError):
        cursor.execute(f"ALTER TABLE {table} COMMENT 'locked'")


def start_with_prepared(context: RoundContext) -> None:
    """An XA transaction is prepared, the producer and maybe the source start again, another session commits it."""
    rng, primary = context.round.rng, context.cluster.primary
    xid = f"p{rng.randrange(10**12)}"
    with _cursor(context) as cursor:
        create(cursor, rng, NAMES[0])
        cursor.execute(f"XA START '{xid}'")
        cursor.execute(f"USE {context.round.database}")
        for table in rng.sample(TABLES, 2):
            change_row(cursor, table, rng, 500)
        change(cursor, rng, f"{moving(context.round.database)}.{NAMES[0]}")
        cursor.execute(f"XA END '{xid}'")
        cursor.execute(f"XA PREPARE '{xid}'")
    if rng.random() < 0.4:
        context.writers.pause()
        primary.stop()
        primary.start()
        context.writers.resume()
    rng.choice((kill_producer, stop_producer))(context)
    if rng.random() < 0.5:
        context.round.wait_read(context, "a prepared transaction")
    with primary.connect() as session, session.cursor() as cursor:
        commit_elsewhere(cursor, f"XA {rng.choice(('COMMIT', 'COMMIT', 'ROLLBACK'))} '{xid}'")


def impossible(error: pymysql.err.OperationalError) -> bool:
    """Whether a fault could not happen: a prepared transaction has the table."""
    return error.args[0] in {ER.LOCK_WAIT_TIMEOUT, ER.LOCK_DEADLOCK}


_ALWAYS: Final[tuple[Fault, ...]] = (
    drop_and_create,
    drop_database,
    rename_away_and_back,
    copy_with_gh_ost,
    copy_with_pt,
    exclude_or_include,
    add_partition,
    lock_table,
)
MOVING: Final = {fault.__name__: fault for fault in _ALWAYS}
"""Faults of every round."""
XA_MOVING: Final = {**MOVING, start_with_prepared.__name__: start_with_prepared}
"""Faults of a round with XA transactions."""
