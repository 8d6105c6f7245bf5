"""Small tables, actions in the window of one incremental split, and checks of the topic."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.schemas.names import INCREMENTAL_HEADER, state_topic
from tests.support.capture import eventually, properties
from tests.support.incremental_checks import incremental_ends, is_incremental, notifications, signal
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 200
CHUNK = 20
AT = 3
"""Number of the split in whose window a test acts."""


def settings_of(
    server: MySqlServer, broker: KafkaBroker, prefix: str, database: Database, **changes: object
) -> dict[str, str]:
    """Return a configuration with small splits, a signal topic and a notification topic."""
    wanted = {
        "incremental.snapshot.chunk.size": CHUNK,
        "topic.creation.default.partitions": 1,
        "signal.poll.interval.ms": 50,
        "signal.enabled.channels": "kafka",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": notifications_topic(prefix),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return properties(server, broker, prefix, database.name, wanted)


def notifications_topic(prefix: str) -> str:
    """Return the notification topic."""
    return f"{prefix}.notes"


def fill(database: Database, *tables: str) -> None:
    """Create tables of ROWS rows."""
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(50))")
        database.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, f"{table}{n}") for n in range(1, ROWS + 1)])


def source_rows(database: Database, table: str) -> dict[int, str]:
    """Return the rows of the source."""
    return dict(database.execute(f"SELECT id, v FROM {table}"))


def request_snapshot(broker: KafkaBroker, prefix: str, database: Database, *tables: str) -> None:
    """Send a signal for an incremental snapshot of tables."""
    names = [f"{database.name}.{table}" for table in tables]
    signal(broker, prefix, "execute-snapshot", {"data-collections": names}, "asked")


class SplitHook:
    """Acts once, in the window of one split."""

    def __init__(self, table: str, act: Callable[[], None], number: int = AT, *, incremental: bool = True) -> None:
        self._split, self._act = (incremental, table, number), act
        self._lock = threading.Lock()
        self.done = False

    def __call__(self, split: Split) -> None:
        with self._lock:
            if (split.incremental, split.table.table, split.number) != self._split or self.done:
                return
            self.done = True
        self._act()


def check_changes(records: Sequence[Read], *, same_columns: bool = True) -> dict[bytes, dict[str, Any]]:
    """Check that the changes of each key follow from one another, without incremental rows. Return the resulting rows.

    The initial snapshot of the table must have ended before its first change.
    """
    rows: dict[bytes, dict[str, Any]] = {}
    for record in records:
        if record.value is None or is_incremental(record):
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


def rows_of_reader(records: Sequence[Read], *, truncates: bool = True) -> dict[int, str]:
    """Return the rows of a reader that applies all records in order, incremental rows included."""
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


def check_counts(broker: KafkaBroker, prefix: str, topic: str) -> None:
    """Check that the END of each incremental split counts the records with its id."""
    found: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in read_topic(broker.bootstrap, topic):
        split = record.headers.get(INCREMENTAL_HEADER)
        if split is not None and record.value is not None:
            found[split.decode()][record.json["op"] != "r"] += 1
    ends = [end for end in incremental_ends(broker, prefix) if end.topic == topic]
    assert {end.split: [end.rows, end.backfill] for end in ends if end.rows or end.backfill} == dict(found)


def notified(broker: KafkaBroker, prefix: str) -> list[tuple[str, str, str]]:
    """Return type, table and status of all notifications of incremental snapshots except IN_PROGRESS."""
    return [
        (
            note["type"],
            note["additional_data"].get("scanned_collection", "").rpartition(".")[2],
            note["additional_data"].get("status", ""),
        )
        for note in notifications(broker, notifications_topic(prefix))
        if note["type"] != "IN_PROGRESS"
    ]


def no_splits_left(broker: KafkaBroker, prefix: str) -> None:
    """Check that the state has no split."""
    state = {r.key: r.value for r in read_topic(broker.bootstrap, state_topic(prefix))}
    assert not [key for key, value in state.items() if key is not None and key.startswith(b"split/") and value]


class BackgroundStatements:
    """Statements in a background session, started while a reader blocks them."""

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
        """Wait until all statements are executed."""
        self._thread.join(timeout=300)
        assert not self._thread.is_alive()
