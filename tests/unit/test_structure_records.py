"""The state of the schema change topic: one record for each table, so that none grows with their number."""

from __future__ import annotations

from tailrace.producer.kafka.state_store import STRUCTURE_KEY, decode, structure_key
from tailrace.producer.mysql.offset import MySqlOffset


def test_tables_are_separate_records() -> None:
    records = {STRUCTURE_KEY: b"{}", structure_key("db.a"): b"{}", structure_key("my.db.b/c"): b"{}"}
    assert decode(records, MySqlOffset.from_json).structure == frozenset({"db.a", "my.db.b/c"})
    assert decode({STRUCTURE_KEY: b"{}"}, MySqlOffset.from_json).structure == frozenset()
    assert decode({}, MySqlOffset.from_json).structure is None
