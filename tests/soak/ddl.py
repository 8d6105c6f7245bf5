"""Random statements that change definitions or move rows without row events, while rows change."""

from __future__ import annotations

import random
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

import pymysql

from tests.soak.tables import ADDED_COLUMN, RENAMED_COLUMNS, TABLES, SoakTable

CREATED: Final = tuple(f"created_{number}" for number in range(3))
"""Tables that come and go while the producer runs."""

_WIDER: Final = {"datetime": "DATETIME(3)", "datetime(3)": "DATETIME(6)"}


def away(database: str) -> str:
    """Return the database, not captured, from which tables are renamed into the captured one."""
    return f"{database}_away"


def run_random(cursor: Any, rng: random.Random, database: str, *, truncate: bool) -> None:
    """Run one random change; ``truncate``: also TRUNCATE, of which the order in one partition can be checked."""
    table = rng.choice(TABLES)
    number = rng.random()
    if number < 0.02 and truncate:
        cursor.execute(f"TRUNCATE TABLE {table.name}")
    elif number < 0.1:
        _arrive(cursor, rng, database)
    elif number < 0.2:
        _copy_with_triggers(cursor, table)
    elif number < 0.3:
        _copy_under_lock(cursor, table)
    else:
        rng.choice(_ALTERATIONS)(cursor, rng, table)


def change_created(cursor: Any, rng: random.Random) -> None:
    """Create, fill, change or drop a table that is not there from the start."""
    table = rng.choice(CREATED)
    if rng.random() < 0.1:
        cursor.execute(f"DROP TABLE IF EXISTS {table}")
        return
    cursor.execute(f"CREATE TABLE IF NOT EXISTS {table} (id INT PRIMARY KEY, v VARCHAR(50))")
    for _ in range(rng.choice((1, 5, 30))):
        number = rng.randrange(60)
        if rng.random() < 0.3:
            cursor.execute(f"DELETE FROM {table} WHERE id = %s", (number,))
        else:
            cursor.execute(f"REPLACE INTO {table} (id, v) VALUES (%s, %s)", (number, f"c{rng.randrange(10**6)}"))


def _add_or_drop(cursor: Any, rng: random.Random, table: SoakTable) -> None:
    position = rng.choice(("", "FIRST", "AFTER v"))
    cursor.execute(f"SHOW COLUMNS FROM {table.name} LIKE '{ADDED_COLUMN}'")
    action = f"DROP COLUMN {ADDED_COLUMN}" if cursor.fetchone() else f"ADD COLUMN {ADDED_COLUMN} INT NULL {position}"
    cursor.execute(f"ALTER TABLE {table.name} {action}")


def _modify(cursor: Any, rng: random.Random, table: SoakTable) -> None:
    column, types = rng.choice((("v", ("VARCHAR(100)", "VARCHAR(300)", "TEXT")), ("n", ("INT", "BIGINT"))))
    position = rng.choice(("", f"AFTER {table.key_columns[0]}"))
    cursor.execute(f"ALTER TABLE {table.name} MODIFY {column} {rng.choice(types)} {position}")


def _widen_time(cursor: Any, rng: random.Random, table: SoakTable) -> None:
    cursor.execute(f"SHOW COLUMNS FROM {table.name} LIKE 'd'")
    wider = _WIDER.get(cursor.fetchone()[1])
    if wider is not None:
        cursor.execute(f"ALTER TABLE {table.name} MODIFY d {wider}")


def _rename_column(cursor: Any, rng: random.Random, table: SoakTable) -> None:
    old, new = RENAMED_COLUMNS
    cursor.execute(f"SHOW COLUMNS FROM {table.name} LIKE '{old}'")
    if not cursor.fetchone():
        old, new = new, old
    cursor.execute(f"ALTER TABLE {table.name} RENAME COLUMN {old} TO {new}")


def _lengthen_key(cursor: Any, rng: random.Random, table: SoakTable) -> None:
    if table.longer_key:
        cursor.execute(f"ALTER TABLE {table.name} MODIFY {table.longer_key}")


_ALTERATIONS: Final[tuple[Callable[[Any, random.Random, SoakTable], None], ...]] = (
    _add_or_drop,
    _add_or_drop,
    _modify,
    _modify,
    _widen_time,
    _rename_column,
    _lengthen_key,
)


def _arrive(cursor: Any, rng: random.Random, database: str) -> None:
    """Rename a table with rows into the captured database."""
    name = f"arrived_{rng.randrange(10**6)}"
    cursor.execute(f"CREATE TABLE {away(database)}.{name} (id INT PRIMARY KEY, v VARCHAR(50))")
    rows = [(number, f"a{rng.randrange(10**6)}") for number in range(rng.choice((0, 10, 300)))]
    cursor.executemany(f"INSERT INTO {away(database)}.{name} VALUES (%s, %s)", rows)
    cursor.execute(f"RENAME TABLE {away(database)}.{name} TO {database}.{name}")
    cursor.execute(f"UPDATE {name} SET v = 'changed' WHERE id < 5")


def _copy_with_triggers(cursor: Any, table: SoakTable) -> None:
    """Change a table as pt-online-schema-change does."""
    name = table.name
    copy, former, trigger = f"_{name}_new", f"_{name}_old", f"soak_{name}"
    same = " AND ".join(f"{copy}.{column} <=> OLD.{column}" for column in table.key_columns)
    kept = " AND ".join(f"OLD.{column} <=> NEW.{column}" for column in table.key_columns)
    _clear(cursor, table, copy, former)
    cursor.execute(f"CREATE TABLE {copy} LIKE {name}")
    cursor.execute(f"SHOW COLUMNS FROM {copy}")
    columns = [row[0] for row in cursor.fetchall()]
    names, values = ", ".join(columns), ", ".join(f"NEW.{column}" for column in columns)
    replace = f"REPLACE INTO {copy} ({names}) VALUES ({values})"
    body = {
        "INSERT": replace,
        "UPDATE": f"BEGIN DELETE IGNORE FROM {copy} WHERE !({kept}) AND {same}; {replace}; END",
        "DELETE": f"DELETE IGNORE FROM {copy} WHERE {same}",
    }
    for event, action in body.items():
        cursor.execute(f"CREATE TRIGGER {trigger}_{event} AFTER {event} ON {name} FOR EACH ROW {action}")
    cursor.execute(f"INSERT IGNORE INTO {copy} ({names}) SELECT {names} FROM {name} LOCK IN SHARE MODE")
    cursor.execute(f"RENAME TABLE {name} TO {former}, {copy} TO {name}")
    _clear(cursor, table, former)


def _copy_under_lock(cursor: Any, table: SoakTable) -> None:
    """Replace a table with a copy under the names that gh-ost gives."""
    name, copy, former = table.name, f"_{table.name}_gho", f"_{table.name}_del"
    _clear(cursor, table, copy, former)
    cursor.execute(f"CREATE TABLE {copy} LIKE {name}")
    cursor.execute(f"LOCK TABLES {name} WRITE, {copy} WRITE")
    try:
        cursor.execute(f"INSERT INTO {copy} SELECT * FROM {name}")
        cursor.execute(f"RENAME TABLE {name} TO {former}, {copy} TO {name}")
    finally:
        with suppress(pymysql.MySQLError):
            cursor.execute("UNLOCK TABLES")
    _clear(cursor, table, former)


def _clear(cursor: Any, table: SoakTable, *leftovers: str) -> None:
    """Remove what a change that was cut off has left."""
    for event in ("INSERT", "UPDATE", "DELETE"):
        cursor.execute(f"DROP TRIGGER IF EXISTS soak_{table.name}_{event}")
    for leftover in leftovers:
        cursor.execute(f"DROP TABLE IF EXISTS {leftover}")
