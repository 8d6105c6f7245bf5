"""What a parser keeps of TABLE_MAP events without names, and when it forgets it."""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace

import pytest

from tailrace.producer.model.table import Column
from tailrace.producer.mysql.binlog import proven_definitions
from tailrace.producer.mysql.binlog.definition_cache import DefinitionCache
from tailrace.producer.mysql.binlog.proven_definitions import UnsettledError
from tailrace.runtime.errors import SchemaError
from tests.unit.test_proven_definitions import FILE, Log, T, U, definition_of, statement, version

MINIMAL = b"\1\0\1d\0\1t\0\2\3\3\0\0"
"""A TABLE_MAP event of d.t with two columns INT NOT NULL."""


def test_refused_events_of_a_table_share_what_is_kept_of_them() -> None:
    """A transaction may have a million of them. What is no matter of a proof is read once."""
    log = Log(statement("ALTER TABLE t ADD x INT", 700))
    log.has(T)
    definitions = log.definitions()
    definition_of(definitions)
    cache = DefinitionCache(lambda _: True, definitions)
    kept = {id(cache.add(MINIMAL, (FILE, 300 + at, 250))) for at in range(100)}
    assert len(kept) == 1

    unknown = MINIMAL[:9] + b"\3\143\0\0\4\4\1a\1b"
    first = cache.add(unknown, (FILE, 300, 250))
    assert first is not None
    assert first.error is not None
    assert cache.recent[unknown] is first


def test_a_change_that_was_not_logged_refuses_rows() -> None:
    """A TABLE_MAP event without rows does not count as refused rows."""
    log = Log()
    ints = (Column("id", "int", nullable=False), Column("w", "int", nullable=False))
    log.has(T, ints)
    definitions = log.definitions(version())
    definition_of(definitions)
    cache = DefinitionCache(lambda _: True, definitions)
    for _ in range(2):
        first = cache.add(MINIMAL, (FILE, 300, 250))
        assert first is not None
        assert "no statement that changed it" in str(first.error)
    assert first is not None
    assert isinstance(first.check_columns(b"", 0, update=False), SchemaError)
    first.refused = True  # as the parser does
    for pos in (400, 500):
        with suppress(UnsettledError):
            read = cache.add(MINIMAL, (FILE, pos, 350))
        while not definitions.settle():
            pass
    assert read is not None
    assert read.error is None
    assert [column.name for column in read.table.columns] == ["id", "w"]


def test_a_definition_that_is_compared_later_is_not_used_on(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was read with it is forgotten as soon as the catalog has another one."""
    monkeypatch.setattr(proven_definitions, "_LOCK_WAIT_S", 0.0)
    log = Log()
    columns = (Column("id", "int", nullable=False), Column("v", "int", nullable=False))
    log.has(T, (columns[0], replace(columns[1], name="w")))
    log.locked = {T}
    definitions = log.definitions(version(T, columns))
    definition_of(definitions)
    cache = DefinitionCache(lambda _: True, definitions)
    used = cache.add(MINIMAL, (FILE, 300, 250))
    assert used is not None
    assert used.table.columns == columns
    assert MINIMAL in cache.recent

    log.locked = set()
    log.has(U)
    definition_of(definitions, U, 400)
    assert MINIMAL not in cache.recent
    second = cache.add(MINIMAL, (FILE, 500, 450))
    assert second is not None
    assert "no statement that changed it" in str(second.error)
