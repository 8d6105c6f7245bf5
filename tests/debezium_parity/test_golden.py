"""Tailrace writes what real Debezium wrote for the same statements: compared with records that were kept."""

from __future__ import annotations

import json
from typing import Final

import pytest

from tests.debezium_parity import golden
from tests.debezium_parity.auxiliary_records import all_rows
from tests.debezium_parity.compare import Difference, NamedException
from tests.debezium_parity.debezium import debezium_prefix
from tests.debezium_parity.rows import CHANGES, HEARTBEATS, TRANSACTIONS
from tests.debezium_parity.run import run
from tests.debezium_parity.statements import AFTER_SNAPSHOT, BEFORE_SNAPSHOT
from tests.debezium_parity.topics import Written
from tests.debezium_parity.variants import VARIANTS, Variant
from tests.debezium_parity.verdict import judge

REDUCED: Final = {"plain", "ahead", "avro"}
"""What runs always: each converter; with schemas, also all that stands beside the rows."""

pytestmark = [pytest.mark.mysql, pytest.mark.kafka, pytest.mark.timeout(600)]


def _another_run(difference: Difference) -> bool:
    """Times, positions and transactions are those of another server's log."""
    if difference.row.table == TRANSACTIONS:
        return difference.path in {("key", "id"), ("value", "id"), ("value", "ts_ms"), ("partition",)}
    if difference.path[:2] == ("value", "source"):
        return difference.path[2] in {"ts_ms", "ts_us", "ts_ns", "gtid", "file", "pos", "thread"}
    return difference.path == ("value", "transaction", "id")


def _clock_default(difference: Difference) -> bool:
    """Columns that the server fills with the time of the statement."""
    return difference.row.table.startswith("defaults") and difference.path[-1] == "dtcn"


ANOTHER_RUN: Final = (
    NamedException("another run", "the records were kept from an earlier run", _another_run),
    NamedException("clock", "the server's clock is in the row", _clock_default),
)


def _kept(variant: Variant) -> list[Written]:
    return list(golden.read(golden.FOLDER / f"{variant.name}.jsonl", prefix=debezium_prefix(variant)))


@pytest.mark.parametrize(
    "variant",
    [pytest.param(each, id=each.name, marks=[] if each.name in REDUCED else pytest.mark.long) for each in VARIANTS],
)
def test_records_equal_those_that_debezium_wrote(variant: Variant) -> None:
    """Keys, rows, operations, headers, partitions and order, in every mode, save the named exceptions."""
    [outcome] = run([variant], with_debezium=False)
    report = judge(outcome._replace(debezium=_kept(variant)), ANOTHER_RUN, ranked=True)

    differences = [str(each) for found in report.different.values() for each in found]
    assert not differences, "\n".join(differences[:40])
    assert sum(report.equal.values()) + sum(map(len, report.excepted.values())) > 0


@pytest.mark.parametrize("variant", VARIANTS, ids=lambda variant: variant.name)
def test_kept_records_are_whole(variant: Variant) -> None:
    """Every kept file has rows of every table of the script, read back and parsed."""
    prefix = debezium_prefix(variant)
    rows = all_rows(list(golden.read(golden.FOLDER / f"{variant.name}.jsonl", prefix=prefix)), prefix=prefix)

    assert len({row.table for row in rows}) >= 45
    assert {row.op for row in rows} >= {"r", "c", "u", "d", "ddl"}
    assert CHANGES in {row.table for row in rows}
    if variant.name in {"ahead", "avro"}:
        assert {TRANSACTIONS, HEARTBEATS} <= {row.table for row in rows}
        assert {"t", "BEGIN", "END"} <= {row.op for row in rows}


def test_kept_records_are_of_the_script_of_today() -> None:
    """The statements beside the records are those that the other tests run."""
    about = json.loads((golden.FOLDER / "about.json").read_text(encoding="utf-8"))

    assert (about["before_snapshot"], about["after_snapshot"]) == (list(BEFORE_SNAPSHOT), list(AFTER_SNAPSHOT))
    assert about["variants"] == {variant.name: variant.debezium for variant in VARIANTS}
