"""Tables, hooks and checks for statements inside the window of one split of an incremental snapshot."""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from tailrace.schemas.names import INCREMENTAL_HEADER, state_topic
from tests.support.capture import eventually, properties
from tests.support.incremental_checks import incremental_ends, is_incremental_read, notifications, signal
from tests.support.topics import Read, read_topic

if TYPE_CHECKING:
    from tailrace.producer.model.split import Split
    from tests.embedded.kafka import KafkaBroker
    from tests.embedded.mysql import MySqlServer
    from tests.support.database import Database

ROWS = 200
CHUNK = 20
AT = 3
"""Number of the split in whose window the hooks act."""


def settings_of(
    server: MySqlServer, broker: KafkaBroker, prefix: str, database: Database, **changes: object
) -> dict[str, str]:
    """Return a configuration with small splits, the kafka channel of signals, and notifications in a topic."""
    values = {
        "incremental.snapshot.chunk.size": CHUNK,
        "topic.creation.default.partitions": 1,
        "signal.poll.interval.ms": 50,
        "signal.enabled.channels": "kafka",
        "notification.enabled.channels": "sink",
        "notification.sink.topic.name": notifications_topic(prefix),
        **{name.replace("_", "."): value for name, value in changes.items()},
    }
    return properties(server, broker, prefix, database.name, values)


def notifications_topic(prefix: str) -> str:
    """Return the topic of notifications."""
    return f"{prefix}.notes"


def fill(database: Database, *tables: str) -> None:
    """Create tables of ROWS rows."""
    for table in tables:
        database.execute(f"CREATE TABLE {table} (id INT PRIMARY KEY, v VARCHAR(50))")
        database.executemany(f"INSERT INTO {table} VALUES (%s, %s)", [(n, f"{table}{n}") for n in range(1, ROWS + 1)])


def source_rows(database: Database, table: str) -> dict[int, str]:
    """Return the rows at the source."""
    return dict(database.execute(f"SELECT id, v FROM {table}"))


def request_snapshot(broker: KafkaBroker, prefix: str, database: Database, *tables: str) -> None:
    """Request incremental snapshots of tables."""
    names = [f"{database.name}.{table}" for table in tables]
    signal(broker, prefix, "execute-snapshot", {"data-collections": names}, "requested")


class SplitHook:
    """A hook that acts once, in the window of one split of an incremental snapshot."""

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


def verify_change_chain(records: Sequence[Read], *, same_columns: bool = True) -> dict[bytes, dict[str, Any]]:
    """Check that each change starts from the previous state of its key; return the resulting rows.

    Rows of incremental snapshots are left out. The initial snapshot ended before the first change.
    """
    rows: dict[bytes, dict[str, Any]] = {}
    for record in records:
        if record.value is None or is_incremental_read(record):
            continue
        change = record.json
        if change["op"] == "t":
            rows.clear()
            continue
        assert record.key is not None
        before, previous = change["before"], rows.pop(record.key, None)
        if not same_columns and before is not None and previous is not None:
            before = {name: before[name] for name in previous}
        assert before == previous, f"{change['op']} of {record.key!r} at {record.offset}: from {before}, not {previous}"
        if change["after"] is not None:
            rows[record.key] = change["after"]
    return rows


def replay(records: Sequence[Read], *, truncates: bool = True) -> dict[int, str]:
    """Return the table that results from all records in order, including rows of incremental snapshots."""
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


def verify_end_counts(broker: KafkaBroker, prefix: str, topic: str) -> None:
    """Check that each END of an incremental split has the number of records with its id."""
    counts: dict[str, list[int]] = defaultdict(lambda: [0, 0])
    for record in read_topic(broker.bootstrap, topic):
        split = record.headers.get(INCREMENTAL_HEADER)
        if split is not None and record.value is not None:
            counts[split.decode()][record.json["op"] != "r"] += 1
    ends = [end for end in incremental_ends(broker, prefix) if end.topic == topic]
    assert {end.split: [end.rows, end.backfill] for end in ends if end.rows or end.backfill} == dict(counts)


def notified(broker: KafkaBroker, prefix: str) -> list[tuple[str, str, str]]:
    """Return the notifications of incremental snapshots except IN_PROGRESS, as (type, table, status)."""
    return [
        (
            note["type"],
            note["additional_data"].get("scanned_collection", "").rpartition(".")[2],
            note["additional_data"].get("status", ""),
        )
        for note in notifications(broker, notifications_topic(prefix))
        if note["type"] != "IN_PROGRESS"
    ]


def verify_no_splits_left(broker: KafkaBroker, prefix: str) -> None:
    """Check that the state topic has no split."""
    state = {r.key: r.value for r in read_topic(broker.bootstrap, state_topic(prefix))}
    assert not [key for key, value in state.items() if key is not None and key.startswith(b"split/") and value]


class BackgroundStatements:
    """Statements in a separate session, started while a reader blocks them."""

    def __init__(self, database: Database, *statements: str) -> None:
        self._database, self._statements = database, statements
        self._thread = threading.Thread(target=self._run)

    def __call__(self) -> None:
        self._thread.start()
        with self._database.connect() as watcher, watcher.cursor() as cursor:
            eventually(lambda: self._waiting(cursor), "the statement to wait for a lock")

    def _waiting(self, cursor: Any) -> bool:
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
        self._thread.join(timeout=60)
        assert not self._thread.is_alive()
