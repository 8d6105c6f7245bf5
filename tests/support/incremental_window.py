"""Small tables, what happens in the window of one split that is read again, and what the topic must show of it then."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.schemas.names import INCREMENTAL_HEADER, state_topic
from tests.support.capture import eventually, properties
from tests.support.incremental_checks import ends_again, is_again, notifications, signal
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 200
CHUNK = 20
AT = 3
"""Number of the split in whose window things happen."""


def settings_of(
    server: MySqlServer, broker: KafkaBroker, prefix: str, database: Database, **changes: object
) -> dict[str, str]:
    """Return a configuration with small splits, signals by a topic, and notifications in one."""
    wanted = {
        "incremental.snapshot.chunk.size": CHUNK,
        "topic.creation.default.partitions": 1,
        "signal.poll.interval.ms": 50,
        "signal.enabled.channels": "kafka",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": notes_topic(prefix),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return properties(server, broker, prefix, database.name, wanted)


def notes_topic(prefix: str) -> str:
    """Return the topic of notifications."""
    return f"{prefix}.notes"


def fill(database: Database, *tables: str) -> None:
    """Make tables of ROWS rows."""
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(50))")
        database.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, f"{table}{n}") for n in range(1, ROWS + 1)])


def source_rows(database: Database, table: str) -> dict[int, str]:
    """Return what the source has."""
    return dict(database.execute(f"SELECT id, v FROM {table}"))


def ask(broker: KafkaBroker, prefix: str, database: Database, *tables: str) -> None:
    """Ask for tables to be read again."""
    names = [f"{database.name}.{table}" for table in tables]
    signal(broker, prefix, "execute-snapshot", {"data-collections": names}, "asked")


class Once:
    """A hook that acts in the window of one split that is read again, the first time it is read."""

    def __init__(self, table: str, act: Callable[[], None], number: int = AT) -> None:
        self._table, self._number, self._act = table, number, act
        self._lock = threading.Lock()
        self.done = False

    def __call__(self, split: Split) -> None:
        with self._lock:
            if not split.incremental or (split.table.table, split.number) != (self._table, self._number) or self.done:
                return
            self.done = True
        self._act()


def chained(records: Sequence[Read], *, same_columns: bool = True) -> dict[bytes, dict[str, Any]]:
    """Check that without the rows read again each key's changes follow from one another; return the rows they give.

    The table's first snapshot was over before its first change.
    """
    rows: dict[bytes, dict[str, Any]] = {}
    for record in records:
        if record.value is None or is_again(record):
            continue
        change = record.json
        if change["op"] == "t":
            rows.clear()
            continue
        assert record.key is not None
        before, known = change["before"], rows.pop(record.key, None)
        if not same_columns and before is not None and known is not None:
            before = {name: before[name] for name in known}
        assert before == known, f"{change['op']} of {record.key!r} at {record.offset}: from {before}, not {known}"
        if change["after"] is not None:
            rows[record.key] = change["after"]
    return rows


def kept(records: Sequence[Read], *, truncates: bool = True) -> dict[int, str]:
    """Return the table that a reader has who takes all records in order, rows read again as well."""
    rows: dict[int, str] = {}
    for record in records:
        if record.value is None:
            continue
        change = record.json
        if change["op"] == "t":
            assert record.key is None
            assert truncates
            rows.clear()
        elif change["after"] is None:
            rows.pop(change["before"]["id"], None)
        else:
            rows[change["after"]["id"]] = change["after"]["v"]
    return rows


def counted(broker: KafkaBroker, prefix: str, topic: str) -> None:
    """Check that each END of a split read again counts what bears its id."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in read_topic(broker.bootstrap, topic):
        split = record.headers.get(INCREMENTAL_HEADER)
        if split is not None and record.value is not None:
            found[split.decode()][record.json["op"] != "r"] += 1
    ends = [end for end in ends_again(broker, prefix) if end.topic == topic]
    assert {end.split: [end.rows, end.backfill] for end in ends if end.rows or end.backfill} == dict(found)


def told(broker: KafkaBroker, prefix: str) -> list[tuple[str, str, str]]:
    """Return what was told of the incremental snapshot, but for its progress: type, table, status."""
    return [
        (
            note["type"],
            note["additional_data"].get("scanned_collection", "").rpartition(".")[2],
            note["additional_data"].get("status", ""),
        )
        for note in notifications(broker, notes_topic(prefix))
        if note["type"] != "IN_PROGRESS"
    ]


def no_splits_left(broker: KafkaBroker, prefix: str) -> None:
    """Check that the state has no split."""
    state = {r.key: r.value for r in read_topic(broker.bootstrap, state_topic(prefix))}
    assert not [key for key, value in state.items() if key is not None and key.startswith(b"split/") and value]


class Beside:
    """Statements in a session of their own, begun while a reader keeps them waiting."""

    def __init__(self, database: Database, *statements: str) -> None:
        self._database, self._statements = database, statements
        self._thread = threading.Thread(target=self._run)

    def __call__(self) -> None:
        self._thread.start()
        with self._database.connect() as watcher, watcher.cursor() as cursor:
            eventually(lambda: self._waits(cursor), "the statement waits")

    def _waits(self, cursor: Any) -> bool:
        cursor.execute(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'Waiting for table metadata lock' "
            "AND db = %s",
            (self._database.name,),
        )
        return bool(cursor.fetchone()[0])

    def _run(self) -> None:
        with self._database.connect() as session, session.cursor() as cursor:
            for statement in self._statements:
                cursor.execute(statement)

    def join(self) -> None:
        """Wait until all is executed."""
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
