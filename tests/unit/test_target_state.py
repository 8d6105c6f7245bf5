"""What earlier releases have stored with a target opens, and what is stored now is the same."""

from __future__ import annotations

import json
from dataclasses import fields, replace

from tailrace.schemas.sequence import Sequence
from tailrace.spark_consumer.sink import jdbc_table, upsert_kafka
from tailrace.spark_consumer.sink.initial_load import InitialLoad
from tailrace.spark_consumer.sink.ledger import Changelog, Ledger
from tailrace.spark_consumer.sink.state import PROPERTIES, Stored, TargetState

NAMES = '{"columns": ["id", "n"], "ignored": [], "kept": ["old"]}'
TABLE = {
    "delta.enableDeletionVectors": "true",
    "tailrace.topic": "p.shop.t",
    "tailrace.key": '["id"]',
    "tailrace.query": "0f1e",
    "tailrace.truncated": "1.7.40.0.0",
    "tailrace.altered": "1.7.60.0.0",
    "tailrace.made": "[]",
    "tailrace.altering": "",
    "tailrace.columns": NAMES,
    "tailrace.shape": "soft-delete",
    "tailrace.addedColumns": '["__deleted"]',
    "tailrace.initialLoad.run": "run1",
    "tailrace.initialLoad.start": "1.7.40.0.0",
    "tailrace.initialLoad.earlyKeys": "-5,17",
}
"""Properties of a table."""
ROW = {
    "topic": "p.shop.t",
    "topic_id": "x",
    "offsets": '{"0": 7, "1": 3}',
    "key_columns": '["id"]',
    "source_columns": NAMES,
    "last_alteration": "1.7.60.0.0",
    "truncated": "1.7.40.0.0",
    "shape": "history",
    "added_columns": '["__kind"]',
    "shard": '{"shard": "1"}',
    "made": "[]",
    "altering": "",
    "settled": '{"0": 5, "1": 3}',
    "changelog": '{"query": "q", "step": 3, "repeated": false}',
    "format": "",
}
"""A row of the ledger of a database."""
RECORD = {
    "tailrace": {"topic": "p.shop.t", "append": {"0": 7}, "merge": {"0": 7}, "id": "x"},
    "truncated": "1.7.40.0.0",
    "key": ["id"],
    "shard": "{}",
}
"""A record of a ledger topic."""


def test_every_field_has_a_table_property() -> None:
    assert set(PROPERTIES) == {field.name for field in fields(TargetState)}


def test_properties_of_a_table_open() -> None:
    state = TargetState.from_properties(TABLE)

    assert (state.topic, state.query, state.names, state.added) == ("p.shop.t", "0f1e", NAMES, ["__deleted"])
    assert state.last_truncation == Sequence(1, 7, 40, 0, 0)
    assert InitialLoad.of(state) == InitialLoad("run1", Sequence(1, 7, 40, 0, 0), frozenset({-5, 17}))
    own = {name: text for name, text in TABLE.items() if name.startswith("tailrace.") and text}
    assert state.properties == own


def test_only_what_has_changed_is_stored() -> None:
    before = TargetState.from_properties(TABLE)
    after = TargetState.from_properties({**TABLE, "tailrace.made": "", "tailrace.altered": "1.7.90.0.0"})

    assert after.since(before) == ({"tailrace.made": "", "tailrace.altered": "1.7.90.0.0"}, [])
    gone = [name for name in TABLE if name.startswith("tailrace.initialLoad")]
    assert before.without_load().since(before) == ({}, gone)


def test_the_end_of_an_evolution_is_stored_with_its_statement() -> None:
    begun = TargetState.from_properties({**TABLE, "tailrace.altering": "attempt"})
    last = {"tailrace.altered": "1.7.60.0.0"}

    assert replace(begun, altering="").since(begun) == ({"tailrace.altering": "", **last}, [])
    assert replace(begun, names="").since(begun) == ({"tailrace.columns": "", **last}, [])
    assert begun.since(replace(begun, altering="")) == ({"tailrace.altering": "attempt"}, [])
    never = replace(begun, last_alteration="")
    assert replace(never, names="").since(never) == ({"tailrace.columns": ""}, [])


def test_a_row_of_a_database_opens() -> None:
    stored = jdbc_table.stored_in(ROW)

    truncated = stored.state.last_truncation
    expected = Ledger("p.shop.t", {0: 7, 1: 3}, {0: 5, 1: 3}, "x", Changelog("q", 3), truncated=truncated)
    assert (stored.ledger, truncated) == (expected, Sequence(1, 7, 40, 0, 0))
    assert (stored.state.shape, stored.state.shard, stored.state.names) == ("history", '{"shard": "1"}', NAMES)
    assert jdbc_table.row_of(stored) == ROW
    plain = {**ROW, "settled": ""}
    assert jdbc_table.stored_in(plain).ledger.merge == {0: 7, 1: 3}
    assert jdbc_table.row_of(jdbc_table.stored_in(plain)) == plain


def test_a_record_of_a_ledger_topic_opens() -> None:
    stored = upsert_kafka.stored_in("p.shop.t", json.dumps(RECORD))

    state = TargetState("p.shop.t", "{}", '["id"]', truncated="1.7.40.0.0")
    assert stored == Stored(state, Ledger("p.shop.t", {0: 7}, {0: 7}, "x"))
    written = json.loads(upsert_kafka.text_of(stored))
    assert {name: written[name] for name in ("truncated", "key", "shard")} == {
        name: RECORD[name] for name in ("truncated", "key", "shard")
    }
    assert upsert_kafka.stored_in("p.shop.t", json.dumps(written)) == stored


def test_a_record_without_rows_opens() -> None:
    ledger = {"topic": "p.shop.t", "append": {}, "merge": {}}

    assert upsert_kafka.stored_in("p.shop.t", None) is None
    assert upsert_kafka.stored_in("p.shop.t", json.dumps({"tailrace": ledger, "truncated": None})) == Stored(
        TargetState("p.shop.t"), Ledger("p.shop.t")
    )
