"""The comparison of what stands beside the rows, and of registered schemas, sees what is changed in kept records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.debezium_parity import golden
from tests.debezium_parity.auxiliary_records import auxiliary_rows, auxiliary_schema_differences
from tests.debezium_parity.compare import compare
from tests.debezium_parity.exceptions import EXCEPTIONS, QUIET
from tests.debezium_parity.registered import in_connect, registered_differences
from tests.debezium_parity.rows import CHANGES, HEARTBEATS, TRANSACTIONS
from tests.debezium_parity.topics import Written


def _kept(name: str, prefix: str = "p") -> list[Written]:
    return list(golden.read(name, prefix=prefix))


def _changed(records: list[Written], old: bytes, new: bytes, *, where: Callable[[Written], bool]) -> list[Written]:
    """Return the records with one text replaced in the key and value of the first that has it."""
    at = next(i for i, each in enumerate(records) if where(each) and old in (each.key or b"") + (each.value or b""))
    record = records[at]
    assert record.key is not None
    assert record.value is not None
    mended = record._replace(key=record.key.replace(old, new), value=record.value.replace(old, new))
    return [*records[:at], mended, *records[at + 1 :]]


def test_kept_records_are_equal_to_themselves() -> None:
    """All of them, and none is left out."""
    kept = _kept("ahead")
    report = compare(auxiliary_rows(kept, prefix="p"), auxiliary_rows(kept, prefix="p"), EXCEPTIONS, quiet=QUIET)

    assert not report.different
    assert set(report.equal) == {CHANGES, TRANSACTIONS, HEARTBEATS}
    assert report.equal[TRANSACTIONS] == sum(each.topic == "p.transaction" for each in kept)
    assert report.equal[CHANGES] == sum(each.topic == "p" for each in kept)


@pytest.mark.parametrize(
    ("table", "topic", "old", "new"),
    [
        (CHANGES, "p", b'"defaultCharsetName":"utf8mb4"', b'"defaultCharsetName":"latin1"'),
        (CHANGES, "p", b'"ddl":"USE `odd`"', b'"ddl":"USE odd"'),
        (CHANGES, "p", b'"type":"CREATE"', b'"type":"ALTER"'),
        (CHANGES, "p", b'"databaseName":"odd"', b'"databaseName":"even"'),
        (CHANGES, "p", b'"comment":"gen"', b'"comment":null'),
        (TRANSACTIONS, "p.transaction", b'"event_count":1', b'"event_count":2'),
        (TRANSACTIONS, "p.transaction", b'"data_collection":"odd.', b'"data_collection":"even.'),
        (TRANSACTIONS, "p.transaction", b'"status":"END"', b'"status":"BEGIN"'),
        (HEARTBEATS, "__debezium-heartbeat.p", b'"ts_ms"', b'"ts_us"'),
    ],
)
def test_a_changed_record_is_seen(table: str, topic: str, old: bytes, new: bytes) -> None:
    """In any of the topics; the payload alone is changed, or the schema with it."""
    kept = _kept("ahead")
    one = [each for each in kept if each.topic != topic or table != HEARTBEATS] + [
        each for each in kept if each.topic == topic
    ][:1]
    kept = one if table == HEARTBEATS else kept
    changed = _changed(kept, old, new, where=lambda each: each.topic == topic)

    report = compare(auxiliary_rows(kept, prefix="p"), auxiliary_rows(changed, prefix="p"), EXCEPTIONS, quiet=QUIET)

    assert set(report.different) == {table}


def test_a_changed_schema_beside_the_rows_is_seen() -> None:
    """A version that Debezium does not give."""
    kept = _kept("ahead")
    name = b'"name":"io.debezium.connector.common.TransactionMetadataValue","version":'
    changed = _changed(kept, name + b"1", name + b"2", where=lambda each: each.topic == "p.transaction")

    assert auxiliary_schema_differences(kept, kept, prefixes=("p", "p")) == []
    [difference] = auxiliary_schema_differences(kept, changed, prefixes=("p", "p"))
    assert (difference.row.table, difference.path) == (TRANSACTIONS, ("schema", "value"))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (
            b'"connect.name":"dbz_avro.odd.ops.Value"',
            b'"connect.name":"dbz_avro.odd.ops.Row"',
            ("avro", "value", "Value"),
        ),
        (b'"name":"k","type":["null","int"]', b'"name":"k","type":["int","null"]', ("avro", "value", "Value", "k")),
        (b'"name":"op","type":"string"', b'"name":"op","doc":"o","type":"string"', ("avro", "value", "Envelope", "op")),
    ],
)
def test_a_changed_schema_of_the_registry_is_seen(old: bytes, new: bytes, path: tuple[str, ...]) -> None:
    """What Avro says, even where Connect makes the same of it."""
    prefixes = ("dbz_avro", "dbz_avro")
    ops = [each for each in _kept("avro", prefixes[0]) if each.topic == f"{prefixes[0]}.odd.ops"]
    changed = [each._replace(value=each.value.replace(old, new)) if each.value else each for each in ops]
    assert changed != ops

    assert registered_differences(ops, ops, prefixes=prefixes) == []
    assert path in {each.path for each in registered_differences(ops, changed, prefixes=prefixes)}
    assert in_connect(ops) != ops
