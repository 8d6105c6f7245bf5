"""Records of schema changes: the tables that ``source`` names."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import orjson
import pytest

from tailrace.producer.errors import SourceError
from tailrace.producer.model.binlog_events import QueryEvent
from tailrace.producer.model.ddl import Change, DdlEffect
from tailrace.producer.model.table import TableId
from tailrace.producer.serialization.envelope.json import to_json
from tailrace.producer.streaming.schema_change_topic import SchemaChangeSettings, SchemaChangeTopic
from tests.support.stream import FILE


def _tables(effects: list[DdlEffect]) -> list[str | None]:
    """Return ``source.table`` of the records of a statement."""
    written: list[bytes] = []
    transaction: Any = SimpleNamespace(
        tell=lambda _topic, _key, value, _headers, **_: written.append(value),
        store=lambda _key, _value: None,
    )

    def create_statement(table: TableId) -> str:
        raise SourceError(f"{table} is gone", hint="the test needs no definition")

    topic: Any = SimpleNamespace(name="p", record=lambda key, value: (to_json(key), to_json(value)))
    filters: Any = SimpleNamespace(includes=lambda _table: True, includes_database=lambda _name: True)
    session: Any = SimpleNamespace(create_statement=create_statement)
    changes = SchemaChangeTopic(transaction, session, topic, SchemaChangeSettings("p", filters, [], comments=False))
    event = QueryEvent("g:1", "", "a statement", FILE, 4, 99, 1, 1, None)
    changes.write_statement(event, effects)
    return [orjson.loads(value)["source"]["table"] for value in written]


@pytest.mark.parametrize(
    ("tables", "expected"),
    [
        ([TableId("hv-a.b", "t.u-v")], ["t.u-v"]),
        ([TableId("a.b", "c.d"), TableId("a.b", "e")], ["c.d,e"] * 2),
        ([TableId("shop", "orders")], ["orders"]),
    ],
)
def test_source_names_the_tables_without_their_database(tables: list[TableId], expected: list[str]) -> None:
    """Whatever dots the names have."""
    found = _tables([DdlEffect(Change.ALTER, table, None, sql="ALTER TABLE t ADD c INT") for table in tables])

    assert [",".join(sorted((each or "").split(","))) for each in found] == expected


def test_a_statement_on_an_index_has_an_empty_list() -> None:
    """As in Debezium."""
    assert _tables([DdlEffect(Change.INDEX, TableId("shop", "t"), None, sql="CREATE INDEX i ON t (c)")]) == [""]


def test_a_statement_on_a_database_names_no_table() -> None:
    """Null, as in Debezium."""
    assert _tables([DdlEffect(Change.DROP_DATABASE, TableId("shop", ""), None, sql="DROP DATABASE shop")]) == [None]
