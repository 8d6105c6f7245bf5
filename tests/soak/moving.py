"""A database whose tables go and come back, and the check of their topics.

While such a table is away its topic may lack changes, so the binlog does not say what the topic must have. What counts
is what a reader has at the end that applies topic and watermarks as the consumer does: the rows of the source. No
record may be of a change that the binlog does not have, or have it more often.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from typing import Any, Final

import pymysql

from tailrace.schemas.names import watermarks_topic
from tailrace.schemas.watermark import Watermark
from tests.embedded.kafka import KafkaBroker
from tests.soak.audit import BinlogAudit
from tests.soak.history import TableHistory
from tests.soak.tables import FORMER
from tests.soak.topic import Topic
from tests.soak.verify import Verdict
from tests.support.topics import read_topic
from tests.support.upsert_reader import consumer_rows

NAMES: Final = ("m0", "m1", "m2", "m3")
"""Tables that writers change, if they are there."""

COPIED: Final = "copied"
"""The table that gh-ost and pt-online-schema-change copy. No writer changes it: the copy would not follow."""

ADDED: Final = {"w": 5}
"""The column that a copy adds, with its default: records before it lack the value."""

Rows = dict[int, dict[str, Any]]


def moving(database: str) -> str:
    """Return the captured database whose tables go and come back."""
    return f"{database}_moving"


def create(cursor: Any, rng: random.Random, table: str) -> None:
    """Create a table if it is not there, with no row, or few, or many."""
    cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, v VARCHAR(50))")
    rows = [(number, _value(rng)) for number in range(rng.choice((0, 3, 300)))]
    cursor.executemany(f"REPLACE INTO {table} (id, v) VALUES (%s, %s)", rows)


def change(cursor: Any, rng: random.Random, table: str) -> None:
    """Run one random change of a table."""
    key = rng.randrange(400)
    kind = rng.random()
    if kind < 0.3:
        cursor.execute(f"DELETE FROM {table} WHERE id = {key}")
    elif kind < 0.4:
        cursor.execute(f"DELETE FROM {table} WHERE id % 17 = {key % 17}")
    elif kind < 0.6:
        cursor.execute(f"UPDATE {table} SET v = CONCAT('{_value(rng)}-', id) WHERE id % 7 = {key % 7}")
    else:
        cursor.execute(f"REPLACE INTO {table} (id, v) VALUES ({key}, '{_value(rng)}')")


def _value(rng: random.Random) -> str:
    return f"v{rng.randrange(10**9)}"


def source_rows(session: Any, database: str) -> dict[str, Rows]:
    """Return the rows of the tables that are there now."""
    found: dict[str, Rows] = {}
    with session.cursor(pymysql.cursors.DictCursor) as cursor:
        cursor.execute(f"SHOW TABLES FROM {moving(database)}")
        for name in [name for row in cursor.fetchall() for name in row.values()]:
            if re.fullmatch(rf"_.*_({FORMER})", name):
                continue
            cursor.execute(f"SELECT * FROM {moving(database)}.{name}")
            found[name] = {row["id"]: row for row in cursor.fetchall()}
    return found


def verify_moving(
    broker: KafkaBroker, prefix: str, database: str, source: dict[str, Rows], *, audit: BinlogAudit
) -> list[Verdict]:
    """Check the tables of ``moving``."""
    found = [record.value for record in read_topic(broker.bootstrap, watermarks_topic(prefix))]
    marks = [Watermark.from_json(value) for value in found if value]
    names = {table for in_database, table in audit.tables if in_database == moving(database)} | source.keys()
    verdicts: list[Verdict] = []
    for table in sorted(names):
        name = f"{moving(database)}.{table}"
        try:
            records = read_topic(broker.bootstrap, f"{prefix}.{name}")
        except KeyError:  # nobody has written to it
            records = []
        topic = Topic(table, records)
        rows = {row["id"]: row for row in consumer_rows(broker, prefix, name).values()} if records else {}
        lost = [f"{name}: {each}" for each in differing(rows, source[table])] if table in source else []
        history = audit.history(moving(database), table)
        more, changes = surplus(history, topic)
        problems = [*topic.problems, *topic.certificates(mark for mark in marks if mark.topic == f"{prefix}.{name}")]
        problems += [*lost, *(f"{name}: more often than in the binlog: {each}" for each in more)]
        verdicts.append(Verdict(len(records), changes, len(lost), more.total(), tuple(problems)))
    return verdicts


def differing(rows: Rows, source: Rows) -> list[str]:
    """Return the keys whose rows differ."""
    found: list[str] = []
    for key in rows.keys() | source.keys():
        has, row = rows.get(key), source.get(key)
        if has is None or row is None or any((ADDED | has).get(column) != row[column] for column in row):
            found.append(f"{key}: readers have {has}, the source {row}")
    return found


def surplus(history: TableHistory, topic: Topic) -> tuple[Counter[str], int]:
    """Return the changes that a topic has more often than the binlog, and how many the binlog has."""
    wanted = Counter(repr((key, each)) for key, keys in history.keys.items() for each in keys.changes)
    have = Counter(repr((key, each.change)) for key, entries in topic.keys.items() for each in entries if each.change)
    return have - wanted, wanted.total()
