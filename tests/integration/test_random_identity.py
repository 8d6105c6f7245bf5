"""Tables that go and come back at random, with starts and kills between, while snapshots run.

At the end each table that the source has is equal for a reader that applies its topic as the consumer does.
"""

from __future__ import annotations

import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.support.capture import CaptureProcess, CaptureThread, eventually
from tests.support.incremental_checks import state_of
from tests.support.incremental_window import request_snapshot, settings_of
from tests.support.upsert_reader import consumer_rows

if TYPE_CHECKING:
    from tests.embedded.kafka import KafkaBroker
    from tests.support.database import Database

ROUNDS: Final = 6
STATEMENTS: Final = 25
COLUMNS: Final = "(id INT PRIMARY KEY, v VARCHAR(50))"
NAMES: Final = ("a", "b", "c", "away_a", "away_b", "outside")
"""``outside`` is not captured."""


class Writer:
    """Runs random statements; it knows which tables there are."""

    def __init__(self, database: Database, rng: random.Random) -> None:
        self._database, self._rng = database, rng
        self.tables: set[str] = set()
        self.done: list[str] = []

    def run(self, count: int) -> None:
        """Run some statements."""
        for _ in range(count):
            for statement in self._statements():
                self._execute(statement)

    def _execute(self, statement: str) -> None:
        self.done.append(statement)
        self._database.execute(statement)

    def create(self, table: str, rows: int) -> None:
        """Create a table with rows."""
        optional = self._rng.choice(("", "IF NOT EXISTS "))
        self._execute(f"CREATE TABLE {optional}{table} {COLUMNS}")
        self.tables.add(table)
        if rows:
            first = self._rng.randrange(50)
            values = ", ".join(f"({number}, '{self._value()}')" for number in range(first, first + rows))
            self._execute(f"INSERT INTO {table} VALUES {values}")

    def _value(self) -> str:
        return f"v{self._rng.randrange(10**6)}"

    def _statements(self) -> list[str]:
        rng = self._rng
        table, number = rng.choice(NAMES), rng.random()
        if table not in self.tables:
            if number < 0.5:
                self.create(table, rng.choice((0, 0, 3, 60)))
            elif self.tables:
                former = rng.choice(sorted(self.tables))
                self.tables ^= {former, table}
                return [f"RENAME TABLE {former} TO {table}"]
            return []
        if number < 0.1:
            self.tables.discard(table)
            return [f"DROP TABLE {table}"]
        if number < 0.2:
            self._execute(f"DROP TABLE {table}")
            self.create(table, rng.choice((0, 3, 60)))
            return []
        if number < 0.3 and len(self.tables) > 1:
            other = rng.choice(sorted(self.tables - {table}))
            return [f"RENAME TABLE {table} TO swap, {other} TO {table}, swap TO {other}"]
        if number < 0.35:
            return [f"TRUNCATE TABLE {table}"]
        if number < 0.4:
            return [f"CREATE TABLE IF NOT EXISTS {table} {COLUMNS}"]
        key = rng.randrange(120)
        return [
            rng.choice(
                (
                    f"DELETE FROM {table} WHERE id = {key}",
                    f"DELETE FROM {table} WHERE id % 7 = {key % 7}",
                    f"UPDATE {table} SET v = '{self._value()}' WHERE id % 5 = {key % 5}",
                    f"REPLACE INTO {table} VALUES ({key}, '{self._value()}')",
                )
            )
        ]


@pytest.mark.long
@pytest.mark.timeout(900)
@pytest.mark.parametrize("seed", range(12))
def test_tables_that_go_and_come_back(
    seed: int, kafka_broker: KafkaBroker, prefix: str, database: Database, tmp_path: Path
) -> None:
    rng = random.Random(seed)
    writer = Writer(database, rng)
    for table in NAMES[:3]:
        writer.create(table, 60)
    changes: dict[str, object] = {"table_exclude_list": rf"{database.name}\.outside", "skipped_operations": "none"}
    settings = settings_of(database.server, kafka_broker, prefix, database, **changes)
    process = CaptureProcess(settings, tmp_path)
    for _ in range(ROUNDS):
        process.start()
        _wait_until_read(kafka_broker, prefix, database)
        for _ in range(rng.randrange(1, 4)):
            if rng.random() < 0.3 and writer.tables:
                request_snapshot(kafka_broker, prefix, database, *rng.sample(sorted(writer.tables), 1))
            writer.run(rng.randrange(STATEMENTS))
            if rng.random() < 0.7:
                _wait_until_read(kafka_broker, prefix, database)
        if rng.random() < 0.5:
            process.kill()
        else:
            assert process.stop() == 0, process.log.read_text()[-3000:]
        writer.run(rng.choice((0, 3, STATEMENTS)))
    captured = sorted(writer.tables - {"outside"})
    with CaptureThread(settings) as capture:
        capture.wait_position(database.server)
        eventually(lambda: _different(kafka_broker, prefix, database, captured) == {}, f"equal: {captured}", 120)
        capture.wait_position(database.server)
    assert _different(kafka_broker, prefix, database, captured) == {}, writer.done


def _wait_until_read(broker: KafkaBroker, prefix: str, database: Database) -> None:
    [(wanted,)] = database.execute("SELECT @@global.gtid_executed")

    def read() -> bool:
        try:
            stored = state_of(broker, prefix, "offset")
        except KeyError:  # the topic does not exist yet
            stored = None
        gtids = stored["position"]["gtids"] if stored else ""
        return bool(database.execute("SELECT GTID_SUBSET(%s, %s)", (wanted, gtids))[0][0])

    eventually(read, "everything is read")


def _different(broker: KafkaBroker, prefix: str, database: Database, tables: list[str]) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for table in tables:
        source = dict(database.execute(f"SELECT id, v FROM {table}"))
        try:
            rows = {r["id"]: r["v"] for r in consumer_rows(broker, prefix, f"{database.name}.{table}").values()}
        except KeyError:  # the topic does not exist
            rows = {}
        if rows != source:
            found[table] = {key: (rows.get(key), source.get(key)) for key in rows.keys() | source.keys()}
            found[table] = {key: pair for key, pair in found[table].items() if pair[0] != pair[1]}
    return found
