"""The comparison of auxiliary records and of registered schemas reports every change of the golden records."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.debezium_parity import golden
from tests.debezium_parity.auxiliary_records import auxiliary_records, auxiliary_schema_differences
from tests.debezium_parity.compare import compare
from tests.debezium_parity.exceptions import EXCEPTIONS, QUIET
from tests.debezium_parity.records import CHANGES, HEARTBEATS, TRANSACTIONS
from tests.debezium_parity.registered import in_connect, registered_differences
from tests.debezium_parity.topics import KafkaRecord


def _golden(name: str, prefix: str = "p") -> list[KafkaRecord]:
    return list(golden.read(name, prefix=prefix))


def _changed(
    records: list[KafkaRecord], old: bytes, new: bytes, *, where: Callable[[KafkaRecord], bool]
) -> list[KafkaRecord]:
    """Return the records with a text replaced in the first record that has it."""
    at = next(i for i, each in enumerate(records) if where(each) and old in (each.key or b"") + (each.value or b""))
    record = records[at]
    assert record.key is not None
    assert record.value is not None
    changed = record._replace(key=record.key.replace(old, new), value=record.value.replace(old, new))
    return [*records[:at], changed, *records[at + 1 :]]


def test_golden_records_are_equal_to_themselves() -> None:
    """The comparison counts every record."""
    golden_records = _golden("ahead")
    report = compare(
        auxiliary_records(golden_records, prefix="p"),
        auxiliary_records(golden_records, prefix="p"),
        EXCEPTIONS,
        quiet=QUIET,
    )

    assert not report.different
    assert set(report.equal) == {CHANGES, TRANSACTIONS, HEARTBEATS}
    assert report.equal[TRANSACTIONS] == sum(each.topic == "p.transaction" for each in golden_records)
    assert report.equal[CHANGES] == sum(each.topic == "p" for each in golden_records)


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
def test_a_changed_record_is_reported(table: str, topic: str, old: bytes, new: bytes) -> None:
    """In every auxiliary topic."""
    golden_records = _golden("ahead")
    one = [each for each in golden_records if each.topic != topic or table != HEARTBEATS] + [
        each for each in golden_records if each.topic == topic
    ][:1]
    golden_records = one if table == HEARTBEATS else golden_records
    changed = _changed(golden_records, old, new, where=lambda each: each.topic == topic)

    report = compare(
        auxiliary_records(golden_records, prefix="p"), auxiliary_records(changed, prefix="p"), EXCEPTIONS, quiet=QUIET
    )

    assert set(report.different) == {table}


def test_a_changed_schema_is_reported() -> None:
    """The version of a schema of an auxiliary topic."""
    golden_records = _golden("ahead")
    name = b'"name":"io.debezium.connector.common.TransactionMetadataValue","version":'
    changed = _changed(golden_records, name + b"1", name + b"2", where=lambda each: each.topic == "p.transaction")

    assert auxiliary_schema_differences(golden_records, golden_records, prefixes=("p", "p")) == []
    [difference] = auxiliary_schema_differences(golden_records, changed, prefixes=("p", "p"))
    assert (difference.record.table, difference.path) == (TRANSACTIONS, ("schema", "value"))


@pytest.mark.parametrize(
    ("old", "new", "path"),
    [
        (
            b'"connect.name":"dbz_avro.odd.ops.Value"',
            b'"connect.name":"dbz_avro.odd.ops.ParsedRecord"',
            ("avro", "value", "Value"),
        ),
        (b'"name":"k","type":["null","int"]', b'"name":"k","type":["int","null"]', ("avro", "value", "Value", "k")),
        (b'"name":"op","type":"string"', b'"name":"op","doc":"o","type":"string"', ("avro", "value", "Envelope", "op")),
    ],
)
def test_a_changed_schema_of_the_registry_is_reported(old: bytes, new: bytes, path: tuple[str, ...]) -> None:
    """A change of Avro, even if the Connect schema is the same."""
    prefixes = ("dbz_avro", "dbz_avro")
    ops = [each for each in _golden("avro", prefixes[0]) if each.topic == f"{prefixes[0]}.odd.ops"]
    changed = [each._replace(value=each.value.replace(old, new)) if each.value else each for each in ops]
    assert changed != ops

    assert registered_differences(ops, ops, prefixes=prefixes) == []
    assert path in {each.path for each in registered_differences(ops, changed, prefixes=prefixes)}
    assert in_connect(ops) != ops
